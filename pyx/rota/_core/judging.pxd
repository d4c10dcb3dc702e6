# Verdicts on what a dead owner held.
from libc.stdint cimport uint32_t, uint64_t

from engine.handle cimport rota_handle

cdef uint32_t shown_members(rota_handle *h, uint32_t index, uint64_t *ids, uint32_t limit, bint opening) noexcept nogil
cdef bint belongs(rota_handle *h, uint32_t index, uint32_t process, uint32_t generation) noexcept nogil
cdef void judge(rota_handle *h, uint32_t process, uint32_t generation, bint opening) noexcept nogil
