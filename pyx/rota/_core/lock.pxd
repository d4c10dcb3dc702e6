# The main lock: taken, and repaired after the death of its owner.
from libc.stdint cimport uint32_t, uint64_t

from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int lock_try(rota_handle *h, rota_error *error) noexcept nogil
cdef int lock_slice(rota_handle *h, rota_error *error) noexcept nogil
cdef int lock_enter(rota_handle *h, rota_error *error) noexcept nogil
cdef void lock_leave(rota_handle *h) noexcept nogil
cdef int lock_taken(rota_handle *h, int result, rota_error *error) noexcept nogil
cdef int lock_refused(rota_handle *h, rota_error *error) noexcept nogil

cdef enum:
    LOCK_SLICE_NS = 50000000
    LOCK_SLICES = 100     # a holder that is stopped is named after five seconds
