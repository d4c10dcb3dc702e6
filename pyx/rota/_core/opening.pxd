# The files of a repository, opened and let go; the way through the gate.
from libc.stdint cimport uint32_t

from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef const uint32_t *fork_generation() noexcept nogil
cdef bint has_manifest(str path) except -1
cdef int open_files(rota_handle *h, str path, dict options) except -1
cdef int close_files(rota_handle *h) except -1
cdef int fill_manifest(rota_handle *h, dict options) except -1
cdef int attach_by_slices(rota_handle *h, bint create, rota_error *error) except 1
cdef int detach_by_slices(rota_handle *h, bint orderly, rota_error *error) except 1
