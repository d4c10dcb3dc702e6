# The native thread of an open repository.
from libc.stdint cimport uint64_t

from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int service_start(rota_handle *h, rota_error *error) noexcept nogil
cdef void service_stop(rota_handle *h) noexcept nogil
cdef void service_owe(rota_handle *h, uint64_t lsn) noexcept nogil
