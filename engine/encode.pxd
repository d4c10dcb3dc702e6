# What `rota/encode.h` declares, for Cython; the header says what it means.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.format cimport rota_commit_header

cdef extern from "rota/encode.h" nogil:
    void rota_encode_op(void *to, uint8_t kind, uint8_t detail, uint16_t queue, uint64_t id, uint64_t a, uint64_t b,
                        uint32_t extra_bytes) noexcept
    uint32_t rota_plain_frame_sum(uint32_t salt_crc, uint32_t body_length, uint32_t offset, uint32_t back,
                                  uint16_t queue, uint8_t priority) noexcept
    void rota_encode_plain_frame(void *to, uint32_t crc, uint32_t body_length, uint32_t offset, uint32_t back,
                                 uint16_t queue, uint8_t priority) noexcept
    uint32_t rota_encode_header(void *to, uint32_t salt_crc, const rota_commit_header *header) noexcept
