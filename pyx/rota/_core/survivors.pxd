# What still lives in segments that are to be emptied.
#
#     survivors_collect  their places, from the lanes
#     survivors_read     one of them, checked and decompressed
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.format cimport rota_frame
from engine.handle cimport rota_handle
from engine.status cimport rota_error

ctypedef struct Survivor:
    uint64_t id
    uint64_t place      # file and cell, as in a slot
    uint16_t queue      # where it lives
    uint8_t level
    uint8_t stale       # it ended or moved since

ctypedef struct Survivors:
    Survivor *entries
    uint64_t count
    uint64_t size
    uint8_t *wanted     # by file

# Room for reading frames: one for all, since messages of one block follow each other.
ctypedef struct Reading:
    rota_frame frame
    uint8_t *stored     # attributes and body as they lie
    uint64_t stored_size
    uint8_t *raw        # of the block that was decoded last
    uint8_t *packed
    uint64_t raw_length
    uint64_t block_place    # its file and offset; 0: none
    uint8_t *attributes     # without the one that names the block
    uint32_t attribute_bytes
    const uint8_t *body

cdef int survivors_collect(rota_handle *h, Survivors *survivors, rota_error *error) noexcept nogil
cdef bint survivor_lives(rota_handle *h, const Survivor *survivor) noexcept nogil
cdef bint survivor_size(rota_handle *h, const Survivor *survivor, uint64_t *length) noexcept nogil
cdef bint survivor_read(rota_handle *h, const Survivor *survivor, Reading *reading) noexcept nogil
cdef void reading_end(Reading *reading) noexcept nogil
