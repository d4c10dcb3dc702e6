"""What a holder may do with its claim: show, extend, settle, give back unseen.

What holds, under the main lock:

1. Members of a RANGE are the FRESH slots behind the cursor from first_id to last_id; of a SINGLE the slot while it is
   RETURNED and CLAIMED.  A member that ends or returns stops being one by its state, so a repeated reap finds none.
2. Marks of what was shown are set by compare-and-swap on a word that holds the generation of the record, so they never
   hit a stranger's; so do late acks, which compare it.
3. A record that holds nothing more is free, under a new generation.
"""

from libc.string cimport memset

from engine.atomics cimport *
from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.lane cimport *
from rota._core.slots cimport *
from rota._core.tombs cimport killed_between, was_killed


cdef uint32_t generation_of(const rota_claim *record) noexcept nogil:
    return <uint32_t>(record.shown >> 32)


cdef uint32_t shown_of(const rota_claim *record) noexcept nogil:
    return <uint32_t>record.shown


cdef void free_claim(rota_handle *h, uint32_t index) noexcept nogil:
    """Give a record back under a new generation: marks and acks that come late find a stranger."""
    cdef rota_control *control = h.control
    cdef rota_claim *record = &h.claims[index % ROTA_CLAIM_COUNT]
    cdef rota_process *process = &control.processes[record.process % ROTA_PROCESS_COUNT_MAX]
    rota_save(h, &control.pool_limit)
    rota_save(h, record)
    rota_save(h, process)
    if process.generation == record.process_generation:
        process.claims -= 1
        if record.flags & ROTA_CLAIM_SUSPECT:
            process.suspect_held -= 1
    record.state = ROTA_CLAIM_FREE
    record.count = 0
    record.flags = 0
    record.verdict = ROTA_VERDICT_NONE
    rota_store_release_u64(&record.shown, <uint64_t>(generation_of(record) + 1) << 32)
    record.next_free = control.claim_free
    control.claim_free = index + 1
    control.claim_count -= 1


cdef int lost(rota_handle *h, uint32_t queue_number, uint64_t id, rota_error *error) noexcept nogil:
    """Why a claim does not hold any more."""
    cdef rota_queue *queue = queue_at(h, queue_number)
    cdef Found found
    if queue == NULL or was_killed(h, id) \
            or (find(h, queue, id, &found) and rota_slot_state(found.slot.word) == ROTA_SLOT_KILLED):
        return rota_fail_compared(error, ROTA_KILLED, NULL, 0, id, 0, "the message was killed while it was claimed")
    return rota_fail_compared(error, ROTA_LEASE_LOST, NULL, 0, id, 0,
                              "the claim ended before it was settled; the message may be in other hands")


cdef int show(rota_handle *h, const Run *run, uint64_t upto_id, uint64_t lease_ns, rota_error *error) noexcept nogil:
    """Note that the bodies up to this id reach user code now.  ROTA_LEASE_LOST when the claim ended; ROTA_RETRY when it
    is noted and less than half of the lease is left, so that the caller may extend it."""
    cdef rota_claim *record = &h.claims[run.claim % ROTA_CLAIM_COUNT]
    cdef uint32_t mark = <uint32_t>(upto_id - run.first_id + 1)
    cdef uint64_t word = rota_load_acquire_u64(&record.shown)
    while True:
        if <uint32_t>(word >> 32) != run.generation:
            if was_killed(h, upto_id):
                return rota_fail_compared(error, ROTA_KILLED, NULL, 0, upto_id, 0,
                                          "the message was killed before it was looked at")
            return rota_fail_compared(error, ROTA_LEASE_LOST, NULL, 0, upto_id, 0,
                                      "the claim ended before the message was looked at")
        if record.flags & ROTA_CLAIM_KILLED and was_killed(h, upto_id):
            return rota_fail_compared(error, ROTA_KILLED, NULL, 0, upto_id, 0,
                                      "the message was killed before it was looked at")
        if <uint32_t>word >= mark:
            return ROTA_OK
        if rota_compare_exchange_u64(&record.shown, &word, (word & <uint64_t>0xffffffff00000000) | mark):
            rota_failpoint(h.failpoints, ROTA_AT_SHOW_MARKED)
            return ROTA_OK if h.os.clock_boot_ns(h.os) + lease_ns // 2 <= record.lease_deadline_ns else ROTA_RETRY


cdef int extend_locked(rota_handle *h, const Run *run, uint64_t id, uint64_t lease_ns, rota_error *error) noexcept nogil:
    cdef rota_claim *record = &h.claims[run.claim % ROTA_CLAIM_COUNT]
    if record.state != ROTA_CLAIM_ACTIVE or generation_of(record) != run.generation:
        return lost(h, run.queue, id, error)
    if was_killed(h, id):
        return rota_fail_compared(error, ROTA_KILLED, NULL, 0, id, 0, "the message was killed while it was claimed")
    record.lease_deadline_ns = h.os.clock_boot_ns(h.os) + lease_ns
    return ROTA_OK


cdef bint is_member(rota_handle *h, const rota_claim *record, const Found *found) noexcept nogil:
    """Whether this slot is handed out by this record (its id and queue match already)."""
    cdef uint64_t word = found.slot.word
    if record.kind == ROTA_CLAIM_SINGLE:
        return rota_slot_state(word) == ROTA_SLOT_RETURNED and rota_slot_flags(word) & ROTA_SLOT_CLAIMED != 0
    return rota_slot_state(word) == ROTA_SLOT_FRESH and found.level == record.level \
        and not ahead_of_cursor(h, found)


