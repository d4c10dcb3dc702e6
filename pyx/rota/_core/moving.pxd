# Moves between queues, with what the index of the target needs.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.format cimport rota_frame
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.draft cimport Draft

cdef bint frame_attributes(rota_handle *h, uint64_t word, rota_frame *frame, uint8_t *attributes) noexcept nogil
cdef bint message_attributes(rota_handle *h, uint32_t source, uint64_t id, rota_frame *frame,
                             uint8_t *attributes) noexcept nogil
cdef int draft_move(rota_handle *h, Draft *draft, uint32_t source, uint64_t id, uint32_t target, uint64_t counts,
                    uint8_t reason) noexcept nogil
