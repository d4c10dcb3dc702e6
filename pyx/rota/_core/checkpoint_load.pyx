"""Loading a checkpoint: from its blocks in the log to the lanes, as they were below its begin.

What holds:

1. The stream is joined in private memory and its sum is checked before a byte of it is looked at; every number in it
   is checked again where it is used, so a stream that contradicts itself is CORRUPT and never a wild store.
2. Nobody else is attached: no lock is taken, and the lines that are saved for undoing are forgotten as they pile up.
3. Stragglers come before lanes: a message that the walk met in both lives where the straggler says.
4. A segment that holds a live frame must be there with the same first position; it counts as sealed, with the frames
   that are not live as dead.  A segment without one may have been used again.  It is found by its position: after a
   failed sync its commits lie in a fresh file with another number.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memcpy, memset

from engine.control cimport *
from engine.format cimport *
from engine.image cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.apply cimport set_history
from rota._core.index cimport KEY_ORDINAL
from rota._core.lane cimport Found, append_plain, append_slot, append_straggler, found_at, queue_at
from rota._core.load_index cimport *
from rota._core.load_tables cimport Load, load_blocks, load_keys, load_queues, load_refuse, load_registrations
from rota._core.reader cimport NO_FILE, log_reader, reader_find
from rota._core.slots cimport make_ready, order_of

cdef enum:
    RUN_COUNT_MAX = 1 << 16

# --- messages --------------------------------------------------------------------------------------------------------


cdef bint place_good(const Load *load, uint64_t file, uint64_t cell, uint64_t count) noexcept nogil:
    return file < ROTA_SEGMENT_COUNT_MAX and count <= load.limit[file] and cell <= load.limit[file] - count \
        and cell >= ROTA_SEGMENT_HEADER_SIZE // ROTA_CELL


cdef bint read_details(rota_image_cursor *cursor, Details *details) noexcept nogil:
    cdef unsigned has
    memset(details, 0, sizeof(Details))
    details.state = rota_image_byte(cursor)
    details.flags = rota_image_byte(cursor)
    has = rota_image_byte(cursor)
    if has & ROTA_IMAGE_COUNTS:
        details.counts = <uint32_t>rota_image_number(cursor)
        details.counts |= rota_image_number(cursor) << 32
    if has & ROTA_IMAGE_DUE:
        details.due = rota_image_u64(cursor)
    if has & ROTA_IMAGE_EXPIRY:
        details.expiry = rota_image_u64(cursor)
    if has & ROTA_IMAGE_ORDER:
        details.order = rota_image_number(cursor)
    details.flags &= ~<unsigned>(ROTA_SLOT_CLAIMED | ROTA_SLOT_HISTORY | ROTA_SLOT_EXPIRES | ROTA_SLOT_KEYED)
    if has & ROTA_IMAGE_TERMS:
        read_index(cursor, details)
    if has & ROTA_IMAGE_COUNTS:
        details.flags |= ROTA_SLOT_HISTORY
    if has & ROTA_IMAGE_EXPIRY:
        details.flags |= ROTA_SLOT_EXPIRES
    return not cursor.failed and ROTA_SLOT_FRESH <= details.state <= ROTA_SLOT_WAITING


cdef int note_details(Load *load, rota_queue *queue, uint32_t level, uint64_t id, rota_slot_ref ref,
                      const Details *details) noexcept nogil:
    """Counts, heaps and tables of a message that is more than a place.  The lane's lines need no saving here."""
    cdef rota_handle *h = load.h
    cdef rota_lane *lane = &queue.lanes[level]
    cdef rota_page *page = rota_page_at(h, rota_ref_page(ref))
    cdef rota_record *record
    cdef Found found
    cdef int result = 0
    found_at(h, queue, level, ref, &found)
    if details.flags & ROTA_SLOT_HISTORY and set_history(h, id, details.counts, details.due) != ROTA_OK:
        return -1
    if details.flags & ROTA_SLOT_SUSPECT:
        queue.suspects += 1
    if details.flags & ROTA_SLOT_EXPIRES:
        queue.expiring += 1
        if details.expiry < page.min_expiry_ns:
            page.min_expiry_ns = details.expiry
        record = rota_table_put(h, &h.control.tables[ROTA_TABLE_EXPIRY], id)
        if record == NULL:
            return -1
        record.a = details.expiry
    if details.flags & ROTA_SLOT_KEYED:
        result = enter_index(load, &found, details)
        if result != 0:
            return 0 if result > 0 else -1
    if details.state == ROTA_SLOT_RETURNED or details.state == ROTA_SLOT_WAITING:
        result = make_ready(h, &found, order_of(h, found.slot))
    elif details.state == ROTA_SLOT_DELAYED:
        lane.delayed += 1
        result = rota_heap_push(h, &queue.due, details.due, id, ref)
    elif details.state == ROTA_SLOT_PARKED:
        lane.parked += 1
    return result


