"""Messages that come back: by a dead owner, by the end of a lease.  One code for the living and the open.

What holds:

1. All records of a dead owner are treated together: one shown message is charged; of several none is, all become
   suspects; those never shown go back uncounted and unlogged.  judging.pyx says which.
2. The verdict is written into each record before the commit and a repeat uses it; counts are absolute, taken from the
   record; a message that came back already is no member any more (claim.pyx), so a repeat changes nothing.
3. A message whose attempts are used up moves to its error queue in the same commit, which answers a request; when that
   queue cannot take it, it is parked: kept, not handed out, never dropped, and not answered yet.
4. An owner is dead only when its byte of the lock file can be locked.  The lock is of the open file, so threads of one
   handle would share it: one of them reaps at a time, or a late one would clear the slot of its next owner.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from engine.atomics cimport *
from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport *
from engine.lock cimport rota_fence_after_unlock
from engine.pool cimport *
from engine.scan cimport rota_op_begin, rota_op_cursor, rota_op_next
from engine.status cimport *

from rota._core.answering cimport draft_answer, is_long
from rota._core.append cimport Placed, SPACE_SETTLE
from rota._core.clean cimport reclaim
from rota._core.holding cimport RETURNS_PER_SECTION, ROOM_FOR_RETURNS, free_claim, free_members, generation_of
from rota._core.judging cimport belongs, judge, shown_members
from rota._core.draft cimport Settle, draft_begin, draft_end, draft_op, draft_seal, draft_settle
from rota._core.lane cimport *
from rota._core.slots cimport *
from rota._core.lock cimport lock_enter, lock_leave
from rota._core.moving cimport draft_move
from rota._core.provide cimport append_commit, append_pages

cdef enum:
    IDS_PER_COMMIT = 256
    ROOM_TRIES = 8


cdef void wake_queue(rota_handle *h, rota_queue *queue) noexcept nogil:
    """Wake those who wait for a message; called after the unlock.  Who spins sees the sequence change, who goes on to
    sleeping counts itself and then looks; so sleepers are looked for after the change."""
    rota_fence_after_unlock()
    if rota_load_relaxed_u32(&queue.waiters) | rota_load_relaxed_u32(&queue.spinners):
        rota_fetch_add_u32(&queue.wake_sequence, 1)
        rota_fence()
        rota_failpoint(h.failpoints, ROTA_AT_WAKE_BEFORE)
        if rota_load_relaxed_u32(&queue.waiters):
            h.os.futex_wake(h.os, &queue.wake_sequence, 0x7fffffff)


cdef void wake_draft(rota_handle *h, const Draft *draft) noexcept nogil:
    """Wake whom the operations of a commit concern."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra
    cdef rota_queue *queue
    cdef bint space = False
    rota_op_begin(&cursor, draft.bytes, <rota_commit_header *>draft.bytes)
    while rota_op_next(&cursor, &op, &extra):
        queue = queue_at(h, op.queue)
        if op.kind != ROTA_OP_PUT and op.kind != ROTA_OP_RETURN and op.kind != ROTA_OP_QUEUE \
                and op.kind != ROTA_OP_FENCE \
                and (queue == NULL or queue.options.order != ROTA_ORDER_GROUP):
            queue = NULL  # in a queue of order "group" a settlement may make the next of a key ready
        if op.kind == ROTA_OP_MOVE and queue_at(h, <uint32_t>op.a) != NULL:
            wake_queue(h, queue_at(h, <uint32_t>op.a))
        if queue != NULL:
            wake_queue(h, queue)
        if op.kind != ROTA_OP_PUT:
            space = True
    if space and rota_load_relaxed_u32(&h.control.space_waiters):
        rota_fetch_add_u32(&h.control.space_sequence, 1)
        h.os.futex_wake(h.os, &h.control.space_sequence, 0x7fffffff)


cdef bint takes_errors(rota_handle *h, rota_queue *queue, uint32_t number) noexcept nogil:
    cdef rota_queue *target = queue_at(h, number)
    return target != NULL and target != queue and target.state == ROTA_QUEUE_OPEN \
        and (target.options.max_messages == 0 or queue_live(target) < target.options.max_messages)


cdef int draft_back(rota_handle *h, Draft *draft, rota_queue *queue, uint64_t id, uint64_t handouts,
                    uint64_t excused, uint64_t due_ns, bint suspect) noexcept nogil:
    """The operation that puts one message back with these counts, or moves it to the error queue, or parks it."""
    cdef uint64_t counts
    cdef uint8_t detail = 1 if suspect else 0
    counts = handouts | excused << 32
    if queue.options.max_attempts and handouts - excused >= queue.options.max_attempts:
        if takes_errors(h, queue, queue.options.error_queue):
            draft_move(h, draft, queue.number, id, queue.options.error_queue, counts, ROTA_MOVE_ATTEMPTS)
            return draft_answer(h, draft, queue.number, id, ROTA_REPLY_FAILED)
        detail |= 2
    return draft_op(draft, ROTA_OP_RETURN, detail, queue.number, id, counts, due_ns, NULL, 0)


