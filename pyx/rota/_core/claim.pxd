# Hand-outs: claim, show, settle, return unshown.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport rota_claim, rota_queue, rota_slot_ref
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.draft cimport Settle
from rota._core.lane cimport Found

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
cdef void release_due(rota_handle *h, rota_queue *queue, uint64_t now_ns) noexcept nogil