cdef int load_stragglers(Load *load, rota_error *error) noexcept nogil:
    """The messages that lie outside the order of their ids; their ids are remembered."""
    cdef rota_handle *h = load.h
    cdef rota_queue *queue
    cdef rota_record *record
    cdef rota_slot_ref ref
    cdef Details details
    cdef uint64_t number = rota_image_number(&load.cursor), id, file, cell, level, count = 0
    cdef int status
    while number:
        level = rota_image_byte(&load.cursor)
        id = rota_image_number(&load.cursor)
        file = rota_image_number(&load.cursor)
        cell = rota_image_number(&load.cursor)
        if not read_details(&load.cursor, &details) or level > 9 or id == 0 or not place_good(load, file, cell, 1) \
                or details.state == ROTA_SLOT_FRESH or count >= load.header.straggler_count:
            return load_refuse("a moved message cannot be", error)
        load.ids[count] = id
        count += 1
        queue = queue_at(h, <uint32_t>(number - 1)) if number <= ROTA_QUEUE_COUNT_MAX else NULL
        if queue != NULL and rota_table_find(h, &h.control.tables[ROTA_TABLE_STRAGGLERS], id) == NULL:
            status = provide(h, 1, error)
            if status != ROTA_OK:
                return status
            details.flags &= ~<unsigned>ROTA_SLOT_EXPIRES
            load.moved_terms += details.term_count
            ref = append_straggler(h, queue, <uint32_t>level, id, rota_slot_word(
                load.place[file], cell, details.state, details.flags))
            record = rota_table_find(h, &h.control.tables[ROTA_TABLE_STRAGGLERS], id)
            if ref == 0 or record == NULL:
                return load_refuse("a moved message finds no place", error)
            record.c = details.order
            if note_details(load, queue, <uint32_t>level, id, ref, &details) < 0:
                return load_refuse("a moved message finds no place", error)
            load.live[file] += 1
        number = rota_image_number(&load.cursor)
    load.id_count = count
    return ROTA_OK


cdef int by_size(const void *one, const void *other) noexcept nogil:
    cdef uint64_t x = (<const uint64_t *>one)[0]
    cdef uint64_t y = (<const uint64_t *>other)[0]
    return 1 if x > y else (-1 if x < y else 0)


cdef uint64_t id_at_least(const Load *load, uint64_t id) noexcept nogil:
    """Index of the first straggler that is not below it."""
    cdef uint64_t low = 0, high = load.id_count, middle
    while low < high:
        middle = (low + high) // 2
        if load.ids[middle] < id:
            low = middle + 1
        else:
            high = middle
    return low


cdef int add_plain(Load *load, rota_queue *queue, uint32_t level, uint64_t id, uint64_t count, uint32_t file,
                   uint64_t cell, rota_error *error) noexcept nogil:
    """A run; those of it that are stragglers by now are left out."""
    cdef uint64_t here, next_id
    cdef uint64_t index = id_at_least(load, id) if load.id_count else 0
    cdef int status
    while count:
        here = count if count < RUN_COUNT_MAX else RUN_COUNT_MAX
        if index < load.id_count and load.ids[index] < id + here:
            here = load.ids[index] - id
            index += 1
            next_id = id + here + 1
        else:
            next_id = id + here
        status = provide(load.h, here, error)
        if status != ROTA_OK:
            return status
        if here and append_plain(load.h, queue, level, id, <uint32_t>here, load.place[file],
                                 cell) < 0:
            return load_refuse("a message finds no place", error)
        load.live[file] += <uint32_t>here
        count -= next_id - id
        cell += next_id - id
        id = next_id
    return ROTA_OK


