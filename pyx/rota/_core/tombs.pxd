# Tombstones of killed messages, and what a kill changes under the lock.
from libc.stdint cimport uint32_t, uint64_t

from engine.control cimport *
from engine.format cimport rota_op
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.draft cimport Draft

cdef inline bint was_killed(const rota_handle *h, uint64_t id) noexcept nogil:
    """Whether a tombstone tells that this message was killed."""
    return id != 0 and h.control.tombstones[id % ROTA_TOMBSTONE_COUNT] & ~ROTA_TOMBSTONE_HELD == id

cdef inline uint64_t killed_between(const rota_handle *h, uint64_t first_id, uint64_t last_id) noexcept nogil:
    """The first id in this range that was killed in a claim, or 0."""
    cdef uint64_t id = first_id
    if last_id - first_id >= ROTA_TOMBSTONE_COUNT:
        id = last_id - ROTA_TOMBSTONE_COUNT + 1
    while id <= last_id:
        if h.control.tombstones[id % ROTA_TOMBSTONE_COUNT] == id | ROTA_TOMBSTONE_HELD:
            return id
        id += 1
    return 0

cdef void apply_kill(rota_handle *h, const rota_op *op) noexcept nogil
cdef int admit_ends(rota_handle *h, const Draft *draft, rota_error *error) noexcept nogil
