# Hand-outs: claim, show, settle, return unshown.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport (ROTA_CLAIM_ACTIVE, ROTA_CLAIM_FIRST, ROTA_CLAIM_SUSPECT, rota_claim, rota_process, rota_queue,
                             rota_slot, rota_slot_ref)
from engine.failpoint cimport ROTA_AT_CLAIM_ACTIVE, ROTA_AT_CLAIM_CURSOR, rota_failpoint
from engine.handle cimport rota_handle
from engine.pool cimport rota_save, rota_settle_undo
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
    uint64_t token_generation   # under which it was claimed, 0 and 0: none
    uint64_t token_number

ctypedef struct Wanted:
    uint32_t count          # at most so many messages
    uint32_t run_size       # and so many records
    uint64_t lease_ns
    uint8_t durable_only
    uint8_t show            # the bodies reach user code at once (a get of one message)
    uint64_t term           # not 0: the first message of the list of this term
    uint64_t id             # not 0: this message
    uint64_t token_generation   # of who claims, 0 and 0: none
    uint64_t token_number
    uint32_t held           # records of the transaction that asks; 0: none asks

ctypedef struct Claimed:
    uint32_t count
    uint32_t run_count
    uint64_t seen           # arrivals, when there was nothing
    uint8_t expired         # a message at the front has expired: sweep, then claim again

cdef int claim_locked(rota_handle *h, rota_queue *queue, const Wanted *wanted, Run *runs, Claimed *claimed,
                      rota_error *error) noexcept nogil
cdef int claim_refused(rota_handle *h, rota_queue *queue, const Wanted *wanted, uint64_t *now_ns,
                       rota_error *error) noexcept nogil
cdef uint32_t take_record(rota_handle *h) noexcept nogil
cdef bint has_expired(rota_handle *h, const rota_slot *slot, uint64_t now_ns) noexcept nogil
cdef bint slot_durable(rota_handle *h, uint64_t word, uint64_t durable) noexcept nogil
cdef void counts_of(rota_handle *h, const rota_slot *slot, Run *run) noexcept nogil
cdef void write_record(rota_handle *h, rota_queue *queue, uint32_t index, Run *run, const Wanted *wanted,
                       unsigned flags) noexcept nogil
cdef void release_due(rota_handle *h, rota_queue *queue, uint64_t now_ns) noexcept nogil


cdef inline bint holds_no_other(rota_handle *h, const Wanted *wanted) noexcept nogil:
    """Whether this process holds nothing but what the transaction that asks holds: it would wait for itself."""
    return h.control.processes[h.process].claims == wanted.held


cdef inline void finish_record(rota_handle *h, rota_queue *queue, uint32_t index, Run *run, const Wanted *wanted,
                               unsigned flags, Claimed *claimed) noexcept nogil:
    """The slots are taken: write the record, make it ACTIVE, end the section."""
    cdef rota_process *process = &h.control.processes[h.process]
    if flags & ROTA_CLAIM_SUSPECT and process.suspect_held == 0:
        flags |= ROTA_CLAIM_FIRST
    write_record(h, queue, index, run, wanted, flags)
    rota_failpoint(h.failpoints, ROTA_AT_CLAIM_CURSOR)
    rota_save(h, process)
    process.claims += 1
    if flags & ROTA_CLAIM_SUSPECT:
        process.suspect_held += 1
    rota_save(h, &queue.due)
    queue.claimed += run.count
    h.claims[index].state = ROTA_CLAIM_ACTIVE
    rota_settle_undo(h)
    rota_failpoint(h.failpoints, ROTA_AT_CLAIM_ACTIVE)
    claimed.count += run.count
    claimed.run_count += 1
