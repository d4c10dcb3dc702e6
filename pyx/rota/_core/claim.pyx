"""Hand-outs: which messages are claimed, shown, settled, or go back unseen.

What holds, under the main lock:

1. claim(n) looks at each priority, high first, and takes the older of the returned heap's top and the cursor's slot:
   from the cursor one RANGE of first-time messages, from the heap a SINGLE with its counts.
2. A record is written PREPARED, the cursor stored, then it becomes ACTIVE; a death between is undone by the saved
   lines, or, when nobody is left, by the next open, which takes PREPARED for FREE.
3. Members of a RANGE are the FRESH slots behind the cursor from first_id to last_id; of a SINGLE the slot while it is
   RETURNED and CLAIMED.  A member that ends or returns stops being one by its state, so a repeated reap finds none.
4. Marks of what was shown are set by compare-and-swap on a word that holds the generation of the record, so they never
   hit a stranger's.
5. A suspect is handed out only to a process that holds nothing, and that process gets nothing else until it is settled;
   but what a transaction holds itself is not in its way, or it would wait for itself.
"""

from libc.stdint cimport uint16_t
from libc.string cimport memset

from engine.atomics cimport *
from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.fence cimport is_older, stale
from rota._core.lane cimport *
from rota._core.slots cimport *
from rota._core.holding cimport ROOM_FOR_RETURNS, generation_of


cdef uint32_t take_record(rota_handle *h) noexcept nogil:
    """Index of a free record; ROTA_CLAIM_COUNT when all are in use."""
    cdef rota_control *control = h.control
    cdef uint32_t index
    rota_save(h, &control.pool_limit)
    if control.claim_free:
        index = (control.claim_free - 1) % ROTA_CLAIM_COUNT
        rota_save(h, &h.claims[index])
        control.claim_free = h.claims[index].next_free
    else:
        if control.claim_used >= ROTA_CLAIM_COUNT:
            return ROTA_CLAIM_COUNT
        index = control.claim_used
        rota_save(h, &h.claims[index])
        control.claim_used += 1
    control.claim_count += 1
    return index


cdef bint is_due(rota_handle *h, const rota_heap_entry *entry, const rota_page *page,
                 const rota_slot *slot) noexcept nogil:
    """Whether an entry is the one of the last delay: a replay meets each delay of a message in turn."""
    cdef const rota_record *history = NULL
    if (page.kind != ROTA_PAGE_CHUNK and page.kind != ROTA_PAGE_STRAGGLERS) or slot.id != entry.id \
            or rota_slot_state(slot.word) != ROTA_SLOT_DELAYED:
        return False
    if rota_slot_flags(slot.word) & ROTA_SLOT_HISTORY:
        history = rota_table_find(h, &h.control.tables[ROTA_TABLE_HISTORY], entry.id)
    return history == NULL or history.b == entry.key


cdef void release_due(rota_handle *h, rota_queue *queue, uint64_t now_ns) noexcept nogil:
    """Delayed messages whose time has come become ready, at most 64 in one section."""
    cdef const rota_heap_entry *top = rota_heap_top(h, &queue.due)
    cdef rota_heap_entry entry
    cdef Found found
    cdef uint32_t done = 0
    while top != NULL and top.key <= now_ns and done < 64:
        entry = top[0]
        rota_save(h, &queue.due)
        rota_heap_pop(h, &queue.due)
        found.number = rota_ref_page(entry.slot)
        found.index = rota_ref_index(entry.slot)
        found.page = rota_page_at(h, found.number)
        found.slot = rota_slot_at(h, entry.slot)
        if is_due(h, &entry, found.page, found.slot) and found.page.queue == queue.number and found.page.level < 10:
            found.queue = queue
            found.level = found.page.level
            found.lane = &queue.lanes[found.level]
            save_claim_line(h, found.lane)
            leave_ready(h, &found)
            make_ready(h, &found, order_of(h, found.slot))
        done += 1
        top = rota_heap_top(h, &queue.due)
    if done:
        rota_settle_undo(h)


