# What `rota/term.h` declares, for Cython; the header says what it means.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef extern from "rota/term.h" nogil:
    const uint64_t ROTA_TERM_SCORE
    const uint64_t ROTA_TERM_COUNT_MAX
    ctypedef struct rota_terms:
        uint32_t count
        uint32_t has_score
        double score
        uint64_t terms[16]
    ctypedef struct rota_index_cursor:
        const uint8_t *next
        uint32_t left
        uint32_t headers
    ctypedef struct rota_index_field:
        unsigned kind
        unsigned ordinal
        double age_rate
        const uint8_t *name
        uint32_t name_length
    void rota_index_begin(rota_index_cursor *cursor, const uint8_t *text, uint32_t size) noexcept
    bint rota_index_next(rota_index_cursor *cursor, rota_index_field *field) noexcept
    bint rota_index_window(const uint8_t *text, uint32_t size, uint64_t *ns, uint32_t *count) noexcept
    int32_t rota_index_mask(const uint8_t *text, uint32_t size, unsigned order) noexcept
    uint64_t rota_term(uint64_t salt, unsigned ordinal, const uint8_t *name, uint32_t name_length, unsigned kind,
                       const uint8_t *value, uint32_t length) noexcept
    void rota_terms_find(uint64_t salt, const uint8_t *text, uint32_t size, uint32_t mask, const uint8_t *attributes,
                         uint32_t attribute_bytes, rota_terms *out) noexcept
    uint64_t rota_score_order(double score, double age_rate, uint64_t arrival_ns) noexcept
