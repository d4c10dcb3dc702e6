# The control and the claims file: create, map, check, grow.
from libc.stdint cimport uint32_t, uint64_t

from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef uint64_t control_window(uint64_t capacity) noexcept nogil
cdef int control_build(rota_handle *h, rota_error *error) noexcept nogil
cdef int control_map(rota_handle *h, rota_error *error) noexcept nogil
cdef void control_unmap(rota_handle *h) noexcept nogil
cdef int pool_grow(rota_handle *h, uint32_t large_pages, rota_error *error) noexcept nogil
cdef int pool_extend(rota_handle *h, uint32_t large_pages, rota_error *error) noexcept nogil
cdef uint32_t abi_fingerprint() noexcept nogil
