# Getting room back: a checkpoint where it frees something, else copying what lives out of the emptiest segment.
from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int reclaim(rota_handle *h, bint patient, rota_error *error) noexcept nogil