cdef const rota_heap_entry *returned_top(rota_handle *h, rota_queue *queue, rota_lane *lane) noexcept nogil:
    """The oldest returned message that is still one; entries that are out of date are dropped."""
    cdef const rota_heap_entry *top = rota_heap_top(h, &lane.heap)
    cdef rota_slot *slot
    cdef rota_page *page
    while top != NULL:
        slot = rota_slot_at(h, top.slot)
        page = rota_page_at(h, rota_ref_page(top.slot))
        if (page.kind == ROTA_PAGE_CHUNK or page.kind == ROTA_PAGE_STRAGGLERS) and page.queue == queue.number \
                and slot.id == top.id and rota_slot_state(slot.word) == ROTA_SLOT_RETURNED \
                and not rota_slot_flags(slot.word) & ROTA_SLOT_CLAIMED:
            return top
        if slot.id == top.id and rota_slot_flags(slot.word) & ROTA_SLOT_HEAPED:
            set_word(h, slot, rota_slot_with_flags(slot.word, rota_slot_flags(slot.word) & ~<unsigned>ROTA_SLOT_HEAPED))
        rota_heap_pop(h, &lane.heap)
        top = rota_heap_top(h, &lane.heap)
    return NULL


cdef bint seek_cursor(rota_handle *h, rota_lane *lane) noexcept nogil:
    """Move the cursor to the next FRESH slot; False when there is none.  The claim line is saved."""
    cdef rota_page *page
    cdef uint32_t count
    if lane.appended_fresh == lane.consumed:
        return False
    if lane.cursor == 0:
        lane.cursor = lane.head
        lane.cursor_index = 0
    while lane.cursor:
        page = rota_page_at(h, lane.cursor)
        count = chunk_count(lane, lane.cursor, page)
        while lane.cursor_index < count:
            if rota_slot_state(rota_page_slot(page, lane.cursor_index).word) == ROTA_SLOT_FRESH:
                return True
            lane.cursor_index += 1
        if lane.cursor == lane.tail or page.kind != ROTA_PAGE_CHUNK:
            return False
        lane.cursor = page.next
        lane.cursor_index = 0
    return False


cdef bint has_expired(rota_handle *h, const rota_slot *slot, uint64_t now_ns) noexcept nogil:
    cdef rota_record *record
    if not rota_slot_flags(slot.word) & ROTA_SLOT_EXPIRES:
        return False
    record = rota_table_find(h, &h.control.tables[ROTA_TABLE_EXPIRY], slot.id)
    return record != NULL and record.a <= now_ns


cdef bint slot_durable(rota_handle *h, uint64_t word, uint64_t durable) noexcept nogil:
    cdef uint64_t first = h.control.segments[rota_slot_file(word) % ROTA_SEGMENT_COUNT_MAX].first_lsn
    return first - first % h.segment_size + rota_slot_cell(word) * ROTA_CELL < durable


cdef uint32_t take_range(rota_handle *h, rota_lane *lane, const Wanted *wanted, uint32_t limit, Run *run,
                         uint64_t now_ns) noexcept nogil:
    """Advance the cursor (which stands on a FRESH slot) over at most `limit` FRESH slots."""
    cdef uint64_t durable = rota_load_acquire_u64(&h.control.durable_lsn)
    cdef rota_page *page
    cdef rota_slot *slot
    cdef uint32_t taken = 0, count, here
    run.first = rota_ref(lane.cursor, lane.cursor_index)
    run.first_id = rota_slot_at(h, run.first).id
    while taken < limit and lane.cursor:
        page = rota_page_at(h, lane.cursor)
        count = chunk_count(lane, lane.cursor, page)
        if page.irregular == 0 and not wanted.durable_only:
            here = count - lane.cursor_index
            if here > limit - taken:
                here = limit - taken
            if here:
                lane.cursor_index += here
                taken += here
                run.last_id = rota_page_slot(page, lane.cursor_index - 1).id
        else:
            while taken < limit and lane.cursor_index < count:
                slot = rota_page_slot(page, lane.cursor_index)
                if rota_slot_state(slot.word) == ROTA_SLOT_FRESH:
                    if has_expired(h, slot, now_ns) \
                            or (wanted.durable_only and not slot_durable(h, slot.word, durable)):
                        return taken
                    taken += 1
                    run.last_id = slot.id
                elif rota_slot_flags(slot.word) & ROTA_SLOT_TAKEN and rota_slot_live(slot.word):
                    return taken  # a replay would take it for one of the range
                lane.cursor_index += 1
        if lane.cursor_index >= count:
            if lane.cursor == lane.tail or page.kind != ROTA_PAGE_CHUNK:
                break
            lane.cursor = page.next
            lane.cursor_index = 0
    return taken


