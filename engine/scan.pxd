# What `rota/scan.h` declares, for Cython; the header says what it means.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from engine.format cimport rota_commit_header, rota_op, rota_segment_header

cdef extern from "rota/scan.h" nogil:
    uint32_t rota_commit_header_crc(uint32_t salt_crc, const rota_commit_header *header) noexcept
    uint64_t rota_commit_chain(uint64_t salt, const rota_commit_header *header) noexcept
    int rota_commit_check(const uint8_t *commit, uint64_t available, uint32_t salt_crc, uint64_t lsn,
                          rota_commit_header *out) noexcept
    int rota_commit_meta_check(const uint8_t *commit, const rota_commit_header *header, uint32_t salt_crc) noexcept
    int rota_commit_structure_check(const uint8_t *commit, const rota_commit_header *header) noexcept
    int rota_commit_bodies_check(const uint8_t *commit, const rota_commit_header *header, uint32_t salt_crc,
                                 uint32_t *index) noexcept
    ctypedef struct rota_op_cursor:
        const uint8_t *next
        uint64_t left
        uint32_t count
    void rota_op_begin(rota_op_cursor *cursor, const uint8_t *commit, const rota_commit_header *header) noexcept
    bint rota_op_next(rota_op_cursor *cursor, rota_op *op, const uint8_t **extra) noexcept
    uint32_t rota_segment_header_crc(uint32_t salt_crc, const rota_segment_header *header) noexcept
    int rota_segment_header_check(const rota_segment_header *header, uint32_t salt_crc, const uint8_t *uuid,
                                  uint64_t segment_size) noexcept
