# Slots of a lane: append, find, change of state.  Called under the main lock, inside an undo section.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport (ROTA_PAGE_QUEUE, ROTA_QUEUE_COUNT_MAX, rota_lane, rota_page, rota_queue, rota_slot,
                             rota_slot_ref)
from engine.handle cimport rota_handle
from engine.pool cimport rota_page_at, rota_ref_index, rota_ref_page, rota_save, rota_slot_at

# Where a message was found.
ctypedef struct Found:
    rota_slot *slot
    rota_page *page
    rota_queue *queue
    rota_lane *lane
    uint32_t number     # of the page
    uint32_t index
    uint32_t level

cdef int append_plain(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t first_id, uint32_t count,
                      uint32_t file, uint64_t cell) noexcept nogil
cdef rota_slot_ref append_slot(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t id,
                               uint64_t word) noexcept nogil
cdef rota_slot_ref append_straggler(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t id,
                                    uint64_t word) noexcept nogil
cdef bint find_in_lane(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t id, Found *found) noexcept nogil
cdef bint find(rota_handle *h, rota_queue *queue, uint64_t id, Found *found) noexcept nogil
cdef void release_if_dead(rota_handle *h, rota_queue *queue, rota_lane *lane, uint32_t number) noexcept nogil
cdef rota_page *chunk_at(rota_handle *h, uint32_t number) noexcept nogil
cdef void release_chunk(rota_handle *h, rota_queue *queue, rota_lane *lane, uint32_t number) noexcept nogil
cdef uint64_t queue_ready(const rota_queue *queue) noexcept nogil
cdef uint64_t queue_live(const rota_queue *queue) noexcept nogil
cdef uint32_t chunk_count(const rota_lane *lane, uint32_t number, const rota_page *page) noexcept nogil
cdef uint32_t lane_pages(const rota_lane *lane, uint64_t count) noexcept nogil


cdef inline rota_queue *queue_at(rota_handle *h, uint32_t number) noexcept nogil:
    """The queue of that number, or NULL."""
    cdef rota_queue *queue
    if number >= ROTA_QUEUE_COUNT_MAX or h.control.queues[number] == 0:
        return NULL
    queue = <rota_queue *>rota_page_at(h, h.control.queues[number])
    return queue if queue.page.kind == ROTA_PAGE_QUEUE and queue.number == number else NULL


cdef inline void found_at(rota_handle *h, rota_queue *queue, uint32_t level, rota_slot_ref ref,
                          Found *found) noexcept nogil:
    """What find() would say of a slot whose address is known."""
    found.queue = queue
    found.level = level
    found.lane = &queue.lanes[level]
    found.number = rota_ref_page(ref)
    found.index = rota_ref_index(ref)
    found.page = rota_page_at(h, found.number)
    found.slot = rota_slot_at(h, ref)


cdef inline void save_put_line(rota_handle *h, rota_lane *lane) noexcept nogil:
    rota_save(h, &lane.head)


cdef inline void save_claim_line(rota_handle *h, rota_lane *lane) noexcept nogil:
    rota_save(h, &lane.cursor)


cdef inline void use_level(rota_handle *h, rota_queue *queue, uint32_t level) noexcept nogil:
    """The lane has a message now, or had one: lanes that never had are passed over."""
    if not queue.levels >> level & 1:
        rota_save(h, &queue.due)
        queue.levels |= <uint32_t>1 << level


cdef inline uint64_t lane_ready(const rota_lane *lane) noexcept nogil:
    return lane.appended_fresh - lane.consumed + lane.returned


cdef inline uint64_t lane_live(const rota_lane *lane) noexcept nogil:
    return lane.appended - lane.settled
