"""From a frame to its slot: what a message is when it arrives, and what the tables know of it.

What holds (under the main lock, inside an undo section): a message with a due time, an expiry or an indexed field gets
its slot here, all others by append_plain() (lane.pyx).
"""

from engine.control cimport *
from engine.format cimport *
from engine.frame cimport rota_attribute_u64
from engine.pool cimport *
from engine.status cimport *

from rota._core.index cimport KEY_ORDINAL, link_terms, queue_terms
from rota._core.lane cimport *
from rota._core.slots cimport *


cdef int place_frame(rota_handle *h, const rota_frame *frame, const uint8_t *attributes, uint64_t id, uint32_t file,
                     uint64_t cell, uint64_t now_ns) noexcept nogil:
    """Add one message to its lane and index, delayed, ready or waiting, from its frame header and attributes."""
    cdef rota_queue *queue = queue_at(h, frame.queue)
    cdef uint64_t due = 0, expiry = 0
    cdef unsigned flags = 0, state = ROTA_SLOT_FRESH
    cdef rota_lane *lane
    cdef rota_record *record
    cdef rota_slot_ref ref
    cdef rota_terms terms
    if queue == NULL or frame.priority > 9:
        return ROTA_OK
    lane = &queue.lanes[frame.priority]
    if queue.index_mask:
        queue_terms(h, queue, attributes, frame.attribute_bytes, &terms)
        if terms.count or terms.has_score:
            flags = ROTA_SLOT_KEYED
            state = ordered_state(queue, &terms)
    if frame.flags & ROTA_FRAME_DUE:
        rota_attribute_u64(attributes, frame.attribute_bytes, ROTA_ATTRIBUTE_DUE, &due)
    if frame.flags & ROTA_FRAME_EXPIRES:
        rota_attribute_u64(attributes, frame.attribute_bytes, ROTA_ATTRIBUTE_EXPIRY, &expiry)
    rota_save_once(h, &lane.head)
    if due > now_ns:
        state = ROTA_SLOT_DELAYED
        rota_save_once(h, &lane.cursor)
    if expiry:
        flags |= ROTA_SLOT_EXPIRES
    ref = append_slot(h, queue, frame.priority, id, rota_slot_word(file, cell, state, flags))
    if ref == 0:
        return ROTA_DISK_FULL
    if expiry:
        rota_save_once(h, &queue.due)
        queue.expiring += 1
        note_expiry(h, ref, expiry)
        rota_save_once(h, &h.control.tables[ROTA_TABLE_EXPIRY])
        record = rota_table_put(h, &h.control.tables[ROTA_TABLE_EXPIRY], id)
        if record == NULL:
            return ROTA_DISK_FULL
        record.a = expiry
    if state == ROTA_SLOT_DELAYED:
        lane.delayed += 1
        rota_save_once(h, &queue.due)
        if rota_heap_push(h, &queue.due, due, id, ref) < 0:
            return ROTA_DISK_FULL
    return index_slot(h, queue, frame.priority, ref, &terms, now_ns) if flags & ROTA_SLOT_KEYED else ROTA_OK


cdef inline unsigned ordered_state(const rota_queue *queue, const rota_terms *terms) noexcept nogil:
    """What a message that is not delayed is made as: where another order than that of ids holds it is never FRESH, or
    a range of ids could settle it."""
    if queue.options.order == ROTA_ORDER_HIGHEST:
        return ROTA_SLOT_RETURNED
    if queue.options.order == ROTA_ORDER_GROUP and terms.count and terms.terms[0] & 15 == KEY_ORDINAL:
        return ROTA_SLOT_RETURNED
    return ROTA_SLOT_FRESH


cdef int index_slot(rota_handle *h, rota_queue *queue, uint32_t level, rota_slot_ref ref, const rota_terms *terms,
                    uint64_t arrival_ns) noexcept nogil:
    """Enter a new slot into the index; one that is RETURNED becomes ready, or waits for its turn."""
    cdef Found found
    cdef int status
    found_at(h, queue, level, ref, &found)
    status = link_terms(h, &found, terms, arrival_ns)
    if status != ROTA_OK or rota_slot_state(found.slot.word) != ROTA_SLOT_RETURNED:
        return status
    rota_save_once(h, &found.lane.cursor)
    return ROTA_OK if make_ready(h, &found, order_of(h, found.slot)) == 0 else ROTA_DISK_FULL


cdef void note_expiry(rota_handle *h, rota_slot_ref ref, uint64_t expiry) noexcept nogil:
    """The chunk knows the earliest expiry in it, so a sweep passes over the others."""
    cdef rota_page *page = rota_page_at(h, rota_ref_page(ref))
    rota_save_once(h, page)
    if expiry < page.min_expiry_ns:
        page.min_expiry_ns = expiry
