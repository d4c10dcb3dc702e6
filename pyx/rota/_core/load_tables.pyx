"""The blocks of a checkpoint, and its queues and registrations on their way into the control file.

What holds:

1. The stream is joined in private memory and its sum is checked before a byte of it is looked at.
2. Lengths are checked against the stream and against the limits of the format before anything is copied.
3. A later entry of a queue replaces an earlier one: the number was used again after the begin.
"""

from libc.stdlib cimport malloc
from libc.string cimport memcpy, memset

from engine.control cimport *
from engine.crc32c cimport rota_crc32c
from engine.format cimport *
from engine.image cimport *
from engine.pool cimport *
from engine.scan cimport rota_op_begin, rota_op_cursor, rota_op_next
from engine.status cimport *

from rota._core.apply cimport pages_for, queue_make
from rota._core.control cimport pool_grow
from rota._core.dedup cimport enter_key
from rota._core.lane cimport queue_at
from rota._core.registration cimport Registration, apply_register, registration_find, registration_set_tag
from rota._core.walk cimport WALK_TRUSTED, log_commit, log_end, log_position, walk_begin, walk_next


cdef int load_refuse(const char *what, rota_error *error) noexcept nogil:
    return rota_fail(error, ROTA_CORRUPT, "checkpoint", 0, "the checkpoint contradicts itself: %s", what)


cdef int take_block(Load *load, const log_commit *commit, rota_error *error) noexcept nogil:
    """Add the block of a commit to the stream, if it carries one of this checkpoint."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra
    cdef rota_image_header header
    if commit.header.lsn < load.h.manifest.checkpoint_block:
        return ROTA_OK
    rota_op_begin(&cursor, commit.bytes, &commit.header)
    while rota_op_next(&cursor, &op, &extra):
        if op.kind != ROTA_OP_CHECKPOINT or op.a != load.h.manifest.checkpoint_begin or load.complete:
            continue
        if load.blocks == 0 and op.extra_bytes >= sizeof(header):
            memcpy(&header, extra, sizeof(header))
            if header.magic != ROTA_IMAGE_MAGIC or header.bytes > load.h.manifest.capacity:
                return load_refuse("its header is not one", error)
            load.bytes = <uint8_t *>malloc(header.bytes)
            load.size = header.bytes
            if load.bytes == NULL:
                return rota_fail(error, ROTA_NO_MEMORY, NULL, 0, "no memory for the checkpoint")
        if op.id != load.blocks or op.extra_bytes > load.size - load.length:
            return load_refuse("its blocks do not follow each other", error)
        memcpy(load.bytes + load.length, extra, op.extra_bytes)
        load.sum = rota_crc32c(load.sum, load.bytes + load.length, op.extra_bytes)
        load.length += op.extra_bytes
        load.blocks += 1
        if load.sum != <uint32_t>op.b:
            return load_refuse("a block does not match its checksum", error)
        load.complete = op.detail & ROTA_IMAGE_LAST and op.b >> 32 == load.blocks and load.length == load.size
    return ROTA_OK


cdef int load_blocks(Load *load, log_reader *reader, rota_error *error) noexcept nogil:
    """Walk from the begin to the checkpoint's end and join its blocks."""
    cdef log_position position
    cdef log_commit commit
    cdef log_end end
    cdef int status
    load.sum = load.h.salt_crc
    walk_begin(reader, &position)
    while position.lsn < load.h.manifest.checkpoint_end and not load.complete:
        status = walk_next(reader, &position, &commit, &end, WALK_TRUSTED, error)
        if status < 0:
            return status
        if status == 0:
            break
        status = take_block(load, &commit, error)
        if status != ROTA_OK:
            return status
    return ROTA_OK if load.complete else load_refuse("blocks are missing", error)


cdef int provide(rota_handle *h, rota_error *error) noexcept nogil:
    cdef uint32_t need = pages_for(1, 8)
    rota_settle_undo(h)
    return pool_grow(h, need, error) if rota_pool_room(h) < need else ROTA_OK


cdef bint options_good(const rota_queue_options *options) noexcept nogil:
    return 0 < options.name_length <= ROTA_NAME_LENGTH_MAX and options.order <= ROTA_ORDER_HIGHEST \
        and options.is_volatile <= 1 and options.is_error_queue <= 1 and options.count_handouts <= 1 \
        and options.reserved == 0 \
        and (options.error_queue < ROTA_QUEUE_COUNT_MAX or options.error_queue == ROTA_QUEUE_NONE)


