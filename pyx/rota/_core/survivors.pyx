"""What still lives in segments that are to be emptied: found in the lanes, read and checked.

What holds:

1. A survivor is a slot that names the place; the lanes are walked, not the log, so nothing in the segment is trusted
   before its own checksum.
2. Bytes are copied out of the mapping under the guard, and checked in the copy.
3. A frame that does not match its checksum is not copied: its segment stays, and a get still says what is wrong.
4. A message of a compressed block is copied as a plain one, decoded here.
5. A copy says when its message was first put: the commit that carries it has a time of its own.
"""

from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from engine.control cimport *
from engine.format cimport *
from engine.frame cimport *
from engine.lz4 cimport rota_lz4_decode
from engine.pool cimport *
from engine.scan cimport rota_commit_check
from engine.status cimport *

from rota._core.image cimport image_no_memory
from rota._core.image_lanes cimport chunk_behind
from rota._core.image_tables cimport bucket_of
from rota._core.lane cimport Found, chunk_count, find, queue_at
from rota._core.lock cimport lock_enter, lock_leave
from rota._core.segment cimport segment_base, segment_map


cdef enum:
    PUT_AT_BYTES = 12


# --- collecting ------------------------------------------------------------------------------------------------------


cdef bint reserve(Survivors *survivors) noexcept nogil:
    """Room for all of one chunk or bucket."""
    cdef uint64_t size = 2 * survivors.size + ROTA_LARGE_SLOTS
    cdef Survivor *moved
    if survivors.count + ROTA_LARGE_SLOTS <= survivors.size:
        return True
    moved = <Survivor *>realloc(survivors.entries, size * sizeof(Survivor))
    if moved == NULL:
        return False
    survivors.entries = moved
    survivors.size = size
    return True


cdef inline void note(Survivors *survivors, const rota_slot *slot, uint32_t queue, uint32_t level) noexcept nogil:
    cdef Survivor *entry
    if rota_slot_live(slot.word) and rota_slot_file(slot.word) < ROTA_SEGMENT_COUNT_MAX \
            and survivors.wanted[rota_slot_file(slot.word)]:
        entry = &survivors.entries[survivors.count]
        survivors.count += 1
        entry.id = slot.id
        entry.place = rota_slot_place(slot.word)
        entry.queue = <uint16_t>queue
        entry.level = <uint8_t>level
        entry.stale = 0


cdef int collect_lane(rota_handle *h, Survivors *survivors, uint32_t queue_number, uint32_t level,
                      rota_error *error) noexcept nogil:
    cdef rota_queue *queue
    cdef rota_page *page = NULL
    cdef rota_slot *slot
    cdef uint64_t last_id = 0, limit = h.control.log.next_id
    cdef uint32_t number, count, index
    cdef int status
    while last_id < limit:
        if not reserve(survivors):
            return image_no_memory(error)
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        queue = queue_at(h, queue_number)
        page = chunk_behind(h, queue, level, last_id, &number) if queue != NULL else NULL
        if page != NULL:
            count = chunk_count(&queue.lanes[level], number, page)
            slot = rota_page_slot(page, 0)
            for index in range(count):
                if slot[index].id > last_id:
                    note(survivors, &slot[index], queue_number, level)
            last_id = slot[count - 1].id
        lock_leave(h)
        if page == NULL:
            break
    return ROTA_OK


cdef int collect_stragglers(rota_handle *h, Survivors *survivors, rota_error *error) noexcept nogil:
    cdef rota_page *bucket
    cdef rota_page *page
    cdef rota_record *records
    cdef rota_slot *slot
    cdef uint64_t hash = 0
    cdef uint32_t i
    cdef int status
    while True:
        if not reserve(survivors):
            return image_no_memory(error)
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        bucket = bucket_of(h, &h.control.tables[ROTA_TABLE_STRAGGLERS], hash, &hash)
        records = <rota_record *>(bucket + 1)
        for i in range(ROTA_BUCKET_RECORDS if bucket != NULL else 0):
            page = rota_page_at(h, rota_ref_page(records[i].a))
            slot = rota_slot_at(h, records[i].a)
            if records[i].key and page.kind == ROTA_PAGE_STRAGGLERS and slot.id == records[i].key:
                note(survivors, slot, page.queue, page.level)
        lock_leave(h)
        if hash == 0:
            return ROTA_OK


