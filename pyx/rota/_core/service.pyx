"""The service thread: placeholder until it is written here."""

from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int service_start(rota_handle *h, rota_error *error) noexcept nogil:
    return 0
cdef void service_stop(rota_handle *h) noexcept nogil:
    pass
