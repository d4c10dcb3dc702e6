# A failed sync: its mark in the directory, and how the next open reads past the page cache.
#
#     failed_create    write the file `failed`; called once by whoever saw the sync fail
#     failed_stands    is there a mark, and of which boot
#     failed_check     before the control file is rebuilt: IN_USE while processes of the failed life are attached
#     failed_refresh   copy what the disk has above the last proven position into fresh segment files
#     failed_finish    after the new epoch is durable: set the old files aside, remove the mark
#     disk_agrees      compare what this process sees of a file with what the disk has
from libc.stdint cimport uint32_t, uint64_t

from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef enum:
    FAILED_NOT = 0
    FAILED_THIS_BOOT = 1
    FAILED_OTHER_BOOT = 2

cdef int failed_create(rota_handle *h, int os_errno, rota_error *error) noexcept nogil
cdef int failed_stands(rota_handle *h, int *state, rota_error *error) noexcept nogil
cdef int failed_check(rota_handle *h, rota_error *error) noexcept nogil
cdef int failed_refresh(rota_handle *h, rota_error *error) noexcept nogil
cdef int failed_finish(rota_handle *h, bint replaced, rota_error *error) noexcept nogil
cdef bint disk_agrees(rota_handle *h, uint32_t file, uint64_t start, uint64_t end) noexcept nogil
