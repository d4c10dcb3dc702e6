"""The lanes of an image: runs of messages that lie as they came, and the details of those that do not.

What holds:

1. One chunk for each hold of the main lock; memory for all that a chunk can say is there before the lock is taken.
2. Between two holds chunks come and go, so the walk goes on by id: ids ascend in a lane, and what is appended
   meanwhile lies above the begin.
3. A run is one commit's messages with ids and cells in a row, all FRESH and without flags: its slots differ by one.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport realloc

from engine.control cimport *
from engine.format cimport ROTA_SEGMENT_COUNT_MAX
from engine.image cimport *
from engine.pool cimport *
from engine.status cimport *
from engine.term cimport ROTA_TERM_COUNT_MAX, ROTA_TERM_SCORE

from rota._core.image cimport *
from rota._core.index cimport posting_of
from rota._core.lane cimport Found, chunk_count, find_in_lane, queue_at
from rota._core.lock cimport lock_enter, lock_leave

cdef enum:
    SLOT_BYTES = 240                      # at most, in the stream
    KEPT_FLAGS = 1 | 2 | 4 | 8 | 16 | 64  # all but CLAIMED


cdef void image_details(rota_handle *h, Image *image, Stream *out, const rota_slot *slot,
                      uint64_t order) noexcept nogil:
    """What the frame and the place in the lane do not say.  `order` is not 0 for a straggler."""
    cdef unsigned flags = rota_slot_flags(slot.word) & KEPT_FLAGS
    cdef unsigned state = rota_slot_state(slot.word)
    cdef rota_record *history = NULL
    cdef rota_record *expiry = NULL
    cdef unsigned has = 0
    if flags & ROTA_SLOT_HISTORY:
        history = rota_table_find(h, &h.control.tables[ROTA_TABLE_HISTORY], slot.id)
    if flags & ROTA_SLOT_EXPIRES:
        expiry = rota_table_find(h, &h.control.tables[ROTA_TABLE_EXPIRY], slot.id)
    flags &= ~<unsigned>(ROTA_SLOT_HISTORY | ROTA_SLOT_EXPIRES)
    if history != NULL:
        flags |= ROTA_SLOT_HISTORY
        has |= ROTA_IMAGE_COUNTS
    if expiry != NULL:
        flags |= ROTA_SLOT_EXPIRES
        has |= ROTA_IMAGE_EXPIRY
    has |= ROTA_IMAGE_DUE if state == ROTA_SLOT_DELAYED else 0
    has |= ROTA_IMAGE_ORDER if order else 0
    has |= ROTA_IMAGE_TERMS if flags & ROTA_SLOT_KEYED else 0
    put_byte(out, state)
    put_byte(out, flags)
    put_byte(out, has)
    if history != NULL:
        put_number(out, <uint32_t>history.a)
        put_number(out, history.a >> 32)
    if state == ROTA_SLOT_DELAYED:
        if history == NULL or history.b == 0:
            image.unknown[image.unknown_count].offset = out.length
            image.unknown[image.unknown_count].word = slot.word
            image.unknown[image.unknown_count].in_lanes = out == &image.lanes
            image.unknown_count += 1
        put_u64(out, history.b if history != NULL else 0)
    if expiry != NULL:
        put_u64(out, expiry.a)
    if order:
        put_number(out, order)
    if flags & ROTA_SLOT_KEYED:
        image_terms(h, out, slot.id)


cdef void image_terms(rota_handle *h, Stream *out, uint64_t id) noexcept nogil:
    """What the index has of a message."""
    cdef uint64_t at = out.length
    cdef uint32_t ordinal, count = 0
    cdef const rota_record *posting
    put_byte(out, 0)
    for ordinal in range(ROTA_TERM_COUNT_MAX):
        posting = posting_of(h, id, ordinal)
        if posting == NULL:
            continue
        count += 1
        if ordinal == ROTA_TERM_SCORE:
            put_u64(out, ROTA_TERM_SCORE)
        put_u64(out, posting.a)
    out.bytes[at] = <uint8_t>count


cdef void end_run(Image *image, unsigned details) noexcept nogil:
    """Write the run that was growing."""
    cdef Run *run = &image.run
    cdef Stream *out = &image.lanes
    cdef uint64_t cell = rota_slot_cell(run.first_word)
    cdef uint32_t file = rota_slot_file(run.first_word)
    cdef unsigned bits = details
    if run.count == 0:
        return
    if run.first_id != run.last_end:
        bits |= ROTA_IMAGE_GAP
    if file != run.file:
        bits |= ROTA_IMAGE_FILE
    put_number(out, run.count << 3 | bits)
    if bits & ROTA_IMAGE_GAP:
        put_number(out, run.first_id - run.last_end)
    if bits & ROTA_IMAGE_FILE:
        put_number(out, file)
        put_number(out, cell)
    else:
        put_number(out, rota_zigzag(<int64_t>cell - <int64_t>run.cell_end))
    run.file = file
    run.cell_end = cell + run.count
    run.last_end = run.first_id + run.count
    image.messages += run.count
    image.live[file] += <uint32_t>run.count
    run.count = 0


cdef inline void start_run(Image *image, const rota_slot *slot) noexcept nogil:
    image.run.first_id = slot.id
    image.run.first_word = slot.word
    image.run.next_id = slot.id + 1
    image.run.next_word = slot.word + 1
    image.run.count = 1


cdef void walk_slots(rota_handle *h, Image *image, const rota_slot *slot, const rota_slot *end) noexcept nogil:
    """The live ones among the slots of one chunk; the lock is held, the room is there."""
    cdef uint64_t word
    while slot < end:
        word = slot.word
        if image.run.count and word == image.run.next_word and slot.id == image.run.next_id:
            image.run.next_word += 1  # the next cell of the same commit, as plain as the one before
            image.run.next_id += 1
            image.run.count += 1
        elif rota_slot_live(word) and is_below(image, word):
            end_run(image, 0)
            start_run(image, slot)
            if rota_slot_state(word) != ROTA_SLOT_FRESH or rota_slot_flags(word):
                end_run(image, ROTA_IMAGE_DETAILS)
                image_details(h, image, &image.lanes, slot, 0)
        slot += 1


cdef bint image_reserve(Image *image) noexcept nogil:
    """Room for whatever one chunk or one bucket holds."""
    cdef Unknown *moved
    if image.unknown_count + ROTA_LARGE_SLOTS > image.unknown_size:
        moved = <Unknown *>realloc(image.unknown, (2 * image.unknown_size + ROTA_LARGE_SLOTS) * sizeof(Unknown))
        if moved == NULL:
            return False
        image.unknown = moved
        image.unknown_size = 2 * image.unknown_size + ROTA_LARGE_SLOTS
    return stream_reserve(&image.lanes, (ROTA_LARGE_SLOTS + 2) * SLOT_BYTES) \
        and stream_reserve(&image.stragglers, (ROTA_LARGE_SLOTS + 2) * SLOT_BYTES)


cdef rota_page *chunk_behind(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t last_id,
                             uint32_t *number) noexcept nogil:
    """The first chunk that may hold an id above last_id, or NULL.  Chunks come and go between two holds."""
    cdef rota_lane *lane = &queue.lanes[level]
    cdef rota_page *page
    cdef uint32_t count
    cdef Found found
    number[0] = lane.head
    if last_id:
        find_in_lane(h, queue, level, last_id, &found)
        if found.number:
            number[0] = found.number
    while number[0]:
        page = rota_page_at(h, number[0])
        if page.kind != ROTA_PAGE_CHUNK:
            return NULL
        count = chunk_count(lane, number[0], page)
        if count and rota_page_slot(page, count - 1).id > last_id:
            return page
        number[0] = page.next
    return NULL


cdef int walk_lane(rota_handle *h, Image *image, uint32_t queue_number, uint32_t level,
                   rota_error *error) noexcept nogil:
    """The ordered messages of one lane, a chunk for each hold of the lock."""
    cdef rota_queue *queue
    cdef rota_page *page = NULL
    cdef rota_slot *slot
    cdef uint64_t last_id = 0
    cdef uint32_t number, count, index
    cdef int status
    while last_id < image.next_id:
        if not image_reserve(image):
            return image_no_memory(error)
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        queue = queue_at(h, queue_number)
        page = chunk_behind(h, queue, level, last_id, &number) if queue != NULL else NULL
        if page != NULL:
            count = chunk_count(&queue.lanes[level], number, page)
            slot = rota_page_slot(page, 0)
            index = 0
            while index < count and slot[index].id <= last_id:
                index += 1
            walk_slots(h, image, slot + index, slot + count)
            last_id = slot[count - 1].id
        lock_leave(h)
        if page == NULL:
            break
    end_run(image, 0)
    return ROTA_OK


cdef int image_lanes(rota_handle *h, Image *image, rota_error *error) noexcept nogil:
    cdef rota_queue *queue
    cdef uint32_t number, level, used
    cdef uint64_t before
    cdef int status
    for number in range(ROTA_QUEUE_COUNT_MAX):
        if h.control.queues[number] == 0:
            continue
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        queue = queue_at(h, number)
        used = 0
        for level in range(10 if queue != NULL else 0):
            used |= <uint32_t>(queue.lanes[level].tail != 0) << level
        lock_leave(h)
        for level in range(10):
            if not used >> level & 1:
                continue
            if not image_reserve(image):
                return image_no_memory(error)
            before = image.lanes.length
            put_number(&image.lanes, number + 1)
            put_byte(&image.lanes, level)
            image.run.last_end = 0
            image.run.cell_end = 0
            image.run.file = 0xffffffff
            status = walk_lane(h, image, number, level, error)
            if status != ROTA_OK:
                return status
            if image.run.last_end:
                put_byte(&image.lanes, 0)
            else:
                image.lanes.length = before  # nothing lives in it
    if not image_reserve(image):
        return image_no_memory(error)
    put_byte(&image.lanes, 0)
    return ROTA_OK
