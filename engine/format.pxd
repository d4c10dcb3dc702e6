# What `rota/format.h` declares, for Cython; the header says what it means.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "rota/format.h" nogil:
    const uint64_t ROTA_FORMAT_VERSION
    const uint64_t ROTA_BYTE_ORDER
    const uint64_t ROTA_MAGIC_KIND
    const uint64_t ROTA_MANIFEST_MAGIC
    const uint64_t ROTA_SEGMENT_MAGIC
    const uint64_t ROTA_COMMIT_MAGIC
    const uint64_t ROTA_FAILED_MAGIC
    const uint64_t ROTA_CELL
    const uint64_t ROTA_SECTOR_SIZE
    const uint64_t ROTA_PAGE_SIZE
    const uint64_t ROTA_SEGMENT_HEADER_SIZE
    const uint64_t ROTA_SEGMENT_SIZE_MIN
    const uint64_t ROTA_SEGMENT_SIZE_DEFAULT
    const uint64_t ROTA_SEGMENT_SIZE_MAX
    const uint64_t ROTA_SEGMENT_COUNT_MIN
    const uint64_t ROTA_SEGMENT_COUNT_MAX
    const uint64_t ROTA_MANIFEST_SECTORS
    const uint64_t ROTA_MANIFEST_SIZE
    const uint64_t ROTA_EPOCH_COUNT_MAX
    const uint64_t ROTA_COMMIT_BYTES_DEFAULT
    const uint64_t ROTA_PRIORITY_COUNT
    const uint64_t ROTA_NAME_LENGTH_MAX
    const uint64_t ROTA_TAG_LENGTH_MAX
    const uint64_t ROTA_INDEX_BYTES_MAX
    const uint64_t ROTA_INDEX_HEADERS_MAX
    const uint64_t ROTA_ATTRIBUTE_BYTES_MAX
    const uint64_t ROTA_BLOCK_BYTES_MAX
    const uint64_t ROTA_QUEUE_NONE
    enum:
        ROTA_COMMIT_MARK
        ROTA_COMMIT_COPIES
        ROTA_COMMIT_CLOSE
    enum:
        ROTA_OP_PUT
        ROTA_OP_ACK
        ROTA_OP_ACK_LIST
        ROTA_OP_KILL
        ROTA_OP_EXPIRE
        ROTA_OP_MOVE
        ROTA_OP_RETURN
        ROTA_OP_COPY
        ROTA_OP_TAG
        ROTA_OP_REGISTER
        ROTA_OP_DEREGISTER
        ROTA_OP_QUEUE
        ROTA_OP_FENCE
        ROTA_OP_DEDUP
        ROTA_OP_SAGA
        ROTA_OP_CHECKPOINT
        ROTA_OP_KIND_END
    enum:
        ROTA_MOVE_USER
        ROTA_MOVE_ATTEMPTS
        ROTA_MOVE_EXPIRED
        ROTA_MOVE_REDRIVE
    enum:
        ROTA_QUEUE_CREATE
        ROTA_QUEUE_CONFIGURE
        ROTA_QUEUE_STOP
        ROTA_QUEUE_START
        ROTA_QUEUE_DESTROY
    enum:
        ROTA_ORDER_SKIP
        ROTA_ORDER_GROUP
        ROTA_ORDER_STRICT
        ROTA_ORDER_HIGHEST
    enum:
        ROTA_INDEX_KEY
        ROTA_INDEX_HEADER
        ROTA_INDEX_SCORE
        ROTA_INDEX_WINDOW
    enum:
        ROTA_REGISTER_STABLE
        ROTA_REGISTER_RAISE
        ROTA_TAG_NONE
        ROTA_TAG_PUT
        ROTA_TAG_GET
        ROTA_TAG_OWN_PUT
    enum:
        ROTA_DEDUP_ENTER
        ROTA_DEDUP_FORGET
        ROTA_DEDUP_OWN_PUT
    enum:
        ROTA_FRAME_BLOCK
        ROTA_FRAME_COPIED
        ROTA_FRAME_DUE
        ROTA_FRAME_EXPIRES
    enum:
        ROTA_ATTRIBUTE_KEY_BYTES
        ROTA_ATTRIBUTE_KEY_TEXT
        ROTA_ATTRIBUTE_HEADERS
        ROTA_ATTRIBUTE_DUE
        ROTA_ATTRIBUTE_EXPIRY
        ROTA_ATTRIBUTE_CLIENT
        ROTA_ATTRIBUTE_RID
        ROTA_ATTRIBUTE_REPLY_TO
        ROTA_ATTRIBUTE_ORIGIN
        ROTA_ATTRIBUTE_SAGA
        ROTA_ATTRIBUTE_ERROR
        ROTA_ATTRIBUTE_DEDUP
        ROTA_ATTRIBUTE_BLOCK
        ROTA_ATTRIBUTE_PUT_AT
        ROTA_ATTRIBUTE_STATUS
    enum:
        ROTA_PUT_DATED
        ROTA_PUT_ANSWER
    enum:
        ROTA_REPLY_OK
        ROTA_REPLY_FAILED
        ROTA_REPLY_CANCELLED
        ROTA_REPLY_EXPIRED
    ctypedef struct rota_reply_to:
        uint64_t created_lsn
        uint16_t queue
        uint16_t reserved[3]
    ctypedef struct rota_epoch:
        uint64_t start_lsn
        uint32_t epoch
        uint32_t reserved
    ctypedef struct rota_manifest_sector:
        uint32_t magic
        uint16_t version
        uint16_t byte_order
        uint32_t crc
        uint32_t feature_bits
        uint64_t sequence
        uint8_t uuid[16]
        uint64_t salt
        uint64_t segment_size
        uint64_t capacity
        uint32_t sync_unit
        uint32_t epoch_count
        uint64_t checkpoint_begin
        uint64_t checkpoint_block
        uint64_t checkpoint_end
        uint64_t checkpoint_chain
        uint64_t next_id_floor
        uint64_t created_at_ns
        uint32_t compression
        uint32_t reached_turns
        rota_epoch epochs[24]
    ctypedef struct rota_segment_header:
        uint32_t magic
        uint16_t version
        uint16_t byte_order
        uint32_t crc
        uint32_t file_number
        uint8_t uuid[16]
        uint64_t first_lsn
        uint32_t epoch
        uint32_t sub_epoch
        uint64_t generation
        uint64_t segment_size
        uint64_t created_at_ns
        uint64_t reserved[3]
    ctypedef struct rota_failed_mark:
        uint32_t magic
        uint32_t crc
        uint8_t boot_id[16]
        uint64_t time_ns
        uint64_t durable_lsn
        uint32_t process_id
        uint32_t os_errno
    ctypedef struct rota_commit_header:
        uint32_t magic
        uint16_t version
        uint16_t flags
        uint64_t lsn
        uint32_t length
        uint32_t op_bytes
        uint32_t message_count
        uint32_t op_count
        uint32_t epoch
        uint32_t sub_epoch
        uint64_t previous_chain
        uint64_t durable_lsn
        uint64_t base_id
        uint64_t time_ns
        uint64_t token_generation
        uint64_t token_number
        uint32_t meta_crc
        uint32_t header_crc
    ctypedef struct rota_op:
        uint8_t kind
        uint8_t detail
        uint16_t queue
        uint32_t extra_bytes
        uint64_t id
        uint64_t a
        uint64_t b
    ctypedef struct rota_queue_options:
        uint64_t max_messages
        uint64_t lease_ns
        uint32_t max_attempts
        uint16_t error_queue
        uint16_t name_length
        uint8_t order
        uint8_t is_volatile
        uint8_t is_error_queue
        uint8_t count_handouts
        uint16_t index_bytes
        uint16_t reserved
    ctypedef struct rota_tag:
        uint16_t name_length
        uint16_t tag_length
        uint16_t home
        uint16_t reserved
    ctypedef struct rota_frame:
        uint32_t crc
        uint32_t body_length
        uint32_t offset
        uint32_t back
        uint64_t id
        uint16_t attribute_bytes
        uint16_t queue
        uint8_t priority
        uint8_t flags
        uint16_t reserved
    ctypedef struct rota_block:
        uint32_t crc
        uint32_t raw_length
        uint32_t stored_length
        uint32_t algorithm
    uint64_t rota_round_up(uint64_t value, uint64_t unit) noexcept
    uint32_t rota_cells(uint64_t size) noexcept
    uint64_t rota_pad(uint64_t size) noexcept
