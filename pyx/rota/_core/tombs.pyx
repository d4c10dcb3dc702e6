"""What a kill changes under the lock: the message ends, its holder's claim holds one less, a tombstone stays.

What holds:

1. A KILL is admitted only while its message lives, so of a kill and a commit that settle one message one comes first and
   the other is refused.
2. A tombstone is kept in the place id % 65536, so the last 65,536 ids have theirs; it is there as far as the log from
   the checkpoint tells.
3. A claim that held the message holds one less from the same section on, is marked, and its acks name ids; one that
   holds nothing more is free.  While the lanes are rebuilt there are no claims to change: their owners are dead.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport *
from engine.pool cimport *
from engine.scan cimport *
from engine.status cimport *

from rota._core.holding cimport free_claim
from rota._core.lane cimport Found, find, queue_at
from rota._core.slots cimport ahead_of_cursor, settle_slot


cdef bint leave_claim(rota_handle *h, const Found *found) noexcept nogil:
    """A claim that holds this message holds it no more: True.  Records in use are looked through: few, whatever waits."""
    cdef unsigned state = rota_slot_state(found.slot.word)
    cdef uint64_t id = found.slot.id
    cdef unsigned kind = ROTA_CLAIM_RANGE
    cdef rota_claim *record
    cdef uint32_t index
    if state == ROTA_SLOT_RETURNED and rota_slot_flags(found.slot.word) & ROTA_SLOT_CLAIMED:
        kind = ROTA_CLAIM_SINGLE
    elif state != ROTA_SLOT_FRESH or ahead_of_cursor(h, found):
        return False
    for index in range(h.control.claim_used):
        record = &h.claims[index]
        if record.state == ROTA_CLAIM_ACTIVE and record.queue == found.queue.number and record.kind == kind \
                and record.first_id <= id <= record.last_id \
                and (kind == ROTA_CLAIM_SINGLE or record.level == found.level):
            rota_save(h, record)
            rota_save(h, &found.queue.due)
            record.flags |= ROTA_CLAIM_BROKEN | ROTA_CLAIM_KILLED
            record.count -= 1
            found.queue.claimed -= 1
            if record.count == 0:
                free_claim(h, index)
            return True
    return False


cdef void apply_kill(rota_handle *h, const rota_op *op) noexcept nogil:
    cdef rota_queue *queue = queue_at(h, op.queue)
    cdef uint64_t *tombstone = &h.control.tombstones[op.id % ROTA_TOMBSTONE_COUNT]
    cdef Found found
    cdef bint held = False
    if queue != NULL and find(h, queue, op.id, &found) and rota_slot_live(found.slot.word):
        held = h.control.state == ROTA_CONTROL_READY and leave_claim(h, &found)
        settle_slot(h, &found, ROTA_SLOT_KILLED)
    rota_save(h, tombstone)
    tombstone[0] = op.id | (ROTA_TOMBSTONE_HELD if held else 0)
    h.control.kills += 1  # not undone: a redo counts twice, and the open transactions look once more
    rota_failpoint(h.failpoints, ROTA_AT_KILL_APPLIED)


cdef bint is_free(rota_handle *h, const rota_queue *queue, uint64_t id) noexcept nogil:
    """Whether it lives there and nobody holds it."""
    cdef Found found
    if queue == NULL or not find(h, <rota_queue *>queue, id, &found) or not rota_slot_live(found.slot.word):
        return False
    if rota_slot_state(found.slot.word) == ROTA_SLOT_FRESH:
        return ahead_of_cursor(h, &found)
    return not rota_slot_flags(found.slot.word) & ROTA_SLOT_CLAIMED


cdef int admit_expiry(rota_handle *h, const rota_op *op, const uint8_t *extra, rota_error *error) noexcept nogil:
    """EXPIRE, or a MOVE of what expired: all of them are free."""
    cdef rota_queue *queue = queue_at(h, op.queue)
    cdef uint64_t id = op.id, count = op.a if op.kind == ROTA_OP_EXPIRE else 1, i
    for i in range(count):
        if op.kind == ROTA_OP_EXPIRE:
            memcpy(&id, extra + 8 * i, 8)
        if not is_free(h, queue, id):
            return rota_fail_compared(error, ROTA_CONFLICT, NULL, 0, id, 0,
                                      "the message that expired ended, moved or is held; nothing was changed")
    return ROTA_OK


cdef int admit_ends(rota_handle *h, const Draft *draft, rota_error *error) noexcept nogil:
    """Whether each message that is to be killed lives where the operation says, and each that expired is free."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra
    cdef rota_queue *queue
    cdef Found found
    cdef int status
    rota_op_begin(&cursor, draft.bytes, <rota_commit_header *>draft.bytes)
    cursor.left = draft.op_bytes
    cursor.count = draft.op_count
    while rota_op_next(&cursor, &op, &extra):
        if op.kind == ROTA_OP_EXPIRE or (op.kind == ROTA_OP_MOVE and op.detail == ROTA_MOVE_EXPIRED):
            status = admit_expiry(h, &op, extra, error)
            if status != ROTA_OK:
                return status
        if op.kind != ROTA_OP_KILL:
            continue
        queue = queue_at(h, op.queue)
        if queue == NULL or not find(h, queue, op.id, &found) or not rota_slot_live(found.slot.word):
            return rota_fail_compared(error, ROTA_CONFLICT, NULL, 0, op.id, 0,
                                      "the message that was to be killed ended or moved meanwhile; nothing was changed")
    return ROTA_OK
