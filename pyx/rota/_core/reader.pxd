# Private copies of the bytes of segment files, and which of the files count.
#
#     reader_open      list the files, read their headers, order those that count by position
#     reader_bytes     some bytes of one file, valid until the next call
#     reader_find      the file that holds a position
#     reader_close
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.format cimport rota_commit_header
from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef enum:
    NO_FILE = 0xffffffff

ctypedef struct log_file:
    uint64_t first_lsn  # 0: never used, or its header cannot be read
    uint64_t generation
    uint64_t end_lsn    # after the last accepted commit in it
    uint32_t epoch
    uint32_t sub_epoch
    uint32_t frames     # messages of the accepted commits
    uint32_t frames_before  # the checkpoint begin: set by whoever loads the checkpoint
    uint8_t present
    uint8_t header      # rota_scan_result of its header
    uint8_t chosen      # of the files with this first_lsn it is the one that counts
    uint8_t leftover    # a creation was cut short

ctypedef struct log_reader:
    rota_handle *h
    log_file *files   # by number
    uint32_t *order   # numbers of the chosen, ascending by first_lsn
    uint32_t order_count
    uint32_t present_count
    bint direct       # past the page cache
    int fd            # of the file in the window
    uint32_t fd_file
    uint8_t *window
    uint64_t window_size
    uint64_t window_offset
    uint64_t window_length
    uint64_t ahead_lsn  # start of the next segment: its first header is read once
    int ahead_result
    rota_commit_header ahead
    uint64_t fills  # of the window
    uint64_t scanned_bytes
    uint64_t unreadable_pages

cdef int reader_open(log_reader *reader, rota_handle *h, bint direct, rota_error *error) noexcept nogil
cdef void reader_close(log_reader *reader) noexcept nogil
cdef int reader_bytes(log_reader *reader, uint32_t file, uint64_t offset, uint64_t length, const uint8_t **bytes,
                      rota_error *error) noexcept nogil
cdef int reader_find(log_reader *reader, uint64_t lsn) noexcept nogil