cdef int add_detailed(Load *load, rota_queue *queue, uint32_t level, uint64_t id, uint32_t file, uint64_t cell,
                      const Details *details, rota_error *error) noexcept nogil:
    cdef uint64_t index = id_at_least(load, id)
    cdef rota_slot_ref ref
    cdef int status
    if index < load.id_count and load.ids[index] == id:
        return ROTA_OK
    if details.state == ROTA_SLOT_FRESH and queue.options.order == ROTA_ORDER_GROUP and details.term_count \
            and details.terms[0] & 15 == KEY_ORDINAL:
        return load_refuse("a message with a key lies outside its order", error)
    status = provide(load.h, 1, error)
    if status != ROTA_OK:
        return status
    ref = append_slot(load.h, queue, level, id,
                      rota_slot_word(load.place[file], cell, details.state, details.flags))
    if ref == 0 or note_details(load, queue, level, id, ref, details) < 0:
        return load_refuse("a message finds no place", error)
    load.live[file] += 1
    return ROTA_OK


cdef int load_lane(Load *load, rota_queue *queue, uint32_t level, rota_error *error) noexcept nogil:
    """The runs of one lane, in ascending order.  queue is NULL when it is gone: its messages were settled before."""
    cdef rota_image_cursor *cursor = &load.cursor
    cdef Details details
    cdef uint64_t head = rota_image_number(cursor), id = 0, cell_end = 0, file = ROTA_SEGMENT_COUNT_MAX
    cdef uint64_t count, cell
    cdef int status = ROTA_OK
    while head and status == ROTA_OK:
        count = head >> 3
        if head & ROTA_IMAGE_GAP:
            id += rota_image_number(cursor)
        if head & ROTA_IMAGE_FILE:
            file = rota_image_number(cursor)
            cell = rota_image_number(cursor)
        else:
            cell = cell_end + <uint64_t>rota_unzigzag(rota_image_number(cursor))
        if cursor.failed or id == 0 or count == 0 or not place_good(load, file, cell, count) \
                or count >= load.header.next_id or id > load.header.next_id - count \
                or (head & ROTA_IMAGE_DETAILS and count != 1):
            return load_refuse("a run of messages cannot be", error)
        if head & ROTA_IMAGE_DETAILS:
            if not read_details(cursor, &details):
                return load_refuse("the details of a message cannot be", error)
            if queue != NULL:
                status = add_detailed(load, queue, level, id, <uint32_t>file, cell, &details, error)
        elif queue != NULL:
            status = add_plain(load, queue, level, id, count, <uint32_t>file, cell, error)
        id += count
        cell_end = cell + count
        head = rota_image_number(cursor)
    return status


cdef int load_lanes(Load *load, rota_error *error) noexcept nogil:
    cdef uint64_t number = rota_image_number(&load.cursor), level
    cdef rota_queue *queue
    cdef int status
    while number:
        level = rota_image_byte(&load.cursor)
        queue = queue_at(load.h, <uint32_t>(number - 1)) if number <= ROTA_QUEUE_COUNT_MAX else NULL
        if level > 9 or (queue != NULL and queue.lanes[level].tail):
            return load_refuse("a lane cannot be", error)
        status = load_lane(load, queue, <uint32_t>level, error)
        if status != ROTA_OK:
            return status
        number = rota_image_number(&load.cursor)
    return ROTA_OK


# --- segments --------------------------------------------------------------------------------------------------------


