from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport rota_queue, rota_slot
from engine.handle cimport rota_handle

from rota._core.lane cimport Found

cdef bint ahead_of_cursor(rota_handle *h, const Found *found) noexcept nogil
cdef void set_word(rota_handle *h, rota_slot *slot, uint64_t word) noexcept nogil
cdef void settle_slot(rota_handle *h, Found *found, unsigned state) noexcept nogil
cdef uint64_t settle_range(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t first_id, uint64_t last_id,
                           unsigned state) noexcept nogil
cdef int make_ready(rota_handle *h, Found *found, uint64_t order) noexcept nogil
cdef int make_delayed(rota_handle *h, Found *found, uint64_t due_ns) noexcept nogil
cdef void leave_ready(rota_handle *h, Found *found) noexcept nogil
cdef void frame_dead(rota_handle *h, uint64_t word) noexcept nogil
cdef uint64_t order_of(rota_handle *h, const rota_slot *slot) noexcept nogil
