# Several messages claimed at once.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from rota._core.claim cimport Run
from rota._core.draft cimport Draft
from rota._core.message cimport Message
from rota._core.reading cimport Reading
from rota._core.store cimport Store

cdef class Batch:
    cdef Store store
    cdef readonly object queue
    cdef Run *runs
    cdef uint32_t run_count
    cdef uint32_t count
    cdef uint64_t *id_list
    cdef uint64_t *refs
    cdef uint32_t *run_of
    cdef object messages
    cdef readonly object array
    cdef uint8_t state       # 1 claimed, 2 settled, 3 of a transaction
    cdef int collect(self) except -1
    cdef int find_slots(self) except -1
    cdef int add_acks(self, Draft *draft, bint by_id) except -1
    cdef int check_claims(self) except -1
    cdef int show_all(self) except -1
    cdef bytes read(self, uint32_t i, Reading *reading)
    cdef Message make(self, uint32_t i)
    cdef int settled(self) except -1
    cdef int forget(self, id) except -1
    cdef int release_run(self, Run *run) except -1

cdef Batch new_batch(Store store, object queue, Run *runs, uint32_t run_count, uint32_t count)

