# What a claim in user hands asks of the main lock.
from libc.stdint cimport uint64_t

from engine.status cimport rota_error

from rota._core.claim cimport Run
from rota._core.store cimport Store

cdef int extend(Store store, const Run *run, uint64_t id, uint64_t lease_ns, rota_error *error) except 1
cdef int mark_shown(Store store, const Run *run, uint64_t upto_id) except -1
cdef int return_unshown(Store store, const Run *run) except -1
