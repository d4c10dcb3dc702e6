# A queue in user hands.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.control cimport rota_queue

from rota._core.claim cimport Claimed, Run, Wanted
from rota._core.store cimport Store

cdef class Queue:
    cdef Store store
    cdef readonly object repository
    cdef readonly str name
    cdef uint32_t number
    cdef uint64_t created_lsn
    cdef uint64_t token_generation  # under which this handle acts, 0 and 0: none
    cdef uint64_t token_number
    cdef object token_id            # the same as an int or None
    cdef uint32_t held              # records of the transaction that this handle claims for
    cdef rota_queue *native(self) except NULL
    cdef int claim(self, Wanted *wanted, Run *runs, Claimed *claimed, double deadline, bint raises) except -1
    cdef object put_with(self, body, key, headers, int priority, double delay, ttl, double deadline, durability)
    cdef object put_many_under(self, bodies, int priority, timeout, durability)
    cdef int change(self, uint8_t action) except -1
    cdef uint64_t find_ref(self, uint64_t id, uint64_t *level) except? 0

cdef Queue under_token(Queue queue, object token)
cdef Queue make_queue(Store store, object repository, uint32_t number, str name)
