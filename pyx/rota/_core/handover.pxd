# Raising the fence of a queue.
from libc.stdint cimport uint32_t, uint64_t

from rota._core.store cimport Store

cdef int fence_queue(Store store, uint32_t number, uint64_t created_lsn, object token) except -1
