# Registrations: name, tag and last operation of a registrant, kept with the operation.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport rota_page
from engine.format cimport rota_commit_header, rota_op
from engine.handle cimport rota_handle

# A registration: a small page.  The name follows this, then the tag.
ctypedef struct Registration:
    rota_page page
    uint64_t hash
    uint64_t id         # of the last tagged message
    uint64_t lsn        # of the commit that tagged it
    uint64_t epoch      # raised by each connect
    uint32_t next       # page of the next registration with this hash
    uint16_t queue
    uint16_t name_length
    uint16_t tag_length
    uint8_t kind        # rota_tag_kind of the last operation
    uint8_t stable
    uint32_t reserved

cdef Registration *registration_find(rota_handle *h, uint32_t queue, const uint8_t *name,
                                     uint32_t length) noexcept nogil
cdef int apply_register(rota_handle *h, const rota_op *op, const uint8_t *extra, uint64_t lsn) noexcept nogil
cdef int apply_tag(rota_handle *h, const rota_op *op, const uint8_t *extra,
                   const rota_commit_header *header) noexcept nogil
cdef void apply_deregister(rota_handle *h, const rota_op *op, const uint8_t *extra, uint64_t lsn) noexcept nogil
cdef void registrations_drop(rota_handle *h, uint32_t queue) noexcept nogil
