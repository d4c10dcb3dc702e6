# What `rota/atomics.h` declares, for Cython; the header says what it means.
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "rota/atomics.h" nogil:
    uint32_t rota_load_relaxed_u32(const uint32_t *word) noexcept
    uint32_t rota_load_acquire_u32(const uint32_t *word) noexcept
    void rota_store_relaxed_u32(uint32_t *word, uint32_t value) noexcept
    void rota_store_release_u32(uint32_t *word, uint32_t value) noexcept
    bint rota_compare_exchange_u32(uint32_t *word, uint32_t *expected, uint32_t desired) noexcept
    uint32_t rota_exchange_u32(uint32_t *word, uint32_t value) noexcept
    uint32_t rota_fetch_add_u32(uint32_t *word, uint32_t value) noexcept
    uint32_t rota_fetch_add_relaxed_u32(uint32_t *word, uint32_t value) noexcept
    uint32_t rota_fetch_sub_u32(uint32_t *word, uint32_t value) noexcept
    uint32_t rota_fetch_or_u32(uint32_t *word, uint32_t bits) noexcept
    uint32_t rota_fetch_and_u32(uint32_t *word, uint32_t bits) noexcept
    bint rota_raise_u32(uint32_t *word, uint32_t value) noexcept
    uint64_t rota_load_relaxed_u64(const uint64_t *word) noexcept
    uint64_t rota_load_acquire_u64(const uint64_t *word) noexcept
    void rota_store_relaxed_u64(uint64_t *word, uint64_t value) noexcept
    void rota_store_release_u64(uint64_t *word, uint64_t value) noexcept
    bint rota_compare_exchange_u64(uint64_t *word, uint64_t *expected, uint64_t desired) noexcept
    uint64_t rota_exchange_u64(uint64_t *word, uint64_t value) noexcept
    uint64_t rota_fetch_add_u64(uint64_t *word, uint64_t value) noexcept
    uint64_t rota_fetch_add_relaxed_u64(uint64_t *word, uint64_t value) noexcept
    uint64_t rota_fetch_sub_u64(uint64_t *word, uint64_t value) noexcept
    uint64_t rota_fetch_or_u64(uint64_t *word, uint64_t bits) noexcept
    uint64_t rota_fetch_and_u64(uint64_t *word, uint64_t bits) noexcept
    bint rota_raise_u64(uint64_t *word, uint64_t value) noexcept
    void rota_fence() noexcept
    void rota_fence_acquire() noexcept
    void rota_fence_release() noexcept
    void rota_compiler_barrier() noexcept
    void rota_pause() noexcept
    bint ROTA_LIKELY(bint condition) noexcept
    bint ROTA_UNLIKELY(bint condition) noexcept
