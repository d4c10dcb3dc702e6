# What `rota/recovery.h` declares, for Cython; the header says what it means.
from libc.stdint cimport uint32_t

cdef extern from "rota/recovery.h" nogil:
    enum:
        ROTA_FOUND_NOTHING
        ROTA_FOUND_CLOSE
        ROTA_FOUND_REST
        ROTA_FOUND_PROOF
        ROTA_FOUND_CHECKPOINT_ABOVE
        ROTA_FOUND_EPOCH_ABOVE
        ROTA_FOUND_REACHED_ABOVE
        ROTA_FOUND_COMBINATIONS
        ROTA_RECOVERY_GO_ON
        ROTA_RECOVERY_JUMP
        ROTA_RECOVERY_REFUSE
        ROTA_RECOVERY_CASE_COUNT
    ctypedef struct rota_recovery_case:
        uint32_t number
        uint32_t needs
        uint32_t excludes
        uint32_t action
        const char *name
        const char *meaning
    const rota_recovery_case *rota_recovery_cases
    bint rota_recovery_matches(const rota_recovery_case *row, uint32_t found) noexcept
    const rota_recovery_case *rota_recovery_choose(uint32_t found) noexcept
