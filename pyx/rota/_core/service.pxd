# The native thread of an open repository.
from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int service_start(rota_handle *h, rota_error *error) noexcept nogil
cdef void service_stop(rota_handle *h) noexcept nogil
