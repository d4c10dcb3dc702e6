# What `rota/lz4.h` declares, for Cython; the header says what it means.
from libc.stdint cimport int64_t, uint8_t

cdef extern from "rota/lz4.h" nogil:
    int64_t rota_lz4_decode(const uint8_t *source, size_t length, uint8_t *to, size_t room) noexcept