cdef int survivors_collect(rota_handle *h, Survivors *survivors, rota_error *error) noexcept nogil:
    """Everything that lives in a wanted file.  One that moves meanwhile is missed, and keeps its segment."""
    cdef rota_queue *queue
    cdef uint32_t number, level
    cdef int status
    for number in range(ROTA_QUEUE_COUNT_MAX):
        if h.control.queues[number] == 0:
            continue
        for level in range(10):
            queue = queue_at(h, number)
            if queue == NULL or queue.lanes[level].tail == 0:
                continue
            status = collect_lane(h, survivors, number, level, error)
            if status != ROTA_OK:
                return status
    return collect_stragglers(h, survivors, error)


cdef bint survivor_lives(rota_handle *h, const Survivor *survivor) noexcept nogil:
    """Whether it still lives there, in that queue.  Under the main lock."""
    cdef rota_queue *queue = queue_at(h, survivor.queue)
    cdef Found found
    return queue != NULL and find(h, queue, survivor.id, &found) and rota_slot_live(found.slot.word) \
        and rota_slot_place(found.slot.word) == survivor.place


# --- reading ---------------------------------------------------------------------------------------------------------


cdef uint8_t *base_of(rota_handle *h, const Survivor *survivor) noexcept nogil:
    """Where its file is mapped, or NULL."""
    cdef uint32_t file = rota_slot_file(survivor.place)
    return segment_base(h, file) if segment_map(h, file, NULL) == ROTA_OK else NULL


cdef bint load_frame(rota_handle *h, const Survivor *survivor, rota_frame *frame) noexcept nogil:
    """Its directory entry, with bounds that hold."""
    cdef uint64_t offset = rota_slot_cell(survivor.place) * ROTA_CELL
    cdef uint8_t *base = base_of(h, survivor)
    cdef uint64_t stored
    if base == NULL or offset + sizeof(rota_frame) > h.segment_size \
            or h.os.copy_guarded(h.os, frame, base + offset, sizeof(rota_frame)) != ROTA_OK \
            or frame.back > offset:
        return False
    stored = <uint64_t>frame.attribute_bytes + (0 if frame.flags & ROTA_FRAME_BLOCK else frame.body_length)
    return offset - frame.back + frame.offset + stored <= h.segment_size


cdef bint survivor_size(rota_handle *h, const Survivor *survivor, uint64_t *length) noexcept nogil:
    """Bytes that its copy takes.  False: it cannot be read."""
    cdef rota_frame frame
    if not load_frame(h, survivor, &frame):
        return False
    length[0] = sizeof(rota_frame) + ((<uint64_t>frame.attribute_bytes + PUT_AT_BYTES + frame.body_length + 7) & ~<uint64_t>7)
    return True


cdef bint decode_block(rota_handle *h, const Survivor *survivor, Reading *reading) noexcept nogil:
    """The block of a frame into reading.raw, unless it lies there already."""
    cdef uint64_t start = rota_slot_cell(survivor.place) * ROTA_CELL - reading.frame.back
    cdef uint8_t *base = base_of(h, survivor)
    cdef const uint8_t *named = NULL
    cdef uint8_t head[96]
    cdef rota_commit_header header
    cdef rota_block block
    cdef uint32_t length = 0, at = 0
    cdef uint64_t place
    cdef int64_t raw
    if not rota_attribute_find(reading.stored, reading.frame.attribute_bytes, ROTA_ATTRIBUTE_BLOCK, &named, &length) \
            or length != 4 or h.os.copy_guarded(h.os, head, base + start, sizeof(head)) != ROTA_OK \
            or rota_commit_check(head, h.segment_size - start if h.segment_size > start else 0, h.salt_crc, 0,
                                 &header) != ROTA_SCAN_OK:
        return False
    memcpy(&at, named, 4)
    place = <uint64_t>rota_slot_file(survivor.place) << 32 | (start + at)
    if place == reading.block_place:
        return True
    if at < rota_commit_data_offset(&header) or at > header.length or header.length - at < sizeof(block) \
            or h.os.copy_guarded(h.os, &block, base + start + at, sizeof(block)) != ROTA_OK \
            or block.stored_length > header.length - at - sizeof(block) or block.stored_length > ROTA_BLOCK_BYTES_MAX \
            or h.os.copy_guarded(h.os, reading.packed, base + start + at,
                                 sizeof(block) + block.stored_length) != ROTA_OK \
            or rota_block_check(reading.packed, sizeof(block) + block.stored_length, h.salt_crc,
                                &block) != ROTA_SCAN_OK:
        return False
    raw = rota_lz4_decode(reading.packed + sizeof(block), block.stored_length, reading.raw, ROTA_BLOCK_BYTES_MAX)
    if raw < 0 or raw != block.raw_length:
        return False
    reading.raw_length = <uint64_t>raw
    reading.block_place = place
    return True


