# Messages that come back: returned by hand, by a dead owner, by the end of a lease.
from libc.stdint cimport uint32_t, uint64_t

from engine.control cimport rota_queue
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.append cimport Placed
from rota._core.draft cimport Draft

cdef int draft_back(rota_handle *h, Draft *draft, rota_queue *queue, uint64_t id, uint64_t handouts,
                    uint64_t excused, uint64_t due_ns, bint suspect) noexcept nogil
cdef int reap_dead(rota_handle *h, uint32_t *reaped, rota_error *error) noexcept nogil
cdef int reap_record(rota_handle *h, uint32_t index, uint32_t generation, uint32_t verdict, bint opening,
                     rota_error *error) noexcept nogil
cdef int reap_leases(rota_handle *h, uint32_t *reaped, rota_error *error) noexcept nogil
cdef int reap_at_open(rota_handle *h, rota_error *error) noexcept nogil
cdef int release_own(rota_handle *h, rota_error *error) noexcept nogil
cdef int append_settling(rota_handle *h, Draft *draft, bint opening, Placed *placed, rota_error *error) noexcept nogil
cdef bint takes_errors(rota_handle *h, rota_queue *queue, uint32_t number) noexcept nogil
cdef void wake_queue(rota_handle *h, rota_queue *queue) noexcept nogil
cdef void wake_draft(rota_handle *h, const Draft *draft) noexcept nogil
