# The segment files: their names, their creation, their mappings, their headers.
#
#     segment_create         a new file, durable under its name, not yet in the shared table
#     segment_map            open and map it in this process; any number of threads at once
#     segment_base           where it is mapped, NULL when it is not
#     segment_header_read    the checked header; first_lsn is 0 when the file was never used
#     segment_header_write   begin another turn of the file, under the main lock
#     segment_sync           fdatasync, once; an error is LOG_FAILED
#     segment_list           what lies in the directory
#     segment_unmap_all      at close, when no thread is inside
#
# An entry of h.segments is {NULL, -1} until it is mapped (segment_table_clear).
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.atomics cimport rota_load_acquire_u64
from engine.format cimport ROTA_SEGMENT_COUNT_MAX, rota_segment_header
from engine.handle cimport rota_handle, rota_segment_map
from engine.status cimport rota_error

cdef enum:
    SEGMENT_PRESENT = 1   # bits of segment_list
    SEGMENT_LEFTOVER = 2  # a creation that was cut short
    SEGMENT_NAME_BYTES = 32

cdef void segment_table_clear(rota_segment_map *segments) noexcept nogil
cdef void segment_name(uint32_t file, char *name) noexcept nogil
cdef void segment_leftover_name(uint32_t file, char *name) noexcept nogil
cdef int segment_create(rota_handle *h, uint32_t file, bint zero, rota_error *error) noexcept nogil
cdef int segment_map(rota_handle *h, uint32_t file, rota_error *error) noexcept nogil
cdef int segment_header_read(rota_handle *h, uint32_t file, rota_segment_header *out, rota_error *error) noexcept nogil
cdef int segment_header_write(rota_handle *h, uint32_t file, uint64_t first_lsn, uint32_t epoch, uint32_t sub_epoch,
                              uint64_t generation, rota_error *error) noexcept nogil
cdef int segment_sync(rota_handle *h, uint32_t file, rota_error *error) noexcept nogil
cdef int segment_list(rota_handle *h, uint8_t *found, rota_error *error) noexcept nogil
cdef void segment_unmap_all(rota_handle *h) noexcept nogil


cdef inline uint8_t *segment_base(rota_handle *h, uint32_t file) noexcept nogil:
    if file >= ROTA_SEGMENT_COUNT_MAX:
        return NULL
    return <uint8_t *>rota_load_acquire_u64(<uint64_t *>&h.segments[file].base)