cdef int append_settling(rota_handle *h, Draft *draft, bint opening, Placed *placed, rota_error *error) noexcept nogil:
    """Append; where the log is full, make room first: at an open nobody else does.  Later a getter may be the one who
    is here: it does not wait for another one's job, and tries again."""
    cdef int status = append_commit(h, draft, SPACE_SETTLE, placed, error)
    cdef int tries = 0
    while status == ROTA_FULL and tries < (ROOM_TRIES if opening else 1):
        reclaim(h, opening, error)
        status = append_commit(h, draft, SPACE_SETTLE, placed, error)
        tries += 1
    return status


cdef int commit_returns(rota_handle *h, uint32_t index, const uint64_t *ids, uint32_t count, uint32_t verdict,
                        bint opening, rota_error *error) noexcept nogil:
    """Log the return of shown members of one record."""
    cdef rota_claim *record = &h.claims[index]
    cdef rota_queue *queue = queue_at(h, record.queue)
    cdef uint64_t handouts = <uint64_t>record.handouts + 1, excused = record.excused
    cdef bint suspect = verdict == ROTA_VERDICT_SUSPECT or verdict == ROTA_VERDICT_BOTH
    cdef Draft draft
    cdef Placed placed
    cdef Settle settle
    cdef uint32_t i
    cdef int status
    if verdict != ROTA_VERDICT_CHARGE and verdict != ROTA_VERDICT_BOTH:
        excused += 1
    draft_begin(&draft, h)
    memset(&settle, 0, sizeof(settle))
    settle.claim = index
    settle.generation = generation_of(record)
    settle.queue = record.queue
    settle.level = record.level
    settle.count = 1
    settle.reaper = 1
    for i in range(count):
        if is_long(h, &draft):
            break
        draft_back(h, &draft, queue, ids[i], handouts, excused, 0, suspect)
        settle.first_id = ids[i]
        settle.last_id = ids[i]
        if not opening:
            draft_settle(&draft, &settle)
    status = draft_seal(&draft)
    if status == ROTA_OK:
        status = append_settling(h, &draft, opening, &placed, error)
    if status == ROTA_OK:
        wake_draft(h, &draft)
    draft_end(&draft)
    return status


cdef int free_rest(rota_handle *h, rota_claim *record, uint32_t generation, rota_error *error) noexcept nogil:
    """What was never shown goes back, some in a section.  The lock is held before and, when this is ROTA_OK, after."""
    cdef int status
    while True:
        if rota_pool_room(h) >= ROOM_FOR_RETURNS:
            if free_members(h, record, record.first_id, record.last_id, RETURNS_PER_SECTION) == 0:
                return ROTA_OK
            rota_settle_undo(h)
            lock_leave(h)
        else:
            lock_leave(h)
            status = append_pages(h, 4 * ROOM_FOR_RETURNS, True, error)
            if status != ROTA_OK:
                return status
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        if record.state != ROTA_CLAIM_ACTIVE or generation_of(record) != generation:
            lock_leave(h)
            return ROTA_LEASE_LOST


cdef int reap_record(rota_handle *h, uint32_t index, uint32_t generation, uint32_t verdict, bint opening,
                     rota_error *error) noexcept nogil:
    """Return what one record still holds, then free it."""
    cdef uint64_t ids[256]
    cdef rota_claim *record = &h.claims[index]
    cdef rota_queue *queue
    cdef uint32_t count
    cdef int status
    while True:
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        if record.state != ROTA_CLAIM_ACTIVE or generation_of(record) != generation:
            lock_leave(h)
            return ROTA_OK
        count = shown_members(h, index, ids, IDS_PER_COMMIT, opening)
        if count == 0:
            break
        lock_leave(h)
        status = commit_returns(h, index, ids, count, verdict, opening, error)
        if status == ROTA_LEASE_LOST:
            continue  # its holder settled something meanwhile: look again
        if status != ROTA_OK:
            return status
        rota_failpoint(h.failpoints, ROTA_AT_REAP_COMMITTED)
        if opening and record.kind == ROTA_CLAIM_SINGLE:
            status = lock_enter(h, error)
            if status != ROTA_OK:
                return status
            break
    if not opening:
        status = free_rest(h, record, generation, error)
        if status != ROTA_OK:
            return ROTA_OK if status == ROTA_LEASE_LOST else status
    queue = queue_at(h, record.queue)
    if queue != NULL and not opening:
        rota_save(h, &queue.due)
        queue.claimed -= record.count
    free_claim(h, index)
    rota_settle_undo(h)
    h.control.reaped_claims += 1
    lock_leave(h)
    rota_failpoint(h.failpoints, ROTA_AT_REAP_FREED)
    if queue != NULL:
        wake_queue(h, queue)
    return ROTA_OK


