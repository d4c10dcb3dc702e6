# Attaching a process to a repository, and detaching it.
from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int attach(rota_handle *h, bint create, rota_error *error) noexcept nogil
cdef int detach(rota_handle *h, bint orderly, rota_error *error) noexcept nogil
