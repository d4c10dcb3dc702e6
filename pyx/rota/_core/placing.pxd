# From a frame to its slot.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.control cimport rota_queue, rota_slot_ref
from engine.format cimport rota_frame
from engine.handle cimport rota_handle
from engine.term cimport rota_terms

cdef int place_frame(rota_handle *h, const rota_frame *frame, const uint8_t *attributes, uint64_t id, uint32_t file,
                     uint64_t cell, uint64_t now_ns) noexcept nogil
cdef int index_slot(rota_handle *h, rota_queue *queue, uint32_t level, rota_slot_ref ref, const rota_terms *terms,
                    uint64_t arrival_ns) noexcept nogil
