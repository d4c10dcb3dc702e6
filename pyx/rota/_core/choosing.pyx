"""Hand-outs of a message that was chosen: by its id, or as the first of a list of the index.

What holds, under the main lock:

1. Only what is ready is taken, as claim.pyx has it: FRESH ahead of the cursor, or RETURNED and not CLAIMED.
2. A FRESH slot leaves FRESH for good and is TAKEN.  The log does not know that, and a replay has the slot FRESH again;
   so no range is taken across it while it lives (take_range), or the ack of the range would settle it there.
3. The entry of a RETURNED message stays in the heap, out of date; the slot is HEAPED, so a return pushes no second one.
4. A queue of order "strict" hands out in its order only.
"""

from libc.string cimport memset

from engine.atomics cimport *
from engine.control cimport *
from engine.format cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.claim cimport *
from rota._core.index cimport posting_at, values_of
from rota._core.lane cimport *
from rota._core.slots cimport *


cdef bint is_ready(rota_handle *h, const Found *found) noexcept nogil:
    cdef unsigned state = rota_slot_state(found.slot.word)
    if state == ROTA_SLOT_FRESH:
        return ahead_of_cursor(h, found)
    return state == ROTA_SLOT_RETURNED and not rota_slot_flags(found.slot.word) & ROTA_SLOT_CLAIMED


cdef int take(rota_handle *h, Found *found, const Wanted *wanted, Run *run, Claimed *claimed) noexcept nogil:
    """Hand out one ready message: 1, or 0 when this process may not have it or no record is free."""
    cdef unsigned flags = rota_slot_flags(found.slot.word), claim_flags = 0
    cdef uint32_t index
    if flags & ROTA_SLOT_SUSPECT:
        if not holds_no_other(h, wanted):
            return 0
        claim_flags = ROTA_CLAIM_SUSPECT
    index = take_record(h)
    if index >= ROTA_CLAIM_COUNT:
        rota_settle_undo(h)
        return 0
    memset(run, 0, sizeof(Run))
    run.level = <uint8_t>found.level
    run.kind = ROTA_CLAIM_SINGLE
    run.count = 1
    run.first = rota_ref(found.number, found.index)
    run.first_id = run.last_id = found.slot.id
    counts_of(h, found.slot, run)
    save_claim_line(h, found.lane)
    if rota_slot_state(found.slot.word) == ROTA_SLOT_FRESH:
        flags |= ROTA_SLOT_TAKEN
    leave_ready(h, found)
    set_word(h, found.slot, rota_slot_with_flags(rota_slot_with_state(found.slot.word, ROTA_SLOT_RETURNED),
                                                 flags | ROTA_SLOT_CLAIMED))
    finish_record(h, found.queue, index, run, wanted, claim_flags, claimed)
    return 1


cdef int consider(rota_handle *h, Found *found, const Wanted *wanted, Run *run, Claimed *claimed,
                  uint64_t now_ns) noexcept nogil:
    """Take a message if it is ready: 1 taken, 0 not, -1 when expired ones must be swept first."""
    if not is_ready(h, found):
        return 0
    if has_expired(h, found.slot, now_ns):
        claimed.expired = 1
        return -1
    if wanted.durable_only and not slot_durable(h, found.slot.word, rota_load_acquire_u64(&h.control.durable_lsn)):
        return 0
    return take(h, found, wanted, run, claimed)


cdef int claim_from_list(rota_handle *h, rota_queue *queue, uint32_t level, const Wanted *wanted, Run *run,
                         Claimed *claimed, uint64_t now_ns) noexcept nogil:
    """The first message of a list that is ready; those that others hold are passed over."""
    cdef const rota_record *values = values_of(h, queue.number, level, wanted.term)
    cdef const rota_record *posting
    cdef rota_slot_ref slot = values.a if values != NULL else 0
    cdef uint64_t steps = values.c if values != NULL else 0
    cdef Found found
    cdef int taken
    while slot and steps:
        found_at(h, queue, level, slot, &found)
        taken = consider(h, &found, wanted, run, claimed, now_ns)
        if taken != 0:
            return taken
        posting = posting_at(h, slot, <uint32_t>(wanted.term & 15))
        slot = posting.c if posting != NULL else 0
        steps -= 1
    return 0


cdef int claim_chosen(rota_handle *h, rota_queue *queue, const Wanted *wanted, Run *run, Claimed *claimed,
                      rota_error *error) noexcept nogil:
    """Hand out the message of wanted.id, or the first of the list of wanted.term, high priorities first."""
    cdef uint64_t now_ns = 0
    cdef Found found
    cdef int level, taken = 0
    cdef int status = claim_refused(h, queue, wanted, &now_ns, error)
    memset(claimed, 0, sizeof(Claimed))
    if status != ROTA_OK:
        return status
    if queue.options.order == ROTA_ORDER_STRICT:
        return rota_fail(error, ROTA_STATE, NULL, 0, "a queue of order 'strict' hands out in its order only")
    if wanted.id:
        if find(h, queue, wanted.id, &found):
            taken = consider(h, &found, wanted, run, claimed, now_ns)
    else:
        for level in range(9, -1, -1):
            if lane_ready(&queue.lanes[level]) and taken == 0:
                taken = claim_from_list(h, queue, <uint32_t>level, wanted, run, claimed, now_ns)
    return ROTA_OK if taken > 0 else ROTA_EMPTY
