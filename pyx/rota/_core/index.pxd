# The index of a queue: terms of messages, lists of messages by term.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.control cimport rota_queue, rota_record, rota_slot_ref
from engine.format cimport rota_commit_header
from engine.handle cimport rota_handle
from engine.status cimport rota_error
from engine.term cimport rota_terms

from rota._core.draft cimport Draft
from rota._core.lane cimport Found

cdef enum:
    KEY_ORDINAL = 0
    MOVE_TERMS_BYTES = 136    # of the extra of a MOVE, at most

cdef int queue_index(rota_handle *h, rota_queue *queue, const uint8_t *text, uint32_t length) noexcept nogil
cdef void queue_terms(rota_handle *h, const rota_queue *queue, const uint8_t *attributes, uint32_t attribute_bytes,
                      rota_terms *terms) noexcept nogil
cdef void read_terms(const uint8_t *extra, uint32_t length, rota_terms *terms) noexcept nogil
cdef uint32_t write_terms(const rota_terms *terms, uint8_t *extra) noexcept nogil
cdef int link_terms(rota_handle *h, const Found *found, const rota_terms *terms, uint64_t arrival_ns) noexcept nogil
cdef int link_place(rota_handle *h, uint64_t id, uint64_t place) noexcept nogil
cdef int link_term(rota_handle *h, const Found *found, uint64_t term) noexcept nogil
cdef rota_slot_ref unlink_terms(rota_handle *h, const Found *found) noexcept nogil
cdef bint is_head(rota_handle *h, uint64_t id) noexcept nogil
cdef rota_record *posting_of(rota_handle *h, uint64_t id, uint32_t ordinal) noexcept nogil
cdef rota_record *posting_at(rota_handle *h, rota_slot_ref slot, uint32_t ordinal) noexcept nogil
cdef rota_record *values_of(rota_handle *h, uint32_t queue, uint32_t level, uint64_t term) noexcept nogil
cdef uint32_t pages_for_terms(rota_handle *h, uint64_t terms) noexcept nogil
cdef uint64_t terms_in(rota_handle *h, const uint8_t *commit, const rota_commit_header *header, uint32_t op_bytes,
                       uint32_t op_count) noexcept nogil
cdef int admit_index(rota_handle *h, Draft *draft, rota_error *error) noexcept nogil


cdef inline bint in_order_of_group(const rota_queue *queue, unsigned flags) noexcept nogil:
    """Whether a message with these flags may have to wait for an older one of its key."""
    return queue.options.order == 1 and flags & 2 != 0  # ROTA_ORDER_GROUP, ROTA_SLOT_KEYED
