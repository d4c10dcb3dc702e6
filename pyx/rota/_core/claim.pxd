# Hand-outs: claim, show, settle, return unshown.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport rota_claim, rota_queue, rota_slot_ref
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.draft cimport Settle
from rota._core.lane cimport Found

cdef enum:
    ROOM_FOR_RETURNS = 4       # large pages that a section of returns may need
    RETURNS_PER_SECTION = 256

# One record of a hand-out, as its holder knows it.
ctypedef struct Run:
    uint32_t claim
    uint32_t generation
    uint64_t first_id
    uint64_t last_id
    rota_slot_ref first     # where the first slot was
    uint32_t count
    uint32_t handouts       # before this one
    uint32_t excused
    uint16_t queue
    uint8_t level
    uint8_t kind

ctypedef struct Wanted:
    uint32_t count          # at most so many messages
    uint32_t run_size       # and so many records
    uint64_t lease_ns
    uint8_t durable_only
    uint8_t show            # the bodies reach user code at once (a get of one message)

ctypedef struct Claimed:
    uint32_t count
    uint32_t run_count
    uint8_t expired         # a message at the front has expired: sweep, then claim again

cdef int claim_locked(rota_handle *h, rota_queue *queue, const Wanted *wanted, Run *runs, Claimed *claimed,
                      rota_error *error) noexcept nogil
cdef int show(rota_handle *h, const Run *run, uint64_t upto_id, uint64_t lease_ns, rota_error *error) noexcept nogil
cdef int extend_locked(rota_handle *h, const Run *run, uint64_t lease_ns, rota_error *error) noexcept nogil
cdef int admit_settle(rota_handle *h, const Settle *settle, rota_error *error) noexcept nogil
cdef void settle_claim(rota_handle *h, const Settle *settle) noexcept nogil
cdef void forget_killed(rota_handle *h, const Run *run) noexcept nogil
cdef void free_claim(rota_handle *h, uint32_t index) noexcept nogil
cdef bint is_member(rota_handle *h, const rota_claim *record, const Found *found) noexcept nogil
cdef int return_unshown_locked(rota_handle *h, const Run *run, uint64_t first_id, uint64_t last_id,
                               rota_error *error) noexcept nogil
cdef int free_members(rota_handle *h, rota_claim *record, uint64_t first_id, uint64_t last_id,
                      int limit) noexcept nogil
cdef void release_due(rota_handle *h, rota_queue *queue, uint64_t now_ns) noexcept nogil
cdef uint32_t shown_of(const rota_claim *record) noexcept nogil
cdef uint32_t generation_of(const rota_claim *record) noexcept nogil
