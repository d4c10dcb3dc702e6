# Registrations: name, tag and last operation of a registrant, kept with the operation.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport rota_page, rota_queue
from engine.format cimport rota_commit_header, rota_op
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.draft cimport Draft

# A registration: a small page.  The name follows this, then the tag; what does not fit goes on in the page `more`.
# page.next and page.previous link the registrations of a queue.
ctypedef struct Registration:
    rota_page page
    uint64_t hash
    uint64_t id         # of the last tagged message
    uint64_t lsn        # behind the commit that changed it last
    uint64_t epoch      # raised by each connect
    uint32_t next       # page of the next registration with this hash
    uint32_t more       # page with the rest of the tag
    uint16_t queue
    uint16_t name_length
    uint16_t tag_length
    uint8_t kind        # rota_tag_kind of the last operation
    uint8_t stable
    uint64_t reserved

cdef Registration *registration_find(rota_handle *h, uint32_t queue, const uint8_t *name,
                                     uint32_t length) noexcept nogil
cdef bint registration_fits(const Registration *registration) noexcept nogil
cdef void registration_tag(rota_handle *h, const Registration *registration, uint8_t *to) noexcept nogil
cdef int registration_set_tag(rota_handle *h, Registration *registration, const uint8_t *tag,
                              uint32_t length) noexcept nogil
cdef int admit_registrations(rota_handle *h, const Draft *draft, rota_error *error) noexcept nogil
cdef int apply_register(rota_handle *h, const rota_op *op, const uint8_t *extra, uint64_t lsn) noexcept nogil
cdef int apply_tag(rota_handle *h, const rota_op *op, const uint8_t *extra,
                   const rota_commit_header *header) noexcept nogil
cdef void apply_deregister(rota_handle *h, const rota_op *op, const uint8_t *extra, uint64_t lsn) noexcept nogil
cdef void registrations_drop(rota_handle *h, rota_queue *queue) noexcept nogil
