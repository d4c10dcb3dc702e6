# Looking at the files of a repository without opening it.
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.recovery cimport recovery
from rota._core.walk cimport log_position

cdef class Directory:
    cdef rota_handle *h
    cdef void take_manifest(self) noexcept

cdef class Inspector:
    cdef rota_handle *h  # of the directory
    cdef recovery r
    cdef log_position position
    cdef rota_error error
    cdef Directory directory

cdef int check(int status, rota_error *error) except -1
