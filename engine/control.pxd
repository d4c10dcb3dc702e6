# What `rota/control.h` declares, for Cython; the header says what it means.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from engine.format cimport rota_queue_options
cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass

cdef extern from "rota/control.h" nogil:
    const uint64_t ROTA_CONTROL_MAGIC
    const uint64_t ROTA_CONTROL_VERSION
    const uint64_t ROTA_SMALL_PAGE
    const uint64_t ROTA_LARGE_PAGE
    const uint64_t ROTA_PAGES_PER_LARGE
    const uint64_t ROTA_EXTENT_BYTES
    const uint64_t ROTA_PROCESS_COUNT_MAX
    const uint64_t ROTA_QUEUE_COUNT_MAX
    const uint64_t ROTA_CLAIM_COUNT
    const uint64_t ROTA_UNDO_COUNT_MAX
    const uint64_t ROTA_TOMBSTONE_COUNT
    const uint64_t ROTA_TOMBSTONE_HELD
    const uint64_t ROTA_TABLE_COUNT
    const uint64_t ROTA_SMALL_SLOTS
    const uint64_t ROTA_LARGE_SLOTS
    const uint64_t ROTA_HEAP_LEAF_ENTRIES
    const uint64_t ROTA_BUCKET_RECORDS
    const uint64_t ROTA_CONTROL_FIXED_BYTES
    enum:
        ROTA_SLOT_EMPTY
        ROTA_SLOT_FRESH
        ROTA_SLOT_RETURNED
        ROTA_SLOT_DELAYED
        ROTA_SLOT_PARKED
        ROTA_SLOT_WAITING
        ROTA_SLOT_ACKED
        ROTA_SLOT_KILLED
        ROTA_SLOT_EXPIRED
        ROTA_SLOT_MOVED
    enum:
        ROTA_SLOT_HISTORY
        ROTA_SLOT_KEYED
        ROTA_SLOT_SUSPECT
        ROTA_SLOT_EXPIRES
        ROTA_SLOT_STRAGGLER
        ROTA_SLOT_CLAIMED
        ROTA_SLOT_ELSEWHERE
        ROTA_SLOT_TAKEN
        ROTA_SLOT_HEAPED
    enum:
        ROTA_PAGE_FREE
        ROTA_PAGE_CHUNK
        ROTA_PAGE_STRAGGLERS
        ROTA_PAGE_QUEUE
        ROTA_PAGE_HEAP_ROOT
        ROTA_PAGE_HEAP_LEAF
        ROTA_PAGE_TABLE_ROOT
        ROTA_PAGE_TABLE_BUCKET
        ROTA_PAGE_REGISTRATION
        ROTA_PAGE_TAG
    enum:
        ROTA_TABLE_HISTORY
        ROTA_TABLE_STRAGGLERS
        ROTA_TABLE_REGISTRATIONS
        ROTA_TABLE_EXPIRY
        ROTA_TABLE_VALUES
        ROTA_TABLE_POSTINGS
        ROTA_TABLE_KEYS
        ROTA_TABLE_KEY_ORDER
    enum:
        ROTA_QUEUE_FREE
        ROTA_QUEUE_OPEN
        ROTA_QUEUE_STOPPED
    enum:
        ROTA_SEGMENT_ABSENT
        ROTA_SEGMENT_FREE
        ROTA_SEGMENT_ACTIVE
        ROTA_SEGMENT_SEALED
    enum:
        ROTA_CLAIM_FREE
        ROTA_CLAIM_PREPARED
        ROTA_CLAIM_ACTIVE
    enum:
        ROTA_CLAIM_RANGE
        ROTA_CLAIM_SINGLE
    enum:
        ROTA_CLAIM_BROKEN
        ROTA_CLAIM_SUSPECT
        ROTA_CLAIM_KILLED
        ROTA_CLAIM_FIRST
    enum:
        ROTA_VERDICT_NONE
        ROTA_VERDICT_CHARGE
        ROTA_VERDICT_SUSPECT
        ROTA_VERDICT_RELEASE
        ROTA_VERDICT_BOTH
    enum:
        ROTA_CONTROL_BUILDING
        ROTA_CONTROL_READY
    ctypedef struct rota_undo:
        uint64_t place
        uint64_t bytes[8]
    ctypedef struct rota_slot:
        uint64_t id
        uint64_t word
    ctypedef struct rota_page:
        uint16_t kind
        uint8_t is_large
        uint8_t level
        uint16_t queue
        uint16_t depth
        uint32_t next
        uint32_t previous
        uint32_t jump
        uint32_t count
        uint64_t sequence
        uint64_t jump_sequence
        uint64_t first_id
        uint32_t dead
        uint32_t irregular
        uint64_t min_expiry_ns
    ctypedef struct rota_heap:
        uint32_t root
        uint32_t size
    ctypedef struct rota_heap_entry:
        uint64_t key
        uint64_t id
        uint64_t slot
    ctypedef struct rota_table:
        uint32_t root
        uint32_t depth
        uint32_t count
        uint32_t buckets
    ctypedef struct rota_record:
        uint64_t key
        uint64_t a
        uint64_t b
        uint64_t c
    ctypedef struct rota_lane:
        uint32_t head
        uint32_t tail
        uint32_t tail_index
        uint64_t last_id
        uint64_t appended
        uint64_t appended_fresh
        uint64_t next_sequence
        uint64_t appended_bytes
        uint32_t cursor
        uint32_t cursor_index
        uint64_t consumed
        uint64_t settled
        uint64_t returned
        uint64_t delayed
        rota_heap heap
        uint32_t stragglers
        uint32_t straggler_index
        uint64_t parked
    ctypedef struct rota_queue:
        rota_page page
        uint16_t number
        uint16_t state
        uint32_t generation
        rota_queue_options options
        uint64_t created_lsn
        uint64_t fence_generation
        uint32_t index_mask
        uint32_t index_bytes
        uint32_t wake_sequence
        uint32_t waiters
        uint64_t gets
        uint64_t acks
        uint64_t nacks
        uint64_t expired
        uint64_t moved
        uint64_t killed
        uint32_t spinners
        uint32_t fences
        rota_heap due
        uint64_t claimed
        uint64_t fence_number
        uint32_t suspects
        uint32_t expiring
        uint64_t waiting
        uint32_t blocked_keys
        uint32_t levels
        uint64_t opened_puts
        uint64_t opened_bytes
        uint8_t name[256]
        rota_lane lanes[10]
        uint8_t index_text[1024]
        uint64_t key_first
        uint64_t key_next
        uint64_t key_last_id
        uint64_t key_count
    ctypedef struct rota_segment:
        uint32_t state
        uint32_t next_free
        uint64_t first_lsn
        uint64_t end_lsn
        uint64_t generation
        uint32_t frames
        uint32_t dead
        uint32_t pinned
    ctypedef struct rota_process:
        uint32_t state
        uint32_t generation
        uint32_t pid
        uint32_t claims
        uint64_t start_time
        uint64_t pid_namespace
        uint64_t attached_at_ns
        uint32_t suspect_held
    ctypedef struct rota_claim:
        uint64_t shown
        uint8_t state
        uint8_t kind
        uint8_t level
        uint8_t flags
        uint16_t queue
        uint16_t process
        uint32_t process_generation
        uint32_t count
        uint64_t first_id
        uint64_t last_id
        uint64_t lease_deadline_ns
        uint32_t handouts
        uint16_t verdict
        uint16_t fences
        uint32_t excused
        uint32_t next_free
    ctypedef struct rota_log_state:
        uint64_t applied_lsn
        uint64_t last_chain
        uint64_t next_id
        uint64_t time_ns
        uint32_t tail_file
        uint32_t tail_frames
        uint64_t commits
        uint64_t messages
    ctypedef struct rota_control:
        uint64_t magic
        uint32_t version
        uint32_t abi
        uint8_t uuid[16]
        uint8_t boot_id[16]
        uint64_t pid_namespace
        uint64_t time_namespace
        uint64_t salt
        uint64_t segment_size
        uint64_t capacity
        uint64_t pool_offset
        uint64_t window_bytes
        uint32_t segment_count_max
        uint32_t sync_unit
        uint32_t epoch
        uint32_t salt_crc
        uint32_t state
        uint32_t failed
        uint32_t syncing
        uint64_t opened_lsn
        pthread_mutex_t lock
        uint32_t lock_owner
        pthread_mutex_t sync_lock
        pthread_mutex_t job_lock
        uint32_t job_owner
        pthread_mutex_t grow_lock
        pthread_mutex_t tick_lock
        uint64_t tail_lsn
        uint64_t sealed_lsn
        uint64_t stamped_id
        uint32_t sub_epoch
        uint32_t undo_count
        uint32_t undo_overflow
        uint32_t rebuild
        rota_log_state log
        uint64_t durable_lsn
        uint32_t durable_sequence
        uint32_t durable_waiters
        uint32_t space_sequence
        uint32_t space_waiters
        uint64_t syncs
        uint64_t sync_ns
        uint64_t sync_last_ns
        uint64_t synced_commits
        uint64_t mark_lsn
        uint64_t pending_lsn
        uint32_t pool_limit
        uint32_t pool_next
        uint32_t free_small
        uint32_t free_large
        uint32_t free_small_count
        uint32_t free_large_count
        uint32_t segment_count
        uint32_t free_segments
        uint32_t free_segment_count
        uint32_t claim_free
        uint32_t claim_used
        uint32_t claim_count
        uint32_t queue_count
        uint32_t live_segments
        uint32_t indexed_queues
        uint32_t fenced
        rota_table tables[6]
        uint64_t checkpoint_begin
        uint64_t checkpoint_end
        uint64_t checkpoint_bytes
        uint64_t checkpoints
        uint64_t copied_messages
        uint64_t kills
        uint64_t life_id
        uint64_t *tombstones
        uint64_t stored_bytes
        uint64_t raw_bytes
        uint64_t compressed_bytes
        uint64_t owner_deaths
        uint64_t reaped_claims
        uint64_t rebuilds
        uint64_t unreadable
        rota_process processes[2048]
        uint32_t queues[8192]
        rota_segment segments[4096]
        rota_undo undo[24576]
    ctypedef uint64_t rota_slot_ref
    uint64_t rota_slot_word(uint32_t file, uint64_t cell, unsigned state, unsigned flags) noexcept
    uint64_t rota_slot_cell(uint64_t word) noexcept
    uint32_t rota_slot_file(uint64_t word) noexcept
    unsigned rota_slot_state(uint64_t word) noexcept
    unsigned rota_slot_flags(uint64_t word) noexcept
    uint64_t rota_slot_with_state(uint64_t word, unsigned state) noexcept
    uint64_t rota_slot_with_flags(uint64_t word, unsigned flags) noexcept
    uint64_t rota_slot_place(uint64_t word) noexcept
    bint rota_slot_live(uint64_t word) noexcept
