from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport rota_queue
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.claim cimport Claimed, Run, Wanted

cdef int claim_attempt(rota_handle *h, rota_queue *queue, const Wanted *wanted, Run *runs, Claimed *claimed, int locked,
                       rota_error *error) noexcept nogil
cdef bint others_hold(const rota_handle *h) noexcept nogil
cdef uint64_t arrivals(const rota_queue *queue) noexcept nogil
cdef int wait_ready(rota_handle *h, rota_queue *queue, bint expired, uint32_t sequence, uint64_t seen,
                    double deadline, rota_error *error) noexcept nogil
