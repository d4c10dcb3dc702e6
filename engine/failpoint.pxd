# What `rota/failpoint.h` declares, for Cython; the header says what it means.
from libc.stdint cimport int32_t, uint32_t, uint64_t
from engine.platform cimport rota_platform

cdef extern from "rota/failpoint.h" nogil:
    enum:
        ROTA_AT_APPEND_LOCKED
        ROTA_AT_APPEND_ADMITTED
        ROTA_AT_APPEND_STAMPED
        ROTA_AT_APPEND_COPIED
        ROTA_AT_APPEND_PUBLISHED
        ROTA_AT_APPEND_APPLYING
        ROTA_AT_APPEND_APPLIED
        ROTA_AT_APPEND_UNLOCKED
        ROTA_AT_CLAIM_PREPARED
        ROTA_AT_CLAIM_CURSOR
        ROTA_AT_CLAIM_ACTIVE
        ROTA_AT_SHOW_MARKED
        ROTA_AT_FENCE_COMMITTED
        ROTA_AT_KILL_LOCATED
        ROTA_AT_KILL_APPLIED
        ROTA_AT_ANSWER_DRAFTED
        ROTA_AT_REASON_KEPT
        ROTA_AT_SETTLE_ADMITTED
        ROTA_AT_REAP_VERDICT
        ROTA_AT_REAP_COMMITTED
        ROTA_AT_REAP_FREED
        ROTA_AT_SYNC_BEFORE
        ROTA_AT_SYNC_FILE
        ROTA_AT_SYNC_AFTER
        ROTA_AT_SYNC_PUBLISHED
        ROTA_AT_SEGMENT_CREATED
        ROTA_AT_SEGMENT_ZEROED
        ROTA_AT_SEGMENT_RENAMED
        ROTA_AT_SEGMENT_HEADER
        ROTA_AT_SEGMENT_FREED
        ROTA_AT_MANIFEST_WRITTEN
        ROTA_AT_MANIFEST_SYNCED
        ROTA_AT_RECOVERY_SCANNED
        ROTA_AT_RECOVERY_CUT
        ROTA_AT_RECOVERY_SYNCED
        ROTA_AT_RECOVERY_EPOCH
        ROTA_AT_RECOVERY_REBUILT
        ROTA_AT_RECOVERY_OPENED
        ROTA_AT_CHECKPOINT_BEGIN
        ROTA_AT_CHECKPOINT_WALKED
        ROTA_AT_CHECKPOINT_BLOCK
        ROTA_AT_CHECKPOINT_SYNCED
        ROTA_AT_CHECKPOINT_MANIFEST
        ROTA_AT_CHECKPOINT_FREED
        ROTA_AT_CLEAN_COPIED
        ROTA_AT_CONTROL_CREATED
        ROTA_AT_CONTROL_GROWN
        ROTA_AT_CONTROL_REPAIRED
        ROTA_AT_CONTROL_UNDONE
        ROTA_AT_CONTROL_REDONE
        ROTA_AT_ATTACH_GATE
        ROTA_AT_ATTACH_SLOT
        ROTA_AT_ATTACH_READY
        ROTA_AT_DETACH_BEGIN
        ROTA_AT_DETACH_SLOT
        ROTA_AT_FAILED_WORD
        ROTA_AT_FAILED_FILE
        ROTA_AT_LIMIT_CHOSEN
        ROTA_AT_LIMIT_BUSY
        ROTA_AT_LIMIT_NAMED
        ROTA_AT_LIMIT_FILLED
        ROTA_AT_LIMIT_TAKEN
        ROTA_AT_LIMIT_CREATED
        ROTA_AT_LIMIT_REBOOTED
        ROTA_AT_WAKE_BEFORE
        ROTA_AT_WAIT_BEGIN
        ROTA_AT_WAIT_SPINNING
        ROTA_AT_WAIT_SLEEPING
        ROTA_AT_LOCK_ACQUIRED
        ROTA_FAILPOINT_COUNT

    enum:
        ROTA_FAILPOINT_OFF
        ROTA_FAILPOINT_COUNTING
        ROTA_FAILPOINT_KILL
        ROTA_FAILPOINT_STOP
        ROTA_FAILPOINT_EXIT
        ROTA_FAILPOINT_ERROR
        ROTA_FAILPOINT_PAUSE
        ROTA_FAILPOINT_ACTIONS

    ctypedef struct rota_failpoint_state:
        uint32_t action
        int32_t argument
        uint64_t left
        uint64_t hits

    ctypedef struct rota_failpoints:
        uint32_t armed
        uint32_t release
        uint32_t paused
        const rota_platform *platform
        rota_failpoint_state *points

    void rota_failpoint(rota_failpoints *failpoints, int place) noexcept
    int rota_failpoint_status(rota_failpoints *failpoints, int place) noexcept
    const char *rota_failpoint_name(int place) noexcept
    void rota_failpoints_release(rota_failpoints *failpoints) noexcept
    void rota_failpoint_arm(rota_failpoints *failpoints, int place, int action, uint64_t nth, int argument) noexcept
