"""Checkpoints: placeholder until they are written here."""

from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int checkpoint(rota_handle *h, rota_error *error) noexcept nogil:
    return 0
