from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport rota_claim
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.claim cimport Run
from rota._core.draft cimport Settle
from rota._core.lane cimport Found

cdef enum:
    ROOM_FOR_RETURNS = 4       # large pages that a section of returns may need
    RETURNS_PER_SECTION = 256

cdef int show(rota_handle *h, const Run *run, uint64_t upto_id, uint64_t lease_ns, rota_error *error) noexcept nogil
cdef int extend_locked(rota_handle *h, const Run *run, uint64_t id, uint64_t lease_ns, rota_error *error) noexcept nogil
cdef int admit_settle(rota_handle *h, const Settle *settle, rota_error *error) noexcept nogil
cdef void settle_claim(rota_handle *h, const Settle *settle) noexcept nogil
cdef void free_claim(rota_handle *h, uint32_t index) noexcept nogil
cdef bint is_member(rota_handle *h, const rota_claim *record, const Found *found) noexcept nogil
cdef int return_unshown_locked(rota_handle *h, const Run *run, uint64_t first_id, uint64_t last_id,
                               rota_error *error) noexcept nogil
cdef int free_members(rota_handle *h, rota_claim *record, uint64_t first_id, uint64_t last_id,
                      int limit) noexcept nogil
cdef uint32_t shown_of(const rota_claim *record) noexcept nogil
cdef uint32_t generation_of(const rota_claim *record) noexcept nogil
