# What `rota/crc32c.h` declares, for Cython; the header says what it means.
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "rota/crc32c.h" nogil:
    uint32_t rota_crc32c(uint32_t seed, const void *data, size_t length) noexcept
    uint32_t rota_crc32c_u64(uint32_t seed, uint64_t value) noexcept
    uint32_t rota_crc32c_copy(uint32_t seed, void *destination, const void *source, size_t length) noexcept
    void rota_crc32c_rows(uint32_t seed, const void *data, size_t row_size, size_t rows, size_t stride,
                          uint32_t *sums) noexcept
    void rota_crc32c_three(uint32_t *sums, const void *first, const void *second, const void *third,
                           size_t length) noexcept
    uint32_t rota_crc32c_portable(uint32_t seed, const void *data, size_t length) noexcept
    bint rota_crc32c_is_hardware() noexcept
    uint64_t rota_mix64(uint64_t value) noexcept
    uint64_t rota_load_unaligned_u64(const void *data) noexcept
    uint32_t rota_load_unaligned_u32(const void *data) noexcept
