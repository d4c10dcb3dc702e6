# The blocks, queues and registrations of a checkpoint, and what all parts of a loading share.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.control cimport rota_slot_ref
from engine.handle cimport rota_handle
from engine.image cimport rota_image_cursor, rota_image_header, rota_image_segment
from engine.status cimport rota_error

from rota._core.reader cimport log_reader

# A message that enters a list once all of them are known.
ctypedef struct Later:
    uint64_t term
    uint64_t order      # its place in the lane
    uint64_t id
    rota_slot_ref slot
    uint32_t queue
    uint32_t level
    uint32_t is_ready   # its turn is to be decided then

ctypedef struct Load:
    rota_handle *h
    uint8_t *bytes          # the stream
    uint64_t length
    uint64_t size           # as its header says
    uint64_t blocks
    uint32_t sum
    bint complete
    rota_image_header header
    rota_image_cursor cursor
    const uint8_t *segments
    uint32_t *limit         # by file: cells below the begin
    uint32_t *live          # by file: messages that were placed
    uint32_t *place         # by file of the image: the file that holds its commits now
    uint64_t *ids           # of the stragglers, ascending
    uint64_t id_count
    uint64_t moved_terms    # of stragglers: lists are then linked at the end, in order
    Later *later
    uint64_t later_count
    uint64_t later_size

cdef int load_refuse(const char *what, rota_error *error) noexcept nogil
cdef int load_blocks(Load *load, log_reader *reader, rota_error *error) noexcept nogil
cdef int load_queues(Load *load, rota_error *error) noexcept nogil
cdef int load_keys(Load *load, rota_error *error) noexcept nogil
cdef int load_registrations(Load *load, rota_error *error) noexcept nogil
