"""What a claim in user hands asks of the main lock: more time, a mark of what was shown, an unlogged return.

What holds: the lock is taken by slices, with a look at signals between; a claim that ended meanwhile is LeaseLost.
"""

from libc.stdint cimport uint32_t, uint64_t

from engine.atomics cimport *
from engine.control cimport *
from engine.handle cimport rota_handle
from engine.status cimport *

from rota._core.claim cimport Run
from rota._core.holding cimport ROOM_FOR_RETURNS, extend_locked, return_unshown_locked, show
from rota._core.lane cimport queue_at
from rota._core.lock cimport lock_leave, lock_slice
from rota._core.provide cimport append_pages
from rota._core.store cimport Store


cdef uint64_t queue_lease(rota_handle *h, uint32_t number) noexcept nogil:
    cdef rota_queue *queue = queue_at(h, number)
    return queue.options.lease_ns if queue != NULL else 0


cdef int extend(Store store, const Run *run, uint64_t id, uint64_t lease_ns,
                rota_error *error) except 1:
    """Let the lease of a claim end so long from now."""
    cdef rota_handle *h = store.h
    cdef int status = ROTA_RETRY, slices = 0
    while store.again(&status, &slices, error):
        with nogil:
            rota_fetch_add_u32(&h.calls, 1)
            status = lock_slice(h, error)
            if status == ROTA_OK:
                status = extend_locked(h, run, id, lease_ns, error)
                lock_leave(h)
        rota_fetch_sub_u32(&h.calls, 1)
    return status


cdef int mark_shown(Store store, const Run *run, uint64_t upto_id) except -1:
    cdef rota_error error
    cdef rota_handle *h = store.h
    cdef int status = show(h, run, upto_id, queue_lease(h, run.queue), &error)
    if status == ROTA_RETRY:  # half of the lease is gone: showing restarts it
        status = extend(store, run, upto_id, queue_lease(h, run.queue), &error)
    if status != ROTA_OK:
        store.fail(&error)
    return 0


cdef int return_unshown(Store store, const Run *run) except -1:
    """Messages of a claim that nobody was shown go back, by a change of their slots.  Raises LeaseLost."""
    cdef rota_handle *h = store.h
    cdef rota_error error
    cdef int status, slices = 0
    cdef bint grows = False
    status = 1
    while status > 0 or store.again(&status, &slices, &error):
        if status > 0:
            slices = 0
        with nogil:
            rota_fetch_add_u32(&h.calls, 1)
            status = append_pages(h, 4 * ROOM_FOR_RETURNS, False, &error) if grows else ROTA_OK
            if status == ROTA_OK:
                status = lock_slice(h, &error)
                grows = False
                if status == ROTA_OK:
                    status = return_unshown_locked(h, run, run.first_id, run.last_id, &error)
                    grows = status == ROTA_RETRY
                    lock_leave(h)
            elif status == ROTA_TIMEOUT:
                status = ROTA_RETRY
        rota_fetch_sub_u32(&h.calls, 1)
    if status < 0:
        store.fail(&error)
    return 0
