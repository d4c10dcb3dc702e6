# Fencing tokens: who may still act on a queue.
from libc.stdint cimport uint64_t

from engine.control cimport rota_queue
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.draft cimport Draft

cdef int split_token(object token, uint64_t *generation, uint64_t *number) except -1
cdef object join_token(uint64_t generation, uint64_t number)
cdef int stale(const rota_queue *queue, uint64_t generation, uint64_t number, rota_error *error) noexcept nogil
cdef int admit_fences(rota_handle *h, const Draft *draft, rota_error *error) noexcept nogil


cdef inline bint is_older(const rota_queue *queue, uint64_t generation, uint64_t number) noexcept nogil:
    """Whether a token (0 and 0: none) is below the fence of the queue; an equal one is not."""
    return generation < queue.fence_generation \
        or (generation == queue.fence_generation and number < queue.fence_number)
