# The hash tables of an image.
from libc.stdint cimport uint64_t

from engine.control cimport rota_page, rota_table
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.image cimport Image

cdef int image_stragglers(rota_handle *h, Image *image, rota_error *error) noexcept nogil
cdef int image_registrations(rota_handle *h, Image *image, rota_error *error) noexcept nogil
cdef rota_page *bucket_of(rota_handle *h, const rota_table *table, uint64_t hash, uint64_t *behind) noexcept nogil
cdef int image_keys(rota_handle *h, Image *image, rota_error *error) noexcept nogil