cdef void plain_attributes(Reading *reading) noexcept nogil:
    """All attributes but the one that names the block."""
    cdef rota_attribute_cursor cursor
    cdef const uint8_t *value
    cdef unsigned kind
    cdef uint32_t length
    reading.attribute_bytes = 0
    rota_attribute_begin(&cursor, reading.stored, reading.frame.attribute_bytes)
    while rota_attribute_next(&cursor, &kind, &value, &length):
        if kind != ROTA_ATTRIBUTE_BLOCK:
            memcpy(reading.attributes + reading.attribute_bytes, value - 4, length + 4)
            reading.attribute_bytes += length + 4


cdef bint keep_time(rota_handle *h, const Survivor *survivor, Reading *reading) noexcept nogil:
    """Add when it was first put, unless a copy says it already: the time of its commit, which must be checked."""
    cdef uint64_t start = rota_slot_cell(survivor.place) * ROTA_CELL - reading.frame.back
    cdef uint8_t head[96]
    cdef rota_commit_header header
    cdef const uint8_t *value = NULL
    cdef uint32_t length = 0
    cdef uint8_t *to = reading.attributes + reading.attribute_bytes
    if rota_attribute_find(reading.attributes, reading.attribute_bytes, ROTA_ATTRIBUTE_PUT_AT, &value, &length):
        return True
    if h.os.copy_guarded(h.os, head, base_of(h, survivor) + start, sizeof(head)) != ROTA_OK \
            or rota_commit_check(head, h.segment_size - start, h.salt_crc, 0, &header) != ROTA_SCAN_OK:
        return False
    if reading.attribute_bytes > ROTA_ATTRIBUTE_BYTES_MAX - PUT_AT_BYTES:
        return True  # put by a version that left no room
    to[0] = ROTA_ATTRIBUTE_PUT_AT
    to[1] = 0
    to[2] = sizeof(header.time_ns)
    to[3] = 0
    memcpy(to + 4, &header.time_ns, sizeof(header.time_ns))
    reading.attribute_bytes += PUT_AT_BYTES
    return True


cdef bint room_for(Reading *reading, uint64_t stored) noexcept nogil:
    cdef uint8_t *moved
    if reading.raw == NULL:
        reading.raw = <uint8_t *>malloc(ROTA_BLOCK_BYTES_MAX)
        reading.packed = <uint8_t *>malloc(ROTA_BLOCK_BYTES_MAX + sizeof(rota_block))
        reading.attributes = <uint8_t *>malloc(ROTA_ATTRIBUTE_BYTES_MAX + 1)
    if stored + 1 > reading.stored_size:
        moved = <uint8_t *>realloc(reading.stored, stored + 65536)
        if moved == NULL:
            return False
        reading.stored = moved
        reading.stored_size = stored + 65536
    return reading.raw != NULL and reading.packed != NULL and reading.attributes != NULL


cdef bint survivor_read(rota_handle *h, const Survivor *survivor, Reading *reading) noexcept nogil:
    """Attributes and body, checked: reading.attributes and reading.body, of reading.frame.body_length bytes."""
    cdef rota_frame *frame = &reading.frame
    cdef uint64_t offset = rota_slot_cell(survivor.place) * ROTA_CELL
    cdef uint64_t stored
    if not load_frame(h, survivor, frame):
        return False
    stored = <uint64_t>frame.attribute_bytes + (0 if frame.flags & ROTA_FRAME_BLOCK else frame.body_length)
    if not room_for(reading, stored) \
            or h.os.copy_guarded(h.os, reading.stored, base_of(h, survivor) + offset - frame.back + frame.offset,
                                 stored) != ROTA_OK \
            or rota_frame_crc(h.salt_crc, frame, reading.stored) != frame.crc:
        return False
    plain_attributes(reading)
    if not keep_time(h, survivor, reading):
        return False
    reading.body = reading.stored + frame.attribute_bytes
    if frame.flags & ROTA_FRAME_BLOCK:
        if not decode_block(h, survivor, reading) or frame.id > reading.raw_length \
                or frame.body_length > reading.raw_length - frame.id:
            return False
        reading.body = reading.raw + frame.id
    return True


cdef void reading_end(Reading *reading) noexcept nogil:
    free(reading.stored)
    free(reading.raw)
    free(reading.packed)
    free(reading.attributes)
