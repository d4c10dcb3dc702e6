# What a checkpoint says of one message, and the index that is made of it.
from libc.stdint cimport uint32_t, uint64_t

from engine.handle cimport rota_handle
from engine.image cimport rota_image_cursor
from engine.status cimport rota_error

from rota._core.lane cimport Found
from rota._core.load_tables cimport Load

# What the stream says of one message beside its place.
ctypedef struct Details:
    unsigned state
    unsigned flags
    uint64_t counts
    uint64_t due
    uint64_t expiry
    uint64_t order
    uint64_t place          # in the order by value
    uint32_t has_place
    uint32_t term_count
    uint64_t terms[16]

cdef int provide(rota_handle *h, uint64_t messages, rota_error *error) noexcept nogil
cdef void read_index(rota_image_cursor *cursor, Details *details) noexcept nogil
cdef int enter_index(Load *load, const Found *found, const Details *details) noexcept nogil
cdef int link_later(Load *load, rota_error *error) noexcept nogil
