"""Messages that expired: to the error queue if there is one, else they end; requests among them are answered.

What holds: the commit is admitted only while each of them lives and nobody holds it, so of two sweeps, or a sweep and a
claim, one has the message, and one reply is given.
"""

from libc.stdint cimport uint32_t, uint64_t

from engine.atomics cimport *
from engine.control cimport *
from engine.format cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.answering cimport draft_answer, is_long
from rota._core.append cimport Placed
from rota._core.draft cimport Draft, draft_begin, draft_end, draft_op, draft_seal
from rota._core.lane cimport *
from rota._core.lock cimport lock_enter, lock_leave
from rota._core.moving cimport draft_move
from rota._core.reap cimport append_settling, takes_errors, wake_draft
from rota._core.slots cimport *

cdef enum:
    SWEPT_MAX = 1000


cdef int list_expired(rota_handle *h, rota_queue *queue, uint64_t *ids, uint32_t *listed,
                      rota_error *error) noexcept nogil:
    """The expired messages that nobody holds, at most 1000."""
    cdef uint64_t now_ns = h.os.clock_wall_ns(h.os)
    cdef rota_lane *lane
    cdef rota_page *page
    cdef rota_slot *slot
    cdef rota_record *record
    cdef Found found
    cdef uint32_t level, number, i, count = 0
    cdef int status = lock_enter(h, error)
    if status != ROTA_OK:
        return status
    if h.control.log.time_ns > now_ns:
        now_ns = h.control.log.time_ns
    for level in range(10):
        lane = &queue.lanes[level]
        number = lane.head
        while number and count < SWEPT_MAX:
            page = rota_page_at(h, number)
            if page.kind != ROTA_PAGE_CHUNK:
                break
            if page.min_expiry_ns <= now_ns:
                for i in range(chunk_count(lane, number, page)):
                    slot = rota_page_slot(page, i)
                    if count >= SWEPT_MAX or not rota_slot_live(slot.word) \
                            or not rota_slot_flags(slot.word) & ROTA_SLOT_EXPIRES:
                        continue
                    found.page, found.number, found.index = page, number, i
                    found.slot, found.lane, found.queue, found.level = slot, lane, queue, level
                    record = rota_table_find(h, &h.control.tables[ROTA_TABLE_EXPIRY], slot.id)
                    if record == NULL or record.a > now_ns or rota_slot_flags(slot.word) & ROTA_SLOT_CLAIMED \
                            or (rota_slot_state(slot.word) == ROTA_SLOT_FRESH and not ahead_of_cursor(h, &found)):
                        continue
                    ids[count] = slot.id
                    count += 1
            number = page.next
    lock_leave(h)
    listed[0] = count
    return ROTA_OK


cdef uint32_t draft_expired(rota_handle *h, Draft *draft, rota_queue *queue, const uint64_t *ids,
                            uint32_t count) noexcept nogil:
    """Set aside so many of them as one commit takes with their replies: how many."""
    cdef bint is_moved = takes_errors(h, queue, queue.options.error_queue)
    cdef uint32_t i = 0
    while i < count and not is_long(h, draft):
        if is_moved:
            draft_move(h, draft, queue.number, ids[i], queue.options.error_queue, 0, ROTA_MOVE_EXPIRED)
        draft_answer(h, draft, queue.number, ids[i], ROTA_REPLY_EXPIRED)
        i += 1
    if not is_moved:
        draft_op(draft, ROTA_OP_EXPIRE, 0, queue.number, 0, i, 0, ids, i * 8)
    return i


cdef int sweep_expired(rota_handle *h, rota_queue *queue, uint32_t *expired, rota_error *error) noexcept nogil:
    """End the expired messages that nobody holds, at most 1000; `expired`: how many there were, 0 when it is done."""
    cdef uint64_t ids[SWEPT_MAX]
    cdef Draft draft
    cdef Placed placed
    cdef uint32_t count = 0
    cdef int status = list_expired(h, queue, ids, &count, error)
    expired[0] = count
    if status != ROTA_OK or count == 0:
        return status
    draft_begin(&draft, h)
    draft_expired(h, &draft, queue, ids, count)
    status = draft_seal(&draft)
    if status == ROTA_OK:
        status = append_settling(h, &draft, False, &placed, error)
    if status == ROTA_OK:
        wake_draft(h, &draft)
    draft_end(&draft)
    if status == ROTA_CONFLICT or status == ROTA_NOT_FOUND:  # one ended, is held, or its reply has no queue any more
        return ROTA_OK
    return status
