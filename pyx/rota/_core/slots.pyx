"""States of slots: what a message is while it lives, and how it ends.

What holds (all of it under the main lock, inside an undo section):

1. leave_ready() takes a slot out of the counts of its present state, then it is put into another one, or ends.
2. A slot that ends takes its history, its expiry and its place among the stragglers with it, and its frame is dead.
3. A chunk or a page of stragglers that holds none that live is given back at once.
"""

from engine.control cimport *
from engine.format cimport *
from engine.pool cimport *
from engine.term cimport ROTA_TERM_SCORE

from rota._core.index cimport in_order_of_group, is_head, posting_of, unlink_terms
from rota._core.lane cimport *


cdef bint ahead_of_cursor(rota_handle *h, const Found *found) noexcept nogil:
    """Whether the cursor has not come to this slot yet (ordered slots only)."""
    cdef rota_page *page
    if found.page.kind != ROTA_PAGE_CHUNK:
        return False
    if found.lane.cursor == 0:
        return True
    if found.lane.cursor == found.number:
        return found.index >= found.lane.cursor_index
    page = rota_page_at(h, found.lane.cursor)
    return found.page.sequence > page.sequence


cdef void set_word(rota_handle *h, rota_slot *slot, uint64_t word) noexcept nogil:
    rota_save(h, slot)
    slot.word = word


cdef void frame_dead(rota_handle *h, uint64_t word) noexcept nogil:
    """The frame at this place is no longer the place of a live message."""
    cdef rota_segment *segment
    if rota_slot_file(word) < ROTA_SEGMENT_COUNT_MAX:
        segment = &h.control.segments[rota_slot_file(word)]
        rota_save(h, segment)
        segment.dead += 1


cdef void forget_history(rota_handle *h, rota_slot *slot) noexcept nogil:
    """A settled message needs neither counts nor a place among the stragglers."""
    cdef unsigned flags = rota_slot_flags(slot.word)
    if flags & ROTA_SLOT_HISTORY:
        rota_save(h, &h.control.tables[ROTA_TABLE_HISTORY])
        rota_table_remove(h, &h.control.tables[ROTA_TABLE_HISTORY], slot.id)
    if flags & ROTA_SLOT_STRAGGLER:
        rota_save(h, &h.control.tables[ROTA_TABLE_STRAGGLERS])
        rota_table_remove(h, &h.control.tables[ROTA_TABLE_STRAGGLERS], slot.id)
    if flags & ROTA_SLOT_EXPIRES:
        rota_save(h, &h.control.tables[ROTA_TABLE_EXPIRY])
        rota_table_remove(h, &h.control.tables[ROTA_TABLE_EXPIRY], slot.id)


cdef void leave_ready(rota_handle *h, Found *found) noexcept nogil:
    """Take a slot out of the counts of its present state.  The claim line is saved by the caller."""
    cdef unsigned state = rota_slot_state(found.slot.word)
    if state == ROTA_SLOT_FRESH:
        if ahead_of_cursor(h, found):
            found.lane.consumed += 1
            rota_save(h, found.page)
            found.page.irregular += 1
    elif state == ROTA_SLOT_RETURNED:
        if not rota_slot_flags(found.slot.word) & ROTA_SLOT_CLAIMED:
            found.lane.returned -= 1
    elif state == ROTA_SLOT_DELAYED:
        found.lane.delayed -= 1
    elif state == ROTA_SLOT_PARKED:
        found.lane.parked -= 1
    elif state == ROTA_SLOT_WAITING:
        rota_save(h, &found.queue.due)
        found.queue.waiting -= 1


cdef void leave_index(rota_handle *h, Found *found) noexcept nogil:
    """Take a slot that ends or moves out of the index; the next message of its key has its turn, if it waits."""
    cdef rota_slot_ref following = unlink_terms(h, found)
    cdef Found other
    if following and found.queue.options.order == ROTA_ORDER_GROUP \
            and rota_slot_state(rota_slot_at(h, following).word) == ROTA_SLOT_WAITING:
        found_at(h, found.queue, found.level, following, &other)
        save_claim_line(h, other.lane)
        leave_ready(h, &other)
        make_ready(h, &other, order_of(h, other.slot))  # room for the push was made by note_blocked()


cdef inline void count_end(rota_queue *queue, unsigned state, uint64_t count) noexcept nogil:
    if state == ROTA_SLOT_ACKED:
        queue.acks += count
    elif state == ROTA_SLOT_KILLED:
        queue.killed += count
    elif state == ROTA_SLOT_EXPIRED:
        queue.expired += count
    else:
        queue.moved += count


