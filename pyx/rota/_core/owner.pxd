# Who calls: a number for each thread and each asyncio task, never used again.
from libc.stdint cimport uint64_t

cdef uint64_t owner_now() except 0
cdef bint in_task() except -1
