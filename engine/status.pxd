# What `rota/status.h` declares, for Cython; the header says what it means.
from libc.stdint cimport uint64_t

cdef extern from "rota/status.h" nogil:
    enum:
        ROTA_STATUS_BASE
        ROTA_OK
        ROTA_EMPTY
        ROTA_FULL
        ROTA_DISK_FULL
        ROTA_NOT_FOUND
        ROTA_LEASE_LOST
        ROTA_KILLED
        ROTA_STALE_LEADER
        ROTA_STALE_CLERK
        ROTA_LOG_FAILED
        ROTA_OUTCOME_UNKNOWN
        ROTA_CORRUPT
        ROTA_TOO_LARGE
        ROTA_TRANSACTION_TOO_LARGE
        ROTA_OPTION_MISMATCH
        ROTA_STATE
        ROTA_FORKED
        ROTA_CLOSED
        ROTA_STOPPED
        ROTA_NOT_A_REPOSITORY
        ROTA_VERSION
        ROTA_FOREIGN_ABI
        ROTA_NETWORK_FILE_SYSTEM
        ROTA_LOCK_HELD
        ROTA_TIMEOUT
        ROTA_INTERRUPTED
        ROTA_RETRY
        ROTA_NO_MEMORY
        ROTA_OS
        ROTA_READ_ONLY
        ROTA_DAMAGED_CONTROL
        ROTA_IN_USE
        ROTA_BUS
        ROTA_CONFLICT

    ctypedef struct rota_error:
        int status
        int os_errno
        char file[64]
        uint64_t offset
        uint64_t expected
        uint64_t found
        char detail[160]

    bint rota_is_errno(int status) noexcept
    const char *rota_status_name(int status) noexcept
    const char *rota_status_text(int status) noexcept
    int rota_status_by_name(const char *name) noexcept
    int rota_status_of_errno(int os_errno) noexcept
    void rota_error_clear(rota_error *error) noexcept
    int rota_fail(rota_error *error, int status, const char *file, uint64_t offset, const char *format, ...) noexcept
    int rota_fail_compared(rota_error *error, int status, const char *file, uint64_t offset, uint64_t expected,
                           uint64_t found, const char *what) noexcept
