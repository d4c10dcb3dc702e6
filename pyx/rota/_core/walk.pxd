# The walk: a log in segment files as a sequence of commits, each accepted or the end.
#
#     walk_begin       the position from which the manifest says to scan
#     walk_next        1: one commit further; 0: the log ends here (why: end); negative: a status
#     walk_to_end      all of it, bodies above the proven position included
#     walk_beyond      the highest durable_lsn of what lies behind a position, and where that ends
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.format cimport rota_commit_header, rota_manifest_sector
from engine.status cimport rota_error

from rota._core.reader cimport log_reader

cdef enum:
    WALK_BODIES = 1   # verify the bodies too
    WALK_TRUSTED = 2  # the same positions were walked before: leave the checksums of the metadata out

cdef enum:
    END_NOTHING = 0  # zeros, or bytes of an earlier turn
    END_STALE = 1    # a whole commit of a dead writer or a dead epoch
    END_BAD = 2      # a commit that does not match a checksum

ctypedef struct log_position:
    uint64_t lsn
    uint64_t chain
    uint32_t epoch
    uint32_t sub_epoch
    uint64_t durable_lsn  # the highest that a commit named so far
    uint64_t next_id      # above every id seen
    uint64_t time_ns
    uint64_t commits
    uint32_t file         # of the last commit
    uint32_t closed       # the last commit is a MARK that proves all before it and closes its epoch

ctypedef struct log_commit:
    rota_commit_header header
    const uint8_t *bytes
    uint64_t fill    # of the window that bytes lie in
    uint64_t offset  # in the file
    uint32_t file

ctypedef struct log_end:
    int kind
    int result  # rota_scan_result
    uint32_t file
    uint32_t message  # index of the message whose body is bad
    uint64_t lsn
    uint64_t length
    uint32_t later_epoch  # of a whole commit that fits but for its epoch, which the manifest does not know yet

cdef void walk_begin(log_reader *reader, log_position *position) noexcept nogil
cdef int walk_next(log_reader *reader, log_position *position, log_commit *commit, log_end *end, int flags,
                   rota_error *error) noexcept nogil
cdef int walk_to_end(log_reader *reader, log_position *position, rota_error *error) noexcept nogil
cdef uint64_t proven_at_least(log_reader *reader, const log_position *position) noexcept nogil
cdef int walk_beyond(log_reader *reader, uint64_t lsn, uint64_t *durable_lsn, uint64_t *end_lsn,
                     rota_error *error) noexcept nogil
cdef uint32_t epoch_at(const rota_manifest_sector *manifest, uint64_t lsn) noexcept nogil
