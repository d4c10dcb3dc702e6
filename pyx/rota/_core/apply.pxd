# Commits into lanes: the one way, for a live append, a redo after a death, and recovery.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.control cimport rota_queue
from engine.format cimport rota_commit_header
from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int apply_commit(rota_handle *h, const uint8_t *commit, const rota_commit_header *header, uint32_t file,
                      uint64_t offset) noexcept nogil
cdef int apply_replay(rota_handle *h, const uint8_t *commit, uint32_t file, uint64_t offset,
                      rota_error *error) noexcept nogil
cdef int set_history(rota_handle *h, uint64_t id, uint64_t counts, uint64_t due_ns) noexcept nogil
cdef int queue_make(rota_handle *h, uint32_t number, const uint8_t *extra, uint32_t extra_bytes,
                    uint64_t lsn) noexcept nogil


cdef inline uint32_t pages_for(uint64_t messages, uint64_t ops) noexcept nogil:
    """Large pages that a commit may need: chunks, and heap leaves and table splits of its operations."""
    return <uint32_t>(12 + messages // 1000 + ops // 200)
