# Appending: admit, stamp, copy, publish, apply.
from libc.stdint cimport uint32_t, uint64_t

from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.draft cimport Draft, Settle

# What a commit may cost in space (the marks on free segments).
cdef enum:
    SPACE_PUT = 0     # adds
    SPACE_ANSWER = 1  # settles something and adds no more than that and a fixed allowance
    SPACE_SETTLE = 2  # acks, aborts, kills, returns, moves, expiry
    SPACE_JOB = 3     # checkpoint and cleaning

# Segment files, made already, that puts leave to others.
cdef enum:
    KEPT_FILES = 2

# What an append under the lock may ask its caller to do outside of it, before it tries again.
cdef enum:
    NEED_NOTHING = 0
    NEED_PAGES = 1
    NEED_SEGMENT = 2
    NEED_MAP = 3
    NEED_SYNC = 4
    NEED_SPACE = 5

ctypedef struct Placed:
    uint64_t base_id
    uint64_t lsn
    uint64_t end_lsn    # durable when durable_lsn >= end_lsn
    uint64_t queue_ids  # queues whose waiters are to be woken: bit set by number % 64
    int need
    uint32_t waits      # slices that the caller spent on another one's work, for the caller
    uint32_t need_file

cdef int append_locked(rota_handle *h, Draft *draft, int space, Placed *placed, rota_error *error) noexcept nogil
cdef uint32_t pages_needed(const Draft *draft, int space) noexcept nogil
cdef uint32_t reserve_of(rota_handle *h, int space) noexcept nogil
cdef bint short_of_segments(rota_handle *h, int space) noexcept nogil
cdef uint32_t segments_made(rota_handle *h) noexcept nogil
cdef uint32_t free_segments(rota_handle *h) noexcept nogil