cdef int load_segments(Load *load, log_reader *reader, rota_error *error) noexcept nogil:
    """How many cells of each file lie below the begin, and where they are now."""
    cdef rota_handle *h = load.h
    cdef rota_image_segment noted
    cdef uint64_t size = h.segment_size
    cdef uint32_t i
    cdef int found
    if load.header.segment_count > ROTA_SEGMENT_COUNT_MAX:
        return load_refuse("it names too many segments", error)
    load.segments = rota_image_bytes(&load.cursor, load.header.segment_count * sizeof(rota_image_segment))
    for i in range(load.header.segment_count if load.segments != NULL else 0):
        memcpy(&noted, load.segments + i * sizeof(noted), sizeof(noted))
        if noted.file >= ROTA_SEGMENT_COUNT_MAX or noted.first_lsn % size != ROTA_SEGMENT_HEADER_SIZE \
                or noted.end_lsn < noted.first_lsn or noted.end_lsn > load.header.begin_lsn \
                or noted.end_lsn - noted.first_lsn > size - ROTA_SEGMENT_HEADER_SIZE or load.limit[noted.file]:
            return load_refuse("a segment cannot be", error)
        load.limit[noted.file] = <uint32_t>((noted.end_lsn - noted.first_lsn + ROTA_SEGMENT_HEADER_SIZE) // ROTA_CELL)
        found = reader_find(reader, noted.first_lsn)
        load.place[noted.file] = <uint32_t>found if found >= 0 else NO_FILE
    return ROTA_OK if load.segments != NULL else load_refuse("its segments are missing", error)


cdef int settle_segments(Load *load, log_reader *reader, rota_error *error) noexcept nogil:
    """Files with live frames are sealed, and the file of the begin knows how many frames lie below it."""
    cdef rota_control *control = load.h.control
    cdef rota_segment *segment
    cdef rota_image_segment noted
    cdef uint32_t i, file
    for i in range(load.header.segment_count):
        memcpy(&noted, load.segments + i * sizeof(noted), sizeof(noted))
        file = load.place[noted.file]
        if file == NO_FILE:
            if load.live[noted.file]:
                return rota_fail(error, ROTA_CORRUPT, "checkpoint", noted.first_lsn, "the segment at this position "
                                "holds %u messages and is missing (file %u)", load.live[noted.file], noted.file)
            continue
        segment = &control.segments[file]
        if load.live[noted.file] > noted.frames:
            return load_refuse("a segment holds more messages than frames", error)
        reader.files[file].frames_before = noted.frames
        if load.live[noted.file] or segment.state == ROTA_SEGMENT_SEALED:
            segment.dead = noted.frames - load.live[noted.file]
        if load.live[noted.file] and segment.state != ROTA_SEGMENT_SEALED:
            segment.state = ROTA_SEGMENT_SEALED
            segment.end_lsn = noted.end_lsn
            segment.frames = noted.frames
    return ROTA_OK


# --- all of it -------------------------------------------------------------------------------------------------------


cdef int load_stream(Load *load, log_reader *reader, rota_error *error) noexcept nogil:
    """The parts in their order."""
    cdef rota_handle *h = load.h
    cdef const uint8_t *head
    cdef int status
    rota_image_begin(&load.cursor, load.bytes, load.length)
    head = rota_image_bytes(&load.cursor, sizeof(rota_image_header))
    if head == NULL:
        return load_refuse("its header is missing", error)
    memcpy(&load.header, head, sizeof(rota_image_header))
    if load.header.begin_lsn != h.manifest.checkpoint_begin or load.header.bytes != load.length \
            or load.header.straggler_count > load.length or load.header.next_id == 0:
        return load_refuse("its header cannot be", error)
    load.limit = <uint32_t *>calloc(ROTA_SEGMENT_COUNT_MAX, sizeof(uint32_t))
    load.live = <uint32_t *>calloc(ROTA_SEGMENT_COUNT_MAX, sizeof(uint32_t))
    load.place = <uint32_t *>calloc(ROTA_SEGMENT_COUNT_MAX, sizeof(uint32_t))
    load.ids = <uint64_t *>malloc((load.header.straggler_count + 1) * sizeof(uint64_t))
    if load.limit == NULL or load.live == NULL or load.place == NULL or load.ids == NULL:
        return rota_fail(error, ROTA_NO_MEMORY, NULL, 0, "no memory for the checkpoint")
    status = load_segments(load, reader, error)
    if status == ROTA_OK:
        status = load_queues(load, error)
    if status == ROTA_OK:
        status = load_stragglers(load, error)
    if status == ROTA_OK:
        qsort(load.ids, load.id_count, sizeof(uint64_t), by_size)
        status = load_lanes(load, error)
    if status == ROTA_OK:
        status = link_later(load, error)
    if status == ROTA_OK:
        status = load_registrations(load, error)
    if status == ROTA_OK:
        status = load_keys(load, error)
    if status == ROTA_OK and (load.cursor.failed or load.cursor.left):
        status = load_refuse("it ends elsewhere", error)
    if status == ROTA_OK:
        status = settle_segments(load, reader, error)
    return status


cdef int checkpoint_load(rota_handle *h, log_reader *reader, rota_error *error) noexcept nogil:
    """Everything below the begin into the control file; the replay goes on from there."""
    cdef Load load
    cdef int status
    memset(&load, 0, sizeof(Load))
    load.h = h
    status = load_blocks(&load, reader, error)
    if status == ROTA_OK:
        status = load_stream(&load, reader, error)
    if status == ROTA_OK:
        rota_settle_undo(h)
        if load.header.next_id > h.control.log.next_id:
            h.control.log.next_id = load.header.next_id
        if load.header.time_ns > h.control.log.time_ns:
            h.control.log.time_ns = load.header.time_ns
        h.control.checkpoint_bytes = load.length
    free(load.bytes)
    free(load.limit)
    free(load.live)
    free(load.place)
    free(load.ids)
    free(load.later)
    return status
