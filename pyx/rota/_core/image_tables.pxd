# The hash tables of an image.
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.image cimport Image

cdef int image_stragglers(rota_handle *h, Image *image, rota_error *error) noexcept nogil
cdef int image_registrations(rota_handle *h, Image *image, rota_error *error) noexcept nogil
