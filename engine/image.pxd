# What `rota/image.h` declares, for Cython; the header says what it means.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "rota/image.h" nogil:
    const uint32_t ROTA_IMAGE_MAGIC
    const uint64_t ROTA_IMAGE_NUMBER_BYTES
    ctypedef struct rota_image_header:
        uint32_t magic
        uint32_t segment_count
        uint64_t begin_lsn
        uint64_t next_id
        uint64_t time_ns
        uint64_t message_count
        uint64_t straggler_count
        uint64_t bytes
        uint64_t reserved
    ctypedef struct rota_image_segment:
        uint64_t first_lsn
        uint64_t end_lsn
        uint32_t file
        uint32_t frames
        uint64_t reserved
    enum:
        ROTA_IMAGE_GAP
        ROTA_IMAGE_FILE
        ROTA_IMAGE_DETAILS
    enum:
        ROTA_IMAGE_COUNTS
        ROTA_IMAGE_DUE
        ROTA_IMAGE_EXPIRY
        ROTA_IMAGE_ORDER
        ROTA_IMAGE_TERMS
    enum:
        ROTA_IMAGE_LAST
    ctypedef struct rota_image_cursor:
        const uint8_t *next
        uint64_t left
        bint failed
    uint64_t rota_zigzag(int64_t value) noexcept
    int64_t rota_unzigzag(uint64_t value) noexcept
    uint8_t *rota_number_put(uint8_t *to, uint64_t value) noexcept
    void rota_image_begin(rota_image_cursor *cursor, const uint8_t *source, uint64_t length) noexcept
    const uint8_t *rota_image_bytes(rota_image_cursor *cursor, uint64_t length) noexcept
    uint8_t rota_image_byte(rota_image_cursor *cursor) noexcept
    uint64_t rota_image_u64(rota_image_cursor *cursor) noexcept
    uint64_t rota_image_number(rota_image_cursor *cursor) noexcept
