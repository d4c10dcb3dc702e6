"""Waiting for a message: one attempt to claim, and what is done before the next.

What holds: before a sleep the waiter counts itself and looks again, so no wake-up is lost; it sleeps a slice at most, and
takes over from dead owners meanwhile.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.atomics cimport *
from engine.control cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.claim cimport claim_locked
from rota._core.lane cimport queue_ready
from rota._core.lock cimport lock_leave
from rota._core.reap cimport reap_dead, sweep_expired
from rota._core.store cimport now

cdef enum:
    SLICE_NS = 50000000


cdef int claim_attempt(rota_handle *h, rota_queue *queue, const Wanted *wanted, Run *runs, Claimed *claimed, int locked,
                       rota_error *error) noexcept nogil:
    cdef int status
    if locked != ROTA_OK:
        return locked
    status = claim_locked(h, queue, wanted, runs, claimed, error)
    lock_leave(h)
    return status


cdef uint64_t arrivals(const rota_queue *queue) noexcept nogil:
    """Changes whenever a message arrives or comes back, ready or not for this process."""
    cdef uint64_t sum = 0
    cdef uint32_t level
    for level in range(10):
        sum += queue.lanes[level].appended + queue.lanes[level].returned
    return sum


cdef int wait_ready(rota_handle *h, rota_queue *queue, bint expired, uint32_t sequence, uint64_t seen,
                    double deadline, rota_error *error) noexcept nogil:
    """Do what may bring a message, then sleep until one is put, at most a slice."""
    cdef uint32_t done = 0
    cdef int status
    cdef double left = deadline - now() if deadline >= 0 else 0.05
    cdef int64_t slice_ns = SLICE_NS
    if expired:
        return sweep_expired(h, queue, &done, error)
    if left < 0.05:
        slice_ns = <int64_t>(left * 1e9) if left > 0 else 0
    if queue.due.size:
        slice_ns = slice_ns if slice_ns < 5000000 else 5000000
    rota_fetch_add_u32(&queue.waiters, 1)
    rota_fence()
    if rota_load_acquire_u32(&queue.wake_sequence) == sequence and arrivals(queue) == seen:
        h.os.futex_wait(h.os, &queue.wake_sequence, sequence, slice_ns)
    rota_fetch_sub_u32(&queue.waiters, 1)
    if queue_ready(queue) == 0 and h.control.claim_count:
        status = reap_dead(h, &done, error)
        if status != ROTA_OK:
            return status
    return ROTA_RETRY
