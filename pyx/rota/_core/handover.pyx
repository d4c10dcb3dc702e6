"""Raising the fence of a queue: the new leader writes its token, then gets what the old one had claimed.

What holds:

1. The FENCE is durable before this returns, whatever the level: also an equal one, which another may have written.
2. From its commit on nothing of an older token is admitted, so what it had claimed can go back without waiting for its
   leases: at the old places, what was shown with a counted attempt, as at the end of a lease.
3. A death between the two loses nothing: the next FENCE, also an equal one, finds those claims by their count of fences.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from engine.atomics cimport *
from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport ROTA_OP_FENCE
from engine.handle cimport rota_handle
from engine.status cimport *

from rota._core.draft cimport *
from rota._core.fence cimport split_token
from rota._core.holding cimport generation_of
from rota._core.lane cimport queue_at
from rota._core.message cimport submit_settle
from rota._core.reap cimport reap_record
from rota._core.store cimport Store


cdef int reap_stale(rota_handle *h, uint32_t number, rota_error *error) noexcept nogil:
    """What was claimed before the last raise of the fence goes back."""
    cdef rota_queue *queue = queue_at(h, number)
    cdef rota_claim *record
    cdef uint32_t index, generation
    cdef int status
    for index in range(h.control.claim_used):
        record = &h.claims[index]
        generation = generation_of(record)  # before the look: a record that changes its owner then is not touched
        if queue == NULL or record.state != ROTA_CLAIM_ACTIVE or record.queue != number \
                or record.fences == <uint16_t>queue.fences:
            continue
        status = reap_record(h, index, generation, ROTA_VERDICT_CHARGE, False, error)
        if status != ROTA_OK:
            return status
    return ROTA_OK


cdef int fence_queue(Store store, uint32_t number, uint64_t created_lsn, object token) except -1:
    """Queue.fence()."""
    cdef rota_handle *h = store.h
    cdef rota_error error
    cdef Draft draft
    cdef int status
    draft_begin(&draft, h)
    try:
        split_token(token, &draft.token_generation, &draft.token_number)
        draft_op(&draft, ROTA_OP_FENCE, 0, <uint16_t>number, 0, draft.token_generation, draft.token_number, NULL, 0)
        draft.queue_created = created_lsn
        submit_settle(store, &draft, "sync")
    finally:
        draft_end(&draft)
    rota_failpoint(h.failpoints, ROTA_AT_FENCE_COMMITTED)
    with nogil:
        rota_fetch_add_u32(&h.calls, 1)
        status = reap_stale(h, number, &error)
    rota_fetch_sub_u32(&h.calls, 1)
    if status != ROTA_OK:
        store.fail(&error)
    return 0
