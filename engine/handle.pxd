# What `rota/handle.h` declares, for Cython; the header says what it means.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from engine.control cimport rota_claim, rota_control
from engine.failpoint cimport rota_failpoints
from engine.format cimport rota_manifest_sector
from engine.platform cimport rota_platform
from engine.status cimport rota_error

cdef extern from "rota/handle.h" nogil:
    enum:
        ROTA_LEVEL_NONE
        ROTA_LEVEL_INTERVAL
        ROTA_LEVEL_SYNC
    ctypedef struct rota_segment_map:
        uint8_t *base
        int fd
    ctypedef struct rota_recovery_report:
        uint32_t performed
        uint32_t clean
        uint64_t begin_lsn
        uint64_t cut_lsn
        uint64_t proven_lsn
        uint64_t scanned_bytes
        uint64_t commits
        uint64_t messages
        uint64_t torn_bytes
        uint64_t elapsed_ns
        uint64_t reaped_claims
        uint32_t epoch
        uint32_t case_number
    ctypedef struct rota_handle:
        rota_control *control
        rota_claim *claims
        uint8_t *pool
        const rota_platform *os
        rota_failpoints *failpoints
        rota_segment_map *segments
        uint64_t segment_size
        uint64_t segment_mask
        uint64_t unsynced_limit
        uint64_t hint_id
        uint64_t hint_ref
        uint64_t salt
        uint32_t salt_crc
        uint32_t process
        uint32_t process_generation
        uint32_t fork_generation
        const uint32_t *fork_current
        uint32_t calls
        uint32_t closing
        uint32_t spinning
        uint32_t wait_ns
        uint32_t spin_rest
        uint32_t spin_misses
        uint32_t reaping
        uint32_t read_only
        uint32_t durability
        uint64_t section
        uint32_t table_floor
        uint64_t sync_interval_ns
        uint64_t sync_bytes
        uint64_t sync_count
        uint64_t interval_lsn
        uint64_t capacity
        uint64_t window_bytes
        uint32_t window_pages
        uint64_t claims_bytes
        int directory_fd
        int lock_fd
        int control_fd
        int claims_fd
        int manifest_fd
        int is_memory
        uint8_t uuid[16]
        rota_manifest_sector manifest
        rota_recovery_report recovery
        rota_error error
        uint64_t service_thread
        uint32_t service_running
        uint32_t service_stop
        uint32_t service_sequence
        uint32_t service_rest
        char path[1024]