cdef void write_record(rota_handle *h, rota_queue *queue, uint32_t index, Run *run, const Wanted *wanted,
                       unsigned flags) noexcept nogil:
    """Fill a record, PREPARED; the caller makes it ACTIVE when the cursor is stored."""
    cdef rota_claim *record = &h.claims[index]
    run.claim = index
    run.generation = generation_of(record)
    run.queue = queue.number
    record.state = ROTA_CLAIM_PREPARED
    record.kind = run.kind
    record.level = run.level
    record.flags = <uint8_t>flags
    record.queue = queue.number
    record.process = <uint16_t>h.process
    record.process_generation = h.process_generation
    record.count = run.count
    record.first_id = run.first_id
    record.last_id = run.last_id
    record.lease_deadline_ns = h.os.clock_boot_coarse_ns(h.os) + wanted.lease_ns
    record.handouts = run.handouts
    record.excused = run.excused
    record.verdict = ROTA_VERDICT_NONE
    record.fences = <uint16_t>queue.fences
    run.token_generation = wanted.token_generation
    run.token_number = wanted.token_number
    rota_failpoint(h.failpoints, ROTA_AT_CLAIM_PREPARED)
    if wanted.show:
        record.shown = record.shown | <uint32_t>(run.last_id - run.first_id + 1)


cdef void counts_of(rota_handle *h, const rota_slot *slot, Run *run) noexcept nogil:
    """How often a message was handed out before."""
    cdef const rota_record *history = NULL
    if rota_slot_flags(slot.word) & ROTA_SLOT_HISTORY:
        history = rota_table_find(h, &h.control.tables[ROTA_TABLE_HISTORY], slot.id)
    run.handouts = <uint32_t>history.a if history != NULL else 0
    run.excused = <uint32_t>(history.a >> 32) if history != NULL else 0


cdef void take_single(rota_handle *h, rota_queue *queue, rota_lane *lane, const rota_heap_entry *top,
                      Run *run) noexcept nogil:
    """The top of the heap is handed out, with its counts."""
    cdef rota_slot *slot = rota_slot_at(h, top.slot)
    cdef unsigned flags = rota_slot_flags(slot.word) & ~<unsigned>ROTA_SLOT_HEAPED
    run.first = top.slot
    run.first_id = top.id
    run.last_id = top.id
    counts_of(h, slot, run)
    rota_heap_pop(h, &lane.heap)
    set_word(h, slot, rota_slot_with_flags(slot.word, flags | ROTA_SLOT_CLAIMED))
    lane.returned -= 1


