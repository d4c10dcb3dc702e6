"""Lanes: the order of one queue and priority, as chunks of slots in the control file.

What holds (all of it under the main lock, inside an undo section):

1. The slots of a chunk ascend by id, the chunks of a lane by first_id and sequence.  A message that comes with an
   older id (moved, redriven) lies in a page of stragglers and is found by the table of stragglers.
2. FRESH slots ahead of the cursor are ready, those behind it are in a RANGE claim.  A slot that leaves FRESH never
   becomes FRESH again, so a range of ids names exactly the FRESH slots in it.
3. appended_fresh - consumed = FRESH slots ahead of the cursor; returned = RETURNED slots that nobody holds;
   appended - settled = messages that live.
4. A full chunk whose slots are all settled is given back, wherever it lies; the cursor steps over it first.
5. A lane's line is saved by whoever changes it, once for a section (save_put_line, save_claim_line).
"""

from libc.string cimport memset

from engine.control cimport *
from engine.format cimport *
from engine.pool cimport *


cdef uint64_t queue_ready(const rota_queue *queue) noexcept nogil:
    cdef uint64_t ready = 0
    cdef uint32_t level
    for level in range(10):
        if queue.levels >> level & 1:
            ready += lane_ready(&queue.lanes[level])
    return ready


cdef uint64_t queue_live(const rota_queue *queue) noexcept nogil:
    cdef uint64_t live = 0
    cdef uint32_t level
    for level in range(10):
        if queue.levels >> level & 1:
            live += lane_live(&queue.lanes[level])
    return live


