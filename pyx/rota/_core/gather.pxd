# Many bodies at once, under one guard.
from libc.stdint cimport uint32_t, uint64_t

from rota._core.reading cimport Reading
from rota._core.store cimport Store

cdef int gather_bodies(Store store, const uint64_t *ids, const uint64_t *refs, uint32_t count, Reading *reading,
                       list bodies, uint32_t at, bint *gaps) except -1