cdef int admit_settle(rota_handle *h, const Settle *settle, rota_error *error) noexcept nogil:
    """Whether the claim still holds what is to be settled.  ROTA_STATE: name the ids one by one instead."""
    cdef rota_claim *record = &h.claims[settle.claim % ROTA_CLAIM_COUNT]
    cdef rota_queue *queue
    cdef Found found
    if record.state != ROTA_CLAIM_ACTIVE or generation_of(record) != settle.generation \
            or (not settle.reaper and (record.process != h.process
                                       or record.process_generation != h.process_generation)):
        return lost(h, settle.queue, settle.first_id, error)
    if settle.strict and record.flags & ROTA_CLAIM_KILLED:
        return rota_fail_compared(error, ROTA_KILLED, NULL, 0, killed_between(h, record.first_id, record.last_id), 0,
                                  "a message was killed while it was claimed")
    if settle.whole:
        if record.flags & ROTA_CLAIM_BROKEN or record.count != settle.count:
            return ROTA_STATE
        return ROTA_OK
    queue = queue_at(h, settle.queue)
    if queue == NULL:
        return lost(h, settle.queue, settle.first_id, error)
    if settle.ref:  # its slot is looked at here, and again when the ack is applied
        h.hint_id = settle.first_id
        h.hint_ref = settle.ref
    if not (find_in_lane(h, queue, settle.level % 10, settle.first_id, &found) and rota_slot_live(found.slot.word)) \
            and (not find(h, queue, settle.first_id, &found)
                 or rota_slot_state(found.slot.word) == ROTA_SLOT_KILLED):
        # Only a kill ends a message under a claim that still stands.
        return rota_fail_compared(error, ROTA_KILLED, NULL, 0, settle.first_id, 0,
                                  "the message was killed while it was claimed")
    return ROTA_OK if is_member(h, record, &found) else lost(h, settle.queue, settle.first_id, error)


cdef void settle_claim(rota_handle *h, const Settle *settle) noexcept nogil:
    """After the commit: the record holds so many messages less; an empty one is free."""
    cdef rota_claim *record = &h.claims[settle.claim % ROTA_CLAIM_COUNT]
    cdef rota_queue *queue = queue_at(h, settle.queue)
    if queue != NULL:
        rota_save(h, &queue.due)
        queue.claimed -= settle.count
    if record.count == settle.count:
        free_claim(h, settle.claim)
    else:
        rota_save(h, record)
        record.count -= settle.count


cdef int left_record(rota_handle *h, rota_claim *record, rota_queue *queue, int returned) noexcept nogil:
    if returned:
        rota_save(h, record)
        rota_save(h, &queue.due)
        record.count -= <uint32_t>returned
        queue.claimed -= <uint32_t>returned
    return returned


cdef int free_members(rota_handle *h, rota_claim *record, uint64_t first_id, uint64_t last_id,
                      int limit) noexcept nogil:
    """At most `limit` members of a record in this range of ids go back to their places, uncounted and unlogged.
    Returns how many did; the counts of record and queue follow them."""
    cdef rota_queue *queue = queue_at(h, record.queue)
    cdef Found found
    cdef uint64_t next_id = first_id
    cdef int returned = 0
    cdef uint32_t number
    if queue == NULL or record.level > 9:
        return 0
    if record.kind == ROTA_CLAIM_SINGLE:
        if find(h, queue, record.first_id, &found) and is_member(h, record, &found):
            save_claim_line(h, found.lane)
            leave_ready(h, &found)
            make_ready(h, &found, order_of(h, found.slot))
            returned = 1
        return left_record(h, record, queue, returned)
    if not find_in_lane(h, queue, record.level, first_id, &found) and found.number == 0:
        found.number = queue.lanes[record.level].head
        found.index = 0
    found.queue = queue
    found.level = record.level
    found.lane = &queue.lanes[record.level]
    save_claim_line(h, found.lane)
    number = found.number
    while number:
        found.number = number
        found.page = rota_page_at(h, number)
        if found.page.kind != ROTA_PAGE_CHUNK:
            break
        while found.index < chunk_count(found.lane, number, found.page):
            found.slot = rota_page_slot(found.page, found.index)
            if found.slot.id > last_id or returned == limit:
                return left_record(h, record, queue, returned)
            if found.slot.id >= first_id and is_member(h, record, &found):
                rota_save(h, found.page)
                found.page.irregular += 1
                make_ready(h, &found, found.slot.id)
                returned += 1
            found.index += 1
        number = found.page.next
        found.index = 0
    return left_record(h, record, queue, returned)


cdef int return_unshown_locked(rota_handle *h, const Run *run, uint64_t first_id, uint64_t last_id,
                               rota_error *error) noexcept nogil:
    """Messages that nobody was shown go back, free of charge, some in a section; the record is broken from then on.
    Returns how many did (0: no more), ROTA_RETRY when the pool must grow first, or a failure."""
    cdef rota_claim *record = &h.claims[run.claim % ROTA_CLAIM_COUNT]
    cdef rota_queue *queue = queue_at(h, run.queue)
    cdef int returned
    if record.state != ROTA_CLAIM_ACTIVE or generation_of(record) != run.generation or queue == NULL:
        return lost(h, run.queue, first_id, error)
    if rota_pool_room(h) < ROOM_FOR_RETURNS:
        return ROTA_RETRY
    rota_save(h, record)
    record.flags |= ROTA_CLAIM_BROKEN
    returned = free_members(h, record, first_id, last_id, RETURNS_PER_SECTION)
    if record.count == 0:
        free_claim(h, run.claim)
        returned = 0
    rota_settle_undo(h)
    return returned
