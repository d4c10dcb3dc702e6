# Looking at the files of a repository without opening it.
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.recovery cimport recovery
from rota._core.walk cimport log_position

cdef class Inspection:
    cdef rota_handle *h
    cdef recovery r
    cdef log_position position
    cdef rota_error error
    cdef int check(self, int status) except -1
    cdef void take_manifest(self) noexcept

cdef class Inspector(Inspection):
    pass

cdef class Builder(Inspection):
    pass
