"""The image of a checkpoint while it is collected: every message, queue and registration that lives below its begin.

What holds:

1. The main lock is held for one chunk, bucket or table of queues at a time, and nothing is allocated under it.
2. Lanes first, then the table of stragglers by the order of its hashes.  A message that moves meanwhile is either
   found in its old lane (it moved later than its lane was walked) or in the table, where it stays for the rest of its
   life.  Found in both, the straggler counts.
3. The queues are those of the begin, so that a move out of a queue that is gone by the end can be replayed, and those
   that were made since, so that a move into them can.
4. A message whose place is at or above the begin is left out: the replay puts it.
5. Places stay true: no segment is freed and none is copied out while the job lock is held.
"""

from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from engine.control cimport *
from engine.format cimport *
from engine.frame cimport rota_attribute_u64
from engine.image cimport *
from engine.status cimport *

from rota._core.image_lanes cimport image_lanes
from rota._core.image_tables cimport image_keys, image_registrations, image_stragglers
from rota._core.lane cimport queue_at
from rota._core.lock cimport lock_enter, lock_leave
from rota._core.moving cimport frame_attributes

cdef enum:
    QUEUE_BYTES = 1408  # at most, in the stream


cdef bint stream_reserve(Stream *stream, uint64_t room) noexcept nogil:
    """Make room for so many bytes; False when there is no memory."""
    cdef uint64_t size = stream.size if stream.size else 65536
    cdef uint8_t *moved
    if stream.length + room <= stream.size:
        return True
    while size < stream.length + room:
        size += size // 2
    moved = <uint8_t *>realloc(stream.bytes, size)
    if moved == NULL:
        return False
    stream.bytes = moved
    stream.size = size
    return True


cdef int image_no_memory(rota_error *error) noexcept nogil:
    return rota_fail(error, ROTA_NO_MEMORY, NULL, 0, "no memory for a checkpoint")


cdef void put_queue(Image *image, const rota_queue *queue) noexcept nogil:
    cdef Stream *out = &image.queues
    put_number(out, queue.number + 1)
    put_byte(out, queue.state)
    put_u64(out, queue.created_lsn)
    put_u64(out, queue.fence_generation)
    put_u64(out, queue.fence_number)
    put_bytes(out, &queue.options, sizeof(rota_queue_options))
    put_bytes(out, queue.name, queue.options.name_length)
    put_bytes(out, queue.index_text, queue.options.index_bytes)


cdef int put_queues(rota_handle *h, Image *image, uint64_t since, rota_error *error) noexcept nogil:
    """Every queue that was made at or after that position.  Returns with the main lock held, unless it failed."""
    cdef uint64_t before = image.queues.length
    cdef uint32_t number, count
    cdef rota_queue *queue
    cdef int status
    while True:
        count = h.control.queue_count
        if not stream_reserve(&image.queues, <uint64_t>(count + 1) * QUEUE_BYTES):
            return image_no_memory(error)
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        if h.control.queue_count <= count:
            break
        lock_leave(h)
    image.queues.length = before
    for number in range(h.control.queue_count):
        queue = queue_at(h, number)
        if queue != NULL and queue.created_lsn >= since and queue.options.name_length <= ROTA_NAME_LENGTH_MAX \
                and queue.options.index_bytes <= ROTA_INDEX_BYTES_MAX:
            put_queue(image, queue)
    return ROTA_OK