cdef uint32_t lane_pages(const rota_lane *lane, uint64_t count) noexcept nogil:
    """Large pages that `count` more slots may need at most."""
    cdef uint64_t room = 0
    if lane.tail_index < ROTA_SMALL_SLOTS:
        room = ROTA_SMALL_SLOTS - lane.tail_index
    return 0 if count <= room and lane.tail else 1 + <uint32_t>(count // ROTA_LARGE_SLOTS + 1)


cdef uint32_t chunk_count(const rota_lane *lane, uint32_t number, const rota_page *page) noexcept nogil:
    """Slots in use: the tail's number is in the lane."""
    cdef uint32_t count = lane.tail_index if number == lane.tail else page.count
    cdef uint32_t limit = rota_page_slots(page)
    return count if count < limit else limit


cdef rota_page *chunk_at(rota_handle *h, uint32_t number) noexcept nogil:
    cdef rota_page *page = rota_page_at(h, number)
    return page if page.kind == ROTA_PAGE_CHUNK else NULL


cdef uint32_t jump_of(rota_handle *h, rota_page *previous, uint32_t previous_number) noexcept nogil:
    """Where a new chunk behind `previous` jumps to: a skew-binary list, so a search takes O(log n) steps."""
    cdef rota_page *jump
    cdef rota_page *far
    if previous.jump == 0:
        return previous_number
    jump = chunk_at(h, previous.jump)
    if jump == NULL or jump.sequence != previous.jump_sequence or jump.jump == 0:
        return previous_number
    far = chunk_at(h, jump.jump)
    if far == NULL or far.sequence != jump.jump_sequence:
        return previous_number
    if previous.sequence - jump.sequence == jump.sequence - far.sequence:
        return jump.jump
    return previous_number


cdef int new_chunk(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t first_id) noexcept nogil:
    """Link an empty chunk behind the tail: small while the lane is short."""
    cdef rota_lane *lane = &queue.lanes[level]
    cdef bint large = lane_live(lane) >= ROTA_SMALL_SLOTS
    cdef uint32_t number = rota_page_take_large(h, ROTA_PAGE_CHUNK) if large else \
        rota_page_take_small(h, ROTA_PAGE_CHUNK)
    cdef uint32_t old = lane.tail
    cdef rota_page *page
    cdef rota_page *previous
    cdef rota_page *jump
    if number == 0:
        return -1
    use_level(h, queue, level)
    page = rota_page_at(h, number)
    page.queue = queue.number
    page.level = level
    page.sequence = lane.next_sequence
    page.first_id = first_id
    page.min_expiry_ns = <uint64_t>-1
    lane.next_sequence += 1
    if old:
        previous = rota_page_at(h, old)
        rota_save(h, previous)
        previous.count = lane.tail_index
        previous.next = number
        page.previous = old
        page.jump = jump_of(h, previous, old)
        jump = rota_page_at(h, page.jump)
        page.jump_sequence = jump.sequence
    else:
        lane.head = number
    lane.tail = number
    lane.tail_index = 0
    if old:
        release_if_dead(h, queue, lane, old)
    return 0


cdef inline bint tail_is_full(rota_handle *h, rota_lane *lane) noexcept nogil:
    return lane.tail == 0 or lane.tail_index >= rota_page_slots(rota_page_at(h, lane.tail))


cdef int append_plain(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t first_id, uint32_t count,
                      uint32_t file, uint64_t cell) noexcept nogil:
    """Add `count` FRESH messages whose frame headers follow each other.  The put line is saved."""
    cdef rota_lane *lane = &queue.lanes[level]
    cdef uint32_t done = 0, here, i
    cdef rota_page *page
    cdef rota_slot *slot
    cdef uint64_t word = rota_slot_word(file, 0, ROTA_SLOT_FRESH, 0)
    while done < count:
        if tail_is_full(h, lane) and new_chunk(h, queue, level, first_id + done) < 0:
            return -1
        page = rota_page_at(h, lane.tail)
        here = rota_page_slots(page) - lane.tail_index
        if here > count - done:
            here = count - done
        slot = rota_page_slot(page, lane.tail_index)
        for i in range(here):
            slot[i].id = first_id + done + i
            slot[i].word = word | (cell + done + i)
        lane.tail_index += here
        done += here
    lane.last_id = first_id + count - 1
    lane.appended += count
    lane.appended_fresh += count
    return 0


cdef rota_slot_ref append_slot(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t id,
                               uint64_t word) noexcept nogil:
    """Add one slot in any state; 0 when there is no room.  The put line is saved."""
    cdef rota_lane *lane = &queue.lanes[level]
    cdef rota_page *page
    cdef rota_slot *slot
    if tail_is_full(h, lane) and new_chunk(h, queue, level, id) < 0:
        return 0
    page = rota_page_at(h, lane.tail)
    slot = rota_page_slot(page, lane.tail_index)
    slot.id = id
    slot.word = word
    if rota_slot_state(word) == ROTA_SLOT_FRESH:
        lane.appended_fresh += 1
        if rota_slot_flags(word) & ROTA_SLOT_EXPIRES:
            rota_save_once(h, page)
            page.irregular += 1
    else:
        rota_save_once(h, page)
        page.irregular += 1
    lane.tail_index += 1
    lane.last_id = id
    lane.appended += 1
    return rota_ref(lane.tail, lane.tail_index - 1)


cdef rota_slot_ref append_straggler(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t id,
                                    uint64_t word) noexcept nogil:
    """Add a message that keeps an older id; 0 when there is no room.  Both lines of the lane are saved."""
    cdef rota_lane *lane = &queue.lanes[level]
    cdef rota_page *page = rota_page_at(h, lane.stragglers)
    cdef rota_slot *slot
    cdef rota_record *record
    cdef uint32_t number
    if lane.stragglers == 0 or lane.straggler_index >= rota_page_slots(page):
        number = rota_page_take_small(h, ROTA_PAGE_STRAGGLERS)
        if number == 0:
            return 0
        if lane.stragglers:
            rota_save(h, page)
            page.count = lane.straggler_index
        page = rota_page_at(h, number)
        page.queue = queue.number
        page.level = level
        lane.stragglers = number
        lane.straggler_index = 0
    use_level(h, queue, level)
    rota_save(h, &h.control.tables[ROTA_TABLE_STRAGGLERS])
    record = rota_table_put(h, &h.control.tables[ROTA_TABLE_STRAGGLERS], id)
    if record == NULL:
        return 0
    record.a = rota_ref(lane.stragglers, lane.straggler_index)
    record.b = queue.number
    slot = rota_page_slot(page, lane.straggler_index)
    slot.id = id
    slot.word = rota_slot_with_flags(word, rota_slot_flags(word) | ROTA_SLOT_STRAGGLER)
    lane.straggler_index += 1
    lane.appended += 1
    return record.a


cdef uint32_t search(rota_handle *h, rota_lane *lane, uint64_t id) noexcept nogil:
    """Number of the chunk with the highest first_id that is not above `id`; 0 when there is none."""
    cdef uint32_t number = lane.tail
    cdef rota_page *page
    cdef rota_page *jump
    cdef uint64_t steps = 0
    if lane.cursor:
        page = rota_page_at(h, lane.cursor)
        if page.kind == ROTA_PAGE_CHUNK and page.first_id <= id:
            if lane.cursor == lane.tail:
                return lane.cursor
            jump = chunk_at(h, page.next)
            if jump != NULL and jump.first_id > id:
                return lane.cursor
    while number:
        page = chunk_at(h, number)
        steps += 1
        if page == NULL or steps > 1 << 24:
            return 0
        if page.first_id <= id:
            return number
        jump = chunk_at(h, page.jump) if page.jump else NULL
        if jump != NULL and jump.sequence == page.jump_sequence and jump.queue == page.queue \
                and jump.level == page.level and jump.first_id > id:
            number = page.jump
        else:
            number = page.previous
    return 0


cdef bint find_in_chunk(rota_page *page, uint32_t count, uint64_t id, uint32_t *index) noexcept nogil:
    """Binary search, after a guess that the ids are dense."""
    cdef uint32_t low = 0, high = count, middle
    cdef uint64_t guess
    if count == 0 or id < page.first_id:
        return False
    guess = id - rota_page_slot(page, 0).id
    if guess < count and rota_page_slot(page, <uint32_t>guess).id == id:
        index[0] = <uint32_t>guess
        return True
    while low < high:
        middle = (low + high) // 2
        if rota_page_slot(page, middle).id < id:
            low = middle + 1
        else:
            high = middle
    index[0] = low
    return low < count and rota_page_slot(page, low).id == id


cdef bint find_hinted(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t id, Found *found) noexcept nogil:
    """Whether the message of the hint is still where it was: a slot in use of a chunk of this lane."""
    cdef rota_lane *lane = &queue.lanes[level]
    cdef uint64_t ref = h.hint_ref
    cdef uint32_t number = rota_ref_page(ref), index = rota_ref_index(ref)
    cdef rota_page *page = rota_page_at(h, number)
    if page.kind != ROTA_PAGE_CHUNK or page.queue != queue.number or page.level != level \
            or index >= chunk_count(lane, number, page):
        return False
    found.slot = rota_page_slot(page, index)
    found.page = page
    found.queue = queue
    found.lane = lane
    found.number = number
    found.index = index
    found.level = level
    return found.slot.id == id


cdef bint find_in_lane(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t id, Found *found) noexcept nogil:
    """Find a message by id among the ordered slots of one lane."""
    cdef rota_lane *lane = &queue.lanes[level]
    if h.hint_id == id and find_hinted(h, queue, level, id, found):
        return True
    found.number = search(h, lane, id)
    if found.number == 0:
        return False
    found.page = rota_page_at(h, found.number)
    found.queue = queue
    found.lane = lane
    found.level = level
    if not find_in_chunk(found.page, chunk_count(lane, found.number, found.page), id, &found.index):
        return False
    found.slot = rota_page_slot(found.page, found.index)
    h.hint_id = id
    h.hint_ref = rota_ref(found.number, found.index)
    return True


cdef bint find(rota_handle *h, rota_queue *queue, uint64_t id, Found *found) noexcept nogil:
    """Find a live message of the queue by id, in any lane or among the stragglers."""
    cdef rota_record *record
    cdef uint32_t level
    if h.control.tables[ROTA_TABLE_STRAGGLERS].count:
        record = rota_table_find(h, &h.control.tables[ROTA_TABLE_STRAGGLERS], id)
        if record != NULL and record.b == queue.number:
            found.number = rota_ref_page(record.a)
            found.index = rota_ref_index(record.a)
            found.page = rota_page_at(h, found.number)
            found.slot = rota_slot_at(h, record.a)
            if found.page.kind == ROTA_PAGE_STRAGGLERS and found.page.level < 10 and found.slot.id == id:
                found.queue = queue
                found.level = found.page.level
                found.lane = &queue.lanes[found.level]
                return True
    for level in range(10):
        if queue.lanes[level].tail and find_in_lane(h, queue, level, id, found) \
                and rota_slot_state(found.slot.word) != ROTA_SLOT_MOVED:
            return True
    return False


cdef void release_if_dead(rota_handle *h, rota_queue *queue, rota_lane *lane, uint32_t number) noexcept nogil:
    cdef rota_page *page = rota_page_at(h, number)
    if page.kind == ROTA_PAGE_CHUNK and number != lane.tail and page.dead >= page.count:
        release_chunk(h, queue, lane, number)


cdef void release_chunk(rota_handle *h, rota_queue *queue, rota_lane *lane, uint32_t number) noexcept nogil:
    """Unlink a chunk of settled slots and give it back.  The claim line is saved here, the put line too."""
    cdef rota_page *page = rota_page_at(h, number)
    cdef rota_page *other
    save_put_line(h, lane)
    save_claim_line(h, lane)
    if lane.cursor == number or (lane.cursor == 0 and lane.head == number):
        lane.cursor = page.next
        lane.cursor_index = 0
    if page.next:
        other = rota_page_at(h, page.next)
        rota_save(h, other)
        other.previous = page.previous
    if page.previous:
        other = rota_page_at(h, page.previous)
        rota_save(h, other)
        other.next = page.next
    else:
        lane.head = page.next
    rota_page_give(h, number)
