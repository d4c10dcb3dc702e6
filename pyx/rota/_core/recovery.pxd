# Recovery: from the files of a repository to a control file that says the same.
#
#     recover   called with the gate held, nobody attached, the manifest read, h.control fresh and zero but for its
#               sizes; afterwards the log may be appended to, and h.recovery tells what was found
#     recovery_find_end   the first half alone, for verify: the end, and the row of the table; writes nothing
from libc.stdint cimport uint32_t, uint64_t

from engine.handle cimport rota_handle
from engine.recovery cimport rota_recovery_case
from engine.status cimport rota_error

from rota._core.reader cimport log_reader
from rota._core.walk cimport log_end, log_position

ctypedef struct recovery:
    log_reader reader
    log_position end
    log_end why
    uint64_t proven_lsn
    uint64_t beyond_durable  # what commits behind the first end say
    uint64_t beyond_lsn
    uint64_t started_ns
    uint64_t next_id
    uint32_t epoch           # the new one
    uint32_t found           # conditions
    int failed
    const rota_recovery_case *row

cdef int recovery_find_end(recovery *r, rota_error *error) noexcept nogil
cdef int recover(rota_handle *h, rota_error *error) noexcept nogil