cdef int claim_one_run(rota_handle *h, rota_queue *queue, uint32_t level, const Wanted *wanted, Run *run,
                       Claimed *claimed, uint64_t now_ns) noexcept nogil:
    """One record from one lane: 1 taken, 0 nothing here, negative: stop looking."""
    cdef rota_lane *lane = &queue.lanes[level]
    cdef const rota_heap_entry *top
    cdef rota_slot *slot = NULL
    cdef bint fresh
    cdef unsigned flags = 0
    cdef uint32_t index
    save_claim_line(h, lane)
    top = returned_top(h, queue, lane) if lane.heap.size else NULL
    fresh = seek_cursor(h, lane)
    if fresh:
        slot = rota_page_slot(rota_page_at(h, lane.cursor), lane.cursor_index)
    if top == NULL and not fresh:
        return 0
    memset(run, 0, sizeof(Run))
    run.level = <uint8_t>level
    if top != NULL and (not fresh or top.key < slot.id):
        slot = rota_slot_at(h, top.slot)
        if has_expired(h, slot, now_ns):
            claimed.expired = 1
            return -1
        if rota_slot_flags(slot.word) & ROTA_SLOT_SUSPECT:
            if claimed.count or not holds_no_other(h, wanted):
                return -1
            flags = ROTA_CLAIM_SUSPECT
        run.kind = ROTA_CLAIM_SINGLE
        index = take_record(h)
        if index >= ROTA_CLAIM_COUNT:
            return -1
        run.count = 1
        take_single(h, queue, lane, top, run)
    else:
        if has_expired(h, slot, now_ns):
            claimed.expired = 1
            return -1
        run.kind = ROTA_CLAIM_RANGE
        index = take_record(h)
        if index >= ROTA_CLAIM_COUNT:
            return -1
        run.count = take_range(h, lane, wanted, wanted.count - claimed.count, run, now_ns)
        if run.count == 0:
            h.control.claim_count -= 1
            h.claims[index].next_free = h.control.claim_free
            h.control.claim_free = index + 1
            return 0
        lane.consumed += run.count
    finish_record(h, queue, index, run, wanted, flags, claimed)
    return -2 if flags & ROTA_CLAIM_SUSPECT else 1


cdef int claim_refused(rota_handle *h, rota_queue *queue, const Wanted *wanted, uint64_t *now_ns,
                       rota_error *error) noexcept nogil:
    """Whether nothing may be handed out to this process, whatever is ready.  Messages that are due become ready."""
    now_ns[0] = h.os.clock_wall_coarse_ns(h.os)
    if queue.state == ROTA_QUEUE_STOPPED:
        return rota_fail(error, ROTA_STOPPED, NULL, 0, "the queue is stopped: start() it to go on")
    if h.control.failed:
        return rota_fail(error, ROTA_LOG_FAILED, "failed", 0, "a sync failed; close all users and reopen")
    if is_older(queue, wanted.token_generation, wanted.token_number):
        return stale(queue, wanted.token_generation, wanted.token_number, error)
    if h.control.log.time_ns > now_ns[0]:
        now_ns[0] = h.control.log.time_ns
    if queue.due.size and rota_pool_room(h) >= ROOM_FOR_RETURNS:
        release_due(h, queue, now_ns[0])
    if (h.control.processes[h.process].suspect_held and not holds_no_other(h, wanted)) \
            or (queue.options.order == ROTA_ORDER_STRICT and queue.claimed):
        return ROTA_EMPTY
    return ROTA_OK


cdef int claim_locked(rota_handle *h, rota_queue *queue, const Wanted *wanted, Run *runs, Claimed *claimed,
                      rota_error *error) noexcept nogil:
    """Hand out up to wanted.count messages; ROTA_EMPTY when there is none."""
    cdef uint64_t now_ns = 0
    cdef uint32_t level
    cdef int taken = claim_refused(h, queue, wanted, &now_ns, error)
    memset(claimed, 0, sizeof(Claimed))
    if taken != ROTA_OK:
        return taken
    for level in range(9, -1, -1):
        if not queue.levels >> level & 1:
            continue
        while claimed.count < wanted.count and claimed.run_count < wanted.run_size \
                and lane_ready(&queue.lanes[level]):
            taken = claim_one_run(h, queue, level, wanted, &runs[claimed.run_count], claimed, now_ns)
            if taken <= 0:
                rota_settle_undo(h)
            if taken < 0:
                return ROTA_OK if claimed.count else ROTA_EMPTY
            if taken == 0:
                break
    return ROTA_OK if claimed.count else ROTA_EMPTY
