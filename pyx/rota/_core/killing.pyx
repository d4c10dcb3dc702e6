"""Killing by id: where a message is, whoever holds it, and what to answer when it is nowhere.

What holds:

1. A message is found by its id alone: in the queue that was asked, or where it was moved to.
2. True: it was killed, by this call or an earlier one that is still known.  False: it ended otherwise before, and what
   ended it is durable.  NotFound: it never was, or nothing is known of it any more.
3. Whatever the level, the answer is given when it is durable.

Bernstein, Hsu and Mann, "Implementing Recoverable Requests Using Queues", SIGMOD 1990: Kill_Element.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from engine.atomics cimport *
from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.answering cimport draft_answer
from rota._core.draft cimport *
from rota._core.lane cimport Found, find, find_in_lane, queue_at
from rota._core.lock cimport lock_leave, lock_slice
from rota._core.message cimport submit_settle
from rota._core.store cimport Store
from rota._core.tombs cimport was_killed

from rota import errors


cdef bint lives_at(rota_handle *h, uint32_t number, uint64_t id) noexcept nogil:
    cdef rota_queue *queue = queue_at(h, number)
    cdef Found found
    return queue != NULL and find(h, queue, id, &found) and rota_slot_live(found.slot.word)


cdef bint has_slot(rota_handle *h, uint32_t number, uint64_t id) noexcept nogil:
    """Whether a slot of this queue still tells of it, in whatever state."""
    cdef rota_queue *queue = queue_at(h, number)
    cdef Found found
    cdef uint32_t level
    if queue == NULL:
        return False
    for level in range(10):
        if queue.lanes[level].tail and find_in_lane(h, queue, level, id, &found):
            return True
    return False


cdef int locate_locked(rota_handle *h, uint32_t number, uint64_t id, uint32_t *where) noexcept nogil:
    cdef rota_record *record
    cdef uint64_t next_id = h.control.log.next_id
    where[0] = number
    if lives_at(h, number, id):
        return MESSAGE_LIVE
    record = rota_table_find(h, &h.control.tables[ROTA_TABLE_STRAGGLERS], id)
    if record != NULL and lives_at(h, <uint32_t>record.b, id):
        where[0] = <uint32_t>record.b
        return MESSAGE_LIVE
    if was_killed(h, id):
        return MESSAGE_KILLED
    if id == 0 or id >= next_id:
        return MESSAGE_UNKNOWN
    if has_slot(h, number, id) or (id >= h.control.life_id and id + ROTA_TOMBSTONE_COUNT >= next_id):
        return MESSAGE_ENDED
    return MESSAGE_UNKNOWN


cdef int locate(Store store, uint32_t queue, uint64_t id, uint32_t *where) except -1:
    """What is known of a message that was asked for by this queue; `where`: the queue that has it now."""
    cdef rota_handle *h = store.h
    cdef rota_error error
    cdef int status = ROTA_RETRY, slices = 0, found = MESSAGE_UNKNOWN
    while store.again(&status, &slices, &error):
        with nogil:
            rota_fetch_add_u32(&h.calls, 1)
            status = lock_slice(h, &error)
            if status == ROTA_OK:
                found = locate_locked(h, queue, id, where)
                lock_leave(h)
        rota_fetch_sub_u32(&h.calls, 1)
    if status != ROTA_OK:
        store.fail(&error)
    rota_failpoint(h.failpoints, ROTA_AT_KILL_LOCATED)
    return found


cdef object kill_message(Store store, uint32_t queue, str name, uint64_t id):
    """Queue.kill()."""
    cdef uint32_t where = queue
    cdef int found
    cdef Draft draft
    while True:
        found = locate(store, queue, id, &where)
        if found != MESSAGE_LIVE:
            store.settle_seen("sync")  # whatever ended it
            if found == MESSAGE_UNKNOWN:
                raise errors.NotFound(f"the queue {name!r} has no message {id}, or nothing is known of it any more",
                                      path=store.path)
            return found == MESSAGE_KILLED
        draft_begin(&draft, store.h)
        try:
            draft_op(&draft, ROTA_OP_KILL, 0, <uint16_t>where, id, 0, 0, NULL, 0)
            draft_answer(store.h, &draft, where, id, ROTA_REPLY_CANCELLED)
            submit_settle(store, &draft, "sync")
        except (errors.Conflict, errors.NotFound):
            continue  # it ended, or was moved, or a queue was destroyed: look again
        finally:
            draft_end(&draft)
        return True
