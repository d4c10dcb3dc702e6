# The image of a checkpoint while it is collected: private memory, filled in short holds of the main lock.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from engine.control cimport rota_slot_cell, rota_slot_file
from engine.format cimport ROTA_SEGMENT_COUNT_MAX
from engine.handle cimport rota_handle
from engine.image cimport rota_image_segment, rota_number_put
from engine.status cimport rota_error

ctypedef struct Stream:
    uint8_t *bytes
    uint64_t length
    uint64_t size

# A due time that is only in the frame: filled in after the walk, outside of any lock.
ctypedef struct Unknown:
    uint64_t offset     # in its stream
    uint64_t word       # of the slot
    uint32_t in_lanes   # which stream

# The run that is still growing.
ctypedef struct Run:
    uint64_t first_id
    uint64_t first_word
    uint64_t next_id    # a slot with these two goes on with it
    uint64_t next_word
    uint64_t count
    uint64_t last_end   # ids of the run that was written last end here
    uint64_t cell_end
    uint32_t file

ctypedef struct Image:
    uint64_t begin
    uint64_t chain      # of the commit before begin
    uint64_t next_id
    uint64_t time_ns
    uint64_t messages
    uint64_t straggler_count
    Stream queues
    Stream stragglers
    Stream lanes
    Stream registrations
    Stream keys
    Run run
    rota_image_segment *segments    # with commits below begin, as they were then
    uint32_t segment_count
    uint32_t *live                  # by file: frames of live messages below begin
    uint32_t *limit                 # by file: cells below begin
    Unknown *unknown
    uint64_t unknown_count
    uint64_t unknown_size

cdef int image_begin(rota_handle *h, Image *image, rota_error *error) noexcept nogil
cdef int image_walk(rota_handle *h, Image *image, rota_error *error) noexcept nogil
cdef int image_join(rota_handle *h, Image *image, Stream *out, rota_error *error) noexcept nogil
cdef void image_end(Image *image) noexcept nogil
cdef bint stream_reserve(Stream *stream, uint64_t room) noexcept nogil
cdef int image_no_memory(rota_error *error) noexcept nogil


# The caller has made room.
cdef inline void put_number(Stream *stream, uint64_t value) noexcept nogil:
    stream.length = <uint64_t>(rota_number_put(stream.bytes + stream.length, value) - stream.bytes)


cdef inline void put_bytes(Stream *stream, const void *source, uint64_t length) noexcept nogil:
    if length:
        memcpy(stream.bytes + stream.length, source, length)
    stream.length += length


cdef inline void put_byte(Stream *stream, unsigned value) noexcept nogil:
    stream.bytes[stream.length] = <uint8_t>value
    stream.length += 1


cdef inline void put_u64(Stream *stream, uint64_t value) noexcept nogil:
    put_bytes(stream, &value, 8)


cdef inline bint is_below(const Image *image, uint64_t word) noexcept nogil:
    return rota_slot_file(word) < ROTA_SEGMENT_COUNT_MAX \
        and rota_slot_cell(word) < image.limit[rota_slot_file(word)]