cdef void settle_slot(rota_handle *h, Found *found, unsigned state) noexcept nogil:
    """End one live message: ACKED, KILLED, EXPIRED or MOVED."""
    cdef unsigned flags = rota_slot_flags(found.slot.word)
    if not rota_slot_live(found.slot.word):
        return
    save_claim_line(h, found.lane)
    leave_ready(h, found)
    if flags & ROTA_SLOT_KEYED:
        leave_index(h, found)
    if state != ROTA_SLOT_MOVED:
        frame_dead(h, found.slot.word)
        forget_history(h, found.slot)
    elif flags & ROTA_SLOT_STRAGGLER:
        rota_save(h, &h.control.tables[ROTA_TABLE_STRAGGLERS])
        rota_table_remove(h, &h.control.tables[ROTA_TABLE_STRAGGLERS], found.slot.id)
    if flags & (ROTA_SLOT_SUSPECT | ROTA_SLOT_EXPIRES):
        rota_save(h, &found.queue.due)
        if flags & ROTA_SLOT_SUSPECT:
            found.queue.suspects -= 1
        if flags & ROTA_SLOT_EXPIRES:
            found.queue.expiring -= 1
    set_word(h, found.slot, rota_slot_with_state(found.slot.word, state))
    found.lane.settled += 1
    count_end(found.queue, state, 1)
    rota_save(h, found.page)
    found.page.dead += 1
    if found.page.kind == ROTA_PAGE_CHUNK:
        release_if_dead(h, found.queue, found.lane, found.number)
    elif found.number != found.lane.stragglers and found.page.dead >= found.page.count:
        rota_page_give(h, found.number)


cdef inline void frames_dead(rota_handle *h, uint32_t file, uint32_t count) noexcept nogil:
    cdef rota_segment *segment
    if count:
        segment = &h.control.segments[file % ROTA_SEGMENT_COUNT_MAX]
        rota_save(h, segment)
        segment.dead += count


cdef uint64_t settle_run(rota_handle *h, rota_queue *queue, rota_lane *lane, Found *at, uint64_t last_id,
                         unsigned state) noexcept nogil:
    """End the FRESH slots from `at` to `last_id` inside one chunk; returns how many."""
    cdef uint32_t count = chunk_count(lane, at.number, at.page), i = at.index, ahead = 0
    cdef uint64_t ended = 0, word
    cdef uint32_t cursor_from = 0
    cdef rota_slot *slot
    cdef uint32_t file = 0xffffffff, dead = 0  # frames of that file, told to its segment together
    cdef uint64_t plain = <uint64_t>-1  # a word above its cell: FRESH, no flag, of that file
    cdef uint64_t change = rota_slot_word(0, 0, ROTA_SLOT_FRESH, 0) ^ rota_slot_word(0, 0, state, 0)
    cdef rota_page *cursor
    if lane.cursor == at.number:
        cursor_from = lane.cursor_index
    elif lane.cursor:
        cursor = rota_page_at(h, lane.cursor)
        cursor_from = 0 if at.page.sequence > cursor.sequence else count
    cdef rota_slot *slots = rota_page_slot(at.page, 0)
    rota_save(h, at.page)
    while i < count:
        slot = slots + i
        if slot.id > last_id:
            break
        if i == at.index or (<size_t>slot & 63) == 0:
            rota_save(h, slot)
        word = slot.word
        if word >> 28 == plain:
            slot.word = word ^ change
            dead += 1
            ended += 1
            if i >= cursor_from:
                ahead += 1
        elif rota_slot_state(word) == ROTA_SLOT_FRESH:
            if rota_slot_flags(word):
                at.slot = slot
                forget_flags(h, queue, at)
            slot.word = rota_slot_with_state(word, state)
            if rota_slot_file(word) != file:
                frames_dead(h, file, dead)
                file = rota_slot_file(word)
                plain = rota_slot_word(file, 0, ROTA_SLOT_FRESH, 0) >> 28
                dead = 0
            dead += 1
            ended += 1
            if i >= cursor_from:
                ahead += 1
        i += 1
    frames_dead(h, file, dead)
    at.page.dead += <uint32_t>ended
    at.page.irregular += ahead
    lane.consumed += ahead
    lane.settled += ended
    return ended