cdef void note_segments(rota_handle *h, Image *image) noexcept nogil:
    """The segments with commits below begin, and how much of each."""
    cdef rota_control *control = h.control
    cdef rota_segment *segment
    cdef rota_image_segment *noted
    cdef uint32_t file
    image.segment_count = 0
    for file in range(control.segment_count if control.segment_count < ROTA_SEGMENT_COUNT_MAX
                      else ROTA_SEGMENT_COUNT_MAX):
        segment = &control.segments[file]
        if (segment.state != ROTA_SEGMENT_SEALED and segment.state != ROTA_SEGMENT_ACTIVE) \
                or segment.first_lsn >= image.begin:
            continue
        noted = &image.segments[image.segment_count]
        image.segment_count += 1
        memset(noted, 0, sizeof(rota_image_segment))
        noted.file = file
        noted.first_lsn = segment.first_lsn
        noted.end_lsn = segment.end_lsn if segment.state == ROTA_SEGMENT_SEALED else image.begin
        noted.frames = segment.frames if segment.state == ROTA_SEGMENT_SEALED else control.log.tail_frames
        image.limit[file] = <uint32_t>((noted.end_lsn - (segment.first_lsn - ROTA_SEGMENT_HEADER_SIZE)) // ROTA_CELL)


cdef int image_begin(rota_handle *h, Image *image, rota_error *error) noexcept nogil:
    """Fix the begin: where the log goes on now.  image_end is to be called whatever comes."""
    cdef int status
    memset(image, 0, sizeof(Image))
    image.segments = <rota_image_segment *>malloc(ROTA_SEGMENT_COUNT_MAX * sizeof(rota_image_segment))
    image.live = <uint32_t *>calloc(ROTA_SEGMENT_COUNT_MAX, sizeof(uint32_t))
    image.limit = <uint32_t *>calloc(ROTA_SEGMENT_COUNT_MAX, sizeof(uint32_t))
    if image.segments == NULL or image.live == NULL or image.limit == NULL:
        return image_no_memory(error)
    status = put_queues(h, image, 0, error)
    if status != ROTA_OK:
        return status
    image.begin = h.control.tail_lsn
    image.chain = h.control.log.last_chain
    image.next_id = h.control.log.next_id
    image.time_ns = h.control.log.time_ns
    note_segments(h, image)
    lock_leave(h)
    return ROTA_OK


cdef void image_end(Image *image) noexcept nogil:
    free(image.segments)
    free(image.live)
    free(image.limit)
    free(image.unknown)
    free(image.queues.bytes)
    free(image.stragglers.bytes)
    free(image.lanes.bytes)
    free(image.registrations.bytes)
    free(image.keys.bytes)
    memset(image, 0, sizeof(Image))


# --- end -------------------------------------------------------------------------------------------------------------


cdef uint64_t due_of(rota_handle *h, uint64_t word) noexcept nogil:
    """When the frame says that its message becomes visible; 0 when it does not say, or cannot be read."""
    cdef uint8_t attributes[65536]
    cdef rota_frame frame
    cdef uint64_t due = 0
    if frame_attributes(h, word, &frame, attributes):
        rota_attribute_u64(attributes, frame.attribute_bytes, ROTA_ATTRIBUTE_DUE, &due)
    return due


cdef void fill_dues(rota_handle *h, Image *image) noexcept nogil:
    """Read the due times that no table has.  One that cannot be read is over: the body will say that it is bad."""
    cdef uint64_t i, due
    cdef Stream *stream
    for i in range(image.unknown_count):
        stream = &image.lanes if image.unknown[i].in_lanes else &image.stragglers
        due = due_of(h, image.unknown[i].word)
        memcpy(stream.bytes + image.unknown[i].offset, &due, 8)
    image.unknown_count = 0


cdef int image_walk(rota_handle *h, Image *image, rota_error *error) noexcept nogil:
    """Collect everything; others append meanwhile."""
    cdef int status = image_lanes(h, image, error)
    if status == ROTA_OK:
        status = image_stragglers(h, image, error)
    if status == ROTA_OK:
        status = put_queues(h, image, image.begin, error)
    if status != ROTA_OK:
        return status
    lock_leave(h)
    status = image_registrations(h, image, error)
    if status == ROTA_OK:
        status = image_keys(h, image, error)
    if status == ROTA_OK:
        fill_dues(h, image)
    return status


cdef int image_join(rota_handle *h, Image *image, Stream *out, rota_error *error) noexcept nogil:
    """The whole stream, from the header on.  out.bytes is the caller's to free."""
    cdef rota_image_header header
    cdef uint64_t segments = image.segment_count * sizeof(rota_image_segment)
    memset(&header, 0, sizeof(header))
    memset(out, 0, sizeof(Stream))
    header.magic = ROTA_IMAGE_MAGIC
    header.segment_count = image.segment_count
    header.begin_lsn = image.begin
    header.next_id = image.next_id
    header.time_ns = image.time_ns
    header.message_count = image.messages
    header.straggler_count = image.straggler_count
    header.bytes = sizeof(header) + segments + image.queues.length + image.stragglers.length + image.lanes.length \
        + image.registrations.length + image.keys.length + 1
    if not stream_reserve(out, header.bytes):
        return image_no_memory(error)
    put_bytes(out, &header, sizeof(header))
    put_bytes(out, image.segments, segments)
    put_bytes(out, image.queues.bytes, image.queues.length)
    put_byte(out, 0)
    put_bytes(out, image.stragglers.bytes, image.stragglers.length)
    put_bytes(out, image.lanes.bytes, image.lanes.length)
    put_bytes(out, image.registrations.bytes, image.registrations.length)
    put_bytes(out, image.keys.bytes, image.keys.length)
    return ROTA_OK
