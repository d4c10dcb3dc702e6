"""Fencing tokens: who may still act on a queue.

What holds, under the main lock:

1. A token is 128 bits, compared as (generation, number); 0 is none.  The fence of a queue never goes back: a FENCE that
   is older than the last one is refused like any other commit.
2. A commit that names a fenced queue is refused when its token is older.  Without a token it may put, and do what an
   operator does; it may not settle what was claimed, and nothing is handed out to it.
3. Who takes over from the dead, and the engine's own copies, carry no token and settle nothing of a living holder: they
   pass.
4. A claim remembers how often the fence of its queue had been raised.  After a FENCE those with another count go back to
   their places (handover.pyx).

Kleppmann, "How to do distributed locking", 2016; Burrows, "The Chubby lock service", OSDI 2006 (sequencers).
"""

from libc.stdint cimport uint32_t, uint64_t

from engine.control cimport *
from engine.format cimport *
from engine.scan cimport rota_op_begin, rota_op_cursor, rota_op_next
from engine.status cimport *

from rota._core.lane cimport queue_at


cdef int split_token(object token, uint64_t *generation, uint64_t *number) except -1:
    """The halves of a token.  Raises TypeError, ValueError."""
    if not isinstance(token, int):
        raise TypeError(f"a token is an int, not {type(token).__name__}")
    if not 0 < token < 1 << 128:
        raise ValueError(f"a token is above 0 and below 2**128, not {token}")
    generation[0] = token >> 64
    number[0] = token & 0xffffffffffffffff
    return 0


cdef object join_token(uint64_t generation, uint64_t number):
    """The token of these halves, None for none."""
    return (<object>generation << 64 | <object>number) or None


cdef int stale(const rota_queue *queue, uint64_t generation, uint64_t number, rota_error *error) noexcept nogil:
    if generation | number:
        return rota_fail_compared(error, ROTA_STALE_LEADER, NULL, 0, queue.fence_number, number,
                                  "another leader fenced the queue with a higher token: stop, nothing was changed")
    return rota_fail_compared(error, ROTA_STALE_LEADER, NULL, 0, queue.fence_number, 0,
                              "the queue is fenced: only its leader, by its token, claims and settles; others may put")


cdef int admit_fences(rota_handle *h, const Draft *draft, rota_error *error) noexcept nogil:
    """Whether the token of a commit is as high as the fence of each queue that it names."""
    cdef uint64_t generation = draft.token_generation, number = draft.token_number
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra
    cdef const rota_queue *queue
    cdef uint32_t i
    for i in range(draft.settle_count):
        queue = queue_at(h, draft.settles[i].queue)
        if queue != NULL and not draft.settles[i].reaper and is_older(queue, generation, number):
            return stale(queue, generation, number, error)
    if (generation | number) == 0:
        return ROTA_OK
    rota_op_begin(&cursor, draft.bytes, <rota_commit_header *>draft.bytes)
    cursor.left = draft.op_bytes
    cursor.count = draft.op_count
    while rota_op_next(&cursor, &op, &extra):
        queue = queue_at(h, op.queue)
        if queue != NULL and is_older(queue, generation, number):
            return stale(queue, generation, number, error)
    return ROTA_OK