cdef void forget_flags(rota_handle *h, rota_queue *queue, Found *found) noexcept nogil:
    cdef unsigned flags = rota_slot_flags(found.slot.word)
    if flags & ROTA_SLOT_KEYED:
        leave_index(h, found)
    forget_history(h, found.slot)
    if flags & (ROTA_SLOT_SUSPECT | ROTA_SLOT_EXPIRES):
        rota_save(h, &queue.due)
        if flags & ROTA_SLOT_SUSPECT:
            queue.suspects -= 1
        if flags & ROTA_SLOT_EXPIRES:
            queue.expiring -= 1


cdef uint64_t settle_range(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t first_id, uint64_t last_id,
                           unsigned state) noexcept nogil:
    """End every FRESH slot of the lane from first_id to last_id; returns how many there were."""
    cdef rota_lane *lane = &queue.lanes[level]
    cdef Found at
    cdef uint64_t ended = 0
    cdef uint32_t number, next_number
    cdef uint64_t steps = 0
    save_claim_line(h, lane)
    if not find_in_lane(h, queue, level, first_id, &at):
        if at.number == 0:  # the range starts below the first chunk
            at.number = lane.head
            at.index = 0
        if at.number == 0:
            return 0
    at.queue = queue
    at.lane = lane
    at.level = level
    number = at.number
    while number and steps < 1 << 24:
        at.page = chunk_at(h, number)
        if at.page == NULL or at.page.first_id > last_id:
            break
        at.number = number
        next_number = at.page.next
        ended += settle_run(h, queue, lane, &at, last_id, state)
        release_if_dead(h, queue, lane, number)
        number = next_number
        at.index = 0
        steps += 1
    count_end(queue, state, ended)
    return ended


cdef uint64_t order_of(rota_handle *h, const rota_slot *slot) noexcept nogil:
    """Place of a message in the order of its lane: its id, or for a straggler the time of its arrival, or what its
    value makes of it."""
    cdef rota_record *record
    if rota_slot_flags(slot.word) & ROTA_SLOT_KEYED:
        record = posting_of(h, slot.id, ROTA_TERM_SCORE)
        if record != NULL:
            return record.a
    if rota_slot_flags(slot.word) & ROTA_SLOT_STRAGGLER:
        record = rota_table_find(h, &h.control.tables[ROTA_TABLE_STRAGGLERS], slot.id)
        if record != NULL and record.c:
            return record.c
    return slot.id


cdef int make_ready(rota_handle *h, Found *found, uint64_t order) noexcept nogil:
    """Put a live slot (taken out of its state by leave_ready) among the returned ones of its lane, or let it wait
    while an older message of its key lives.  The claim line is saved by the caller."""
    cdef unsigned flags = rota_slot_flags(found.slot.word) & ~<unsigned>ROTA_SLOT_CLAIMED
    cdef uint64_t word = rota_slot_with_state(found.slot.word, ROTA_SLOT_RETURNED)
    cdef bint grouped = in_order_of_group(found.queue, flags)
    cdef int result
    if grouped and not is_head(h, found.slot.id):
        word = rota_slot_with_state(found.slot.word, ROTA_SLOT_WAITING)
        set_word(h, found.slot, rota_slot_with_flags(word, flags))
        rota_save_once(h, &found.queue.due)
        found.queue.waiting += 1
        return 0
    set_word(h, found.slot, rota_slot_with_flags(word, flags | ROTA_SLOT_HEAPED))
    found.lane.returned += 1
    if flags & ROTA_SLOT_HEAPED:
        return 0  # its entry was left behind by a claim that chose it
    result = rota_heap_push(h, &found.lane.heap, order, found.slot.id, rota_ref(found.number, found.index))
    if grouped and result == 0:
        result = rota_heap_reserve(h, &found.lane.heap, found.queue.blocked_keys)
    return result


cdef int make_delayed(rota_handle *h, Found *found, uint64_t due_ns) noexcept nogil:
    """Put a live slot (taken out of its state) among the delayed ones of its queue."""
    cdef unsigned flags = rota_slot_flags(found.slot.word) & ~<unsigned>ROTA_SLOT_CLAIMED
    cdef uint64_t word = rota_slot_with_state(found.slot.word, ROTA_SLOT_DELAYED)
    set_word(h, found.slot, rota_slot_with_flags(word, flags))
    found.lane.delayed += 1
    rota_save_once(h, &found.queue.due)
    return rota_heap_push(h, &found.queue.due, due_ns, found.slot.id, rota_ref(found.number, found.index))
