# Group commit: one leads a sync for all.
from libc.stdint cimport uint64_t

from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int sync_step(rota_handle *h, uint64_t lsn, uint64_t wait_ns, bint patient, rota_error *error) noexcept nogil
cdef int sync_to(rota_handle *h, uint64_t lsn, rota_error *error) noexcept nogil
cdef void sync_prepare(rota_handle *h) noexcept nogil
cdef int fail_log(rota_handle *h, rota_error *error) noexcept nogil
cdef void wake_all(rota_handle *h) noexcept nogil
