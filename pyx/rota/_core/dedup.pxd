# The keys of puts that a queue remembers, so that the same key is not put again.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.control cimport rota_queue, rota_record
from engine.format cimport rota_commit_header, rota_op
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.draft cimport Draft

cdef rota_record *key_at(rota_handle *h, uint32_t number, uint64_t sequence) noexcept nogil
cdef rota_record *key_find(rota_handle *h, uint32_t number, uint64_t a, uint64_t b) noexcept nogil
cdef rota_record *key_fresh(rota_handle *h, const rota_queue *queue, uint64_t a, uint64_t b) noexcept nogil
cdef int enter_key(rota_handle *h, rota_queue *queue, uint64_t a, uint64_t b, uint64_t id,
                   uint64_t time_ns) noexcept nogil
cdef int admit_keys(rota_handle *h, const Draft *draft, rota_error *error) noexcept nogil
cdef int apply_key(rota_handle *h, const rota_op *op, const uint8_t *extra,
                   const rota_commit_header *header) noexcept nogil
cdef void keys_drop(rota_handle *h, rota_queue *queue) noexcept nogil
