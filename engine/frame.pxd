# What `rota/frame.h` declares, for Cython; the header says what it means.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from engine.format cimport rota_block, rota_commit_header, rota_frame

cdef extern from "rota/frame.h" nogil:
    enum:
        ROTA_SCAN_OK
        ROTA_SCAN_SHORT
        ROTA_SCAN_EMPTY
        ROTA_SCAN_MAGIC
        ROTA_SCAN_HEADER_CRC
        ROTA_SCAN_VERSION
        ROTA_SCAN_LSN
        ROTA_SCAN_LENGTH
        ROTA_SCAN_FIELD
        ROTA_SCAN_META_CRC
        ROTA_SCAN_OPERATION
        ROTA_SCAN_DIRECTORY
        ROTA_SCAN_FRAME_CRC
        ROTA_SCAN_ATTRIBUTE
        ROTA_SCAN_BLOCK
    const char *rota_scan_text(int result) noexcept
    uint32_t rota_salt_seed(uint64_t salt) noexcept
    uint64_t rota_commit_directory_offset(const rota_commit_header *header) noexcept
    uint64_t rota_commit_data_offset(const rota_commit_header *header) noexcept
    void rota_frame_load(const uint8_t *commit, const rota_commit_header *header, uint32_t index,
                         rota_frame *out) noexcept
    uint64_t rota_frame_id(const rota_commit_header *header, const rota_frame *frame, uint32_t index) noexcept
    bint rota_frame_fits(const rota_frame *frame, uint64_t place, uint64_t data, uint64_t length, bint copies) noexcept
    ctypedef struct rota_attribute_cursor:
        const uint8_t *next
        uint32_t left
    void rota_attribute_begin(rota_attribute_cursor *cursor, const uint8_t *attributes, uint32_t length) noexcept
    bint rota_attribute_next(rota_attribute_cursor *cursor, unsigned *kind, const uint8_t **bytes,
                             uint32_t *length) noexcept
    bint rota_attribute_find(const uint8_t *attributes, uint32_t attribute_bytes, unsigned wanted,
                             const uint8_t **bytes, uint32_t *length) noexcept
    bint rota_attribute_u64(const uint8_t *attributes, uint32_t attribute_bytes, unsigned wanted,
                            uint64_t *value) noexcept
    uint32_t rota_frame_crc(uint32_t salt_crc, const rota_frame *frame, const uint8_t *stored) noexcept
    uint32_t rota_frame_block(const uint8_t *commit, const rota_commit_header *header, const rota_frame *frame) noexcept
    int rota_block_check(const uint8_t *block, uint64_t available, uint32_t salt_crc, rota_block *out) noexcept
    ctypedef struct rota_block_memory:
        uint32_t offset
        uint32_t raw_length
        int result
    int rota_frame_check(const uint8_t *commit, const rota_commit_header *header, const rota_frame *frame,
                         uint32_t salt_crc, rota_block_memory *memory) noexcept