cdef int reap_owner(rota_handle *h, uint32_t process, uint32_t generation, bint opening, uint32_t *reaped,
                    rota_error *error) noexcept nogil:
    cdef uint32_t index
    cdef int status = lock_enter(h, error)
    if status != ROTA_OK:
        return status
    judge(h, process, generation, opening)
    lock_leave(h)
    for index in range(h.control.claim_used):
        if belongs(h, index, process, generation):
            status = reap_record(h, index, generation_of(&h.claims[index]), h.claims[index].verdict, opening,
                                 error)
            if status != ROTA_OK:
                return status
            reaped[0] += 1
    return ROTA_OK


cdef int reap_dead(rota_handle *h, uint32_t *reaped, rota_error *error) noexcept nogil:
    """Take over from every attached process whose lock is gone.  ROTA_RETRY: another thread is at it."""
    cdef uint32_t idle = 0
    cdef int status
    if not rota_compare_exchange_u32(&h.reaping, &idle, 1):
        return ROTA_RETRY
    status = reap_slots(h, reaped, error)
    rota_store_release_u32(&h.reaping, 0)
    return status


cdef int reap_slots(rota_handle *h, uint32_t *reaped, rota_error *error) noexcept nogil:
    cdef uint32_t index
    cdef rota_process *process
    cdef int status, result
    for index in range(ROTA_PROCESS_COUNT_MAX):
        process = &h.control.processes[index]
        if process.state == 0 or index == h.process:
            continue
        result = h.os.lock_range(h.os, h.lock_fd, 1 + index, 1, True)
        if result < 0:
            continue  # alive, or another one is reaping it
        status = ROTA_OK
        if process.state:
            status = reap_owner(h, index, process.generation, False, reaped, error)
            if status == ROTA_OK:
                process.state = 0
        h.os.unlock_range(h.os, h.lock_fd, 1 + index, 1)
        if status != ROTA_OK:
            return status
    return ROTA_OK


cdef int reap_leases(rota_handle *h, uint32_t *reaped, rota_error *error) noexcept nogil:
    """Claims whose lease ended: what was shown is charged, the rest goes back free."""
    cdef uint64_t now_ns = h.os.clock_boot_ns(h.os)
    cdef uint32_t index, generation
    cdef bint over
    cdef int status
    for index in range(h.control.claim_used):
        if h.claims[index].state != ROTA_CLAIM_ACTIVE or h.claims[index].lease_deadline_ns > now_ns:
            continue
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        over = h.claims[index].state == ROTA_CLAIM_ACTIVE and h.claims[index].lease_deadline_ns <= now_ns
        generation = generation_of(&h.claims[index])
        lock_leave(h)  # no verdict in the record: should its owner die, all its records are judged together
        if over:
            status = reap_record(h, index, generation, ROTA_VERDICT_CHARGE, False, error)
            if status != ROTA_OK:
                return status
            reaped[0] += 1
    return ROTA_OK


cdef int reap_at_open(rota_handle *h, rota_error *error) noexcept nogil:
    """After a rebuild: every owner is dead; what was shown is charged, all else lies in the lanes already."""
    cdef uint32_t index, other, used = 0, reaped = 0
    cdef rota_claim *record
    cdef int status
    for index in range(ROTA_CLAIM_COUNT):
        record = &h.claims[index]
        if record.state == ROTA_CLAIM_ACTIVE and (record.queue >= ROTA_QUEUE_COUNT_MAX or record.level > 9
                                                  or record.first_id > record.last_id):
            record.state = ROTA_CLAIM_FREE  # damaged: it names nothing
        if record.state != ROTA_CLAIM_FREE:
            used = index + 1
        if record.state == ROTA_CLAIM_PREPARED:
            record.state = ROTA_CLAIM_FREE
    h.control.claim_used = used
    for index in range(used):
        if h.claims[index].state == ROTA_CLAIM_ACTIVE:
            h.control.claim_count += 1
            h.control.processes[h.claims[index].process % ROTA_PROCESS_COUNT_MAX].claims += 1
    for index in range(used):
        if h.claims[index].state == ROTA_CLAIM_ACTIVE:
            status = reap_owner(h, h.claims[index].process, h.claims[index].process_generation, True, &reaped, error)
            if status != ROTA_OK:
                return status
    for index in range(used):
        h.claims[index].next_free = 0
    h.control.claim_free = 0
    h.control.claim_used = 0
    h.control.claim_count = 0
    h.recovery.reaped_claims = reaped
    return ROTA_OK


cdef int release_own(rota_handle *h, rota_error *error) noexcept nogil:
    """At an orderly close: what this process still holds goes back, not the messages' fault."""
    cdef uint32_t index
    cdef int status
    for index in range(h.control.claim_used):
        if belongs(h, index, h.process, h.process_generation):
            status = reap_record(h, index, generation_of(&h.claims[index]), ROTA_VERDICT_RELEASE, False, error)
            if status != ROTA_OK:
                return status
    return ROTA_OK
