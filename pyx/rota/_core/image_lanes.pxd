# The lanes of an image.
from libc.stdint cimport uint32_t, uint64_t

from engine.control cimport rota_page, rota_queue, rota_slot
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.image cimport Image, Stream

cdef bint image_reserve(Image *image) noexcept nogil
cdef void image_details(rota_handle *h, Image *image, Stream *out, const rota_slot *slot,
                        uint64_t order) noexcept nogil
cdef int image_lanes(rota_handle *h, Image *image, rota_error *error) noexcept nogil
cdef rota_page *chunk_behind(rota_handle *h, rota_queue *queue, uint32_t level, uint64_t last_id,
                             uint32_t *number) noexcept nogil