cdef int load_queue(Load *load, uint64_t number, rota_error *error) noexcept nogil:
    cdef rota_image_cursor *cursor = &load.cursor
    cdef rota_queue_options options
    cdef unsigned state = rota_image_byte(cursor)
    cdef uint64_t created = rota_image_u64(cursor)
    cdef uint64_t generation = rota_image_u64(cursor)
    cdef uint64_t fence = rota_image_u64(cursor)
    cdef const uint8_t *extra = rota_image_bytes(cursor, sizeof(options))
    cdef rota_queue *queue
    cdef int status
    if extra == NULL or number >= ROTA_QUEUE_COUNT_MAX or state < ROTA_QUEUE_OPEN or state > ROTA_QUEUE_STOPPED:
        return load_refuse("a queue cannot be", error)
    memcpy(&options, extra, sizeof(options))
    if not options_good(&options) or rota_image_bytes(cursor, options.name_length) == NULL \
            or rota_image_bytes(cursor, options.index_bytes) == NULL:
        return load_refuse("the options of a queue cannot be", error)
    status = provide(load.h, error)
    if status == ROTA_OK:
        status = queue_make(load.h, <uint32_t>number, extra,
                            <uint32_t>sizeof(options) + options.name_length + options.index_bytes, created)
    queue = queue_at(load.h, <uint32_t>number)
    if status != ROTA_OK or queue == NULL:
        return load_refuse("a queue finds no place", error) if status == ROTA_OK else status
    memset(queue.name, 0, sizeof(queue.name))
    memcpy(queue.name, extra + sizeof(options), options.name_length)
    queue.state = <uint16_t>state
    queue.created_lsn = created
    queue.fence_generation = generation
    queue.fence_number = fence
    if generation | fence:
        load.h.control.fenced = 1
    return ROTA_OK


cdef int load_queues(Load *load, rota_error *error) noexcept nogil:
    cdef uint64_t number = rota_image_number(&load.cursor)
    cdef int status
    while number:
        status = load_queue(load, number - 1, error)
        if status != ROTA_OK:
            return status
        number = rota_image_number(&load.cursor)
    return ROTA_OK


cdef int load_registration(Load *load, uint64_t number, rota_error *error) noexcept nogil:
    """By the operation that would make it, then the tag."""
    cdef rota_image_cursor *cursor = &load.cursor
    cdef uint8_t extra[512]
    cdef Registration *registration
    cdef rota_tag tag
    cdef rota_op op
    cdef const uint8_t *lengths
    cdef const uint8_t *text
    cdef unsigned kind = rota_image_byte(cursor)
    cdef uint64_t id, lsn
    cdef int status
    memset(&op, 0, sizeof(op))
    memset(&tag, 0, sizeof(tag))
    op.detail = rota_image_byte(cursor) & 1
    id = rota_image_u64(cursor)
    lsn = rota_image_u64(cursor)
    op.a = rota_image_u64(cursor)
    lengths = rota_image_bytes(cursor, 4)
    if lengths == NULL or number >= ROTA_QUEUE_COUNT_MAX:
        return load_refuse("a registration cannot be", error)
    memcpy(&tag.name_length, lengths, 2)
    memcpy(&tag.tag_length, lengths + 2, 2)
    text = rota_image_bytes(cursor, <uint64_t>tag.name_length + tag.tag_length)
    if text == NULL or not 0 < tag.name_length <= ROTA_NAME_LENGTH_MAX or tag.tag_length > ROTA_TAG_LENGTH_MAX:
        return load_refuse("a registration cannot be", error)
    op.queue = <uint16_t>number
    op.extra_bytes = <uint32_t>sizeof(tag) + tag.name_length
    memcpy(extra + sizeof(tag), text, tag.name_length)
    status = provide(load.h, error)
    if status != ROTA_OK:
        return status
    memcpy(extra, &tag, sizeof(tag))
    (<rota_tag *>extra).tag_length = 0
    if queue_at(load.h, op.queue) == NULL:
        return ROTA_OK  # made after the queues were written down: the replay makes both
    status = apply_register(load.h, &op, extra, lsn)
    registration = registration_find(load.h, op.queue, text, tag.name_length)
    if status != ROTA_OK or registration == NULL:
        return load_refuse("a registration finds no place", error)
    registration.kind = <uint8_t>(kind & 0x7f)
    registration.id = id
    registration.lsn = lsn
    if registration_set_tag(load.h, registration, text + tag.name_length, tag.tag_length) != ROTA_OK:
        return load_refuse("a tag finds no place", error)
    return ROTA_OK


cdef int load_registrations(Load *load, rota_error *error) noexcept nogil:
    cdef uint64_t number = rota_image_number(&load.cursor)
    cdef int status
    while number:
        status = load_registration(load, number - 1, error)
        if status != ROTA_OK:
            return status
        number = rota_image_number(&load.cursor)
    return ROTA_OK


cdef int load_keys(Load *load, rota_error *error) noexcept nogil:
    """The keys of puts, of each queue in their order; an image of a repository that has none ends before them."""
    cdef rota_image_cursor *cursor = &load.cursor
    cdef rota_queue *queue
    cdef uint64_t number, id, time_ns, a, b
    cdef int status
    if cursor.left == 0:
        return ROTA_OK
    number = rota_image_number(cursor)
    while number:
        id = rota_image_u64(cursor)
        time_ns = rota_image_u64(cursor)
        a = rota_image_u64(cursor)
        b = rota_image_u64(cursor)
        if cursor.failed or number > ROTA_QUEUE_COUNT_MAX:
            return load_refuse("the key of a put cannot be", error)
        status = provide(load.h, error)
        if status != ROTA_OK:
            return status
        queue = queue_at(load.h, <uint32_t>(number - 1))
        if queue != NULL and enter_key(load.h, queue, a, b, id, time_ns) != ROTA_OK:
            return load_refuse("the key of a put finds no place", error)
        number = rota_image_number(cursor)
    return ROTA_OK
