/*
 * What is on disk: the manifest, the segments, the commits and the frames in them.
 *
 * What holds:
 *  1. Every number is little-endian; every structure below has the size and the offsets asserted under it.
 *  2. Reserved bytes are zero and are checked to be zero.
 *  3. A position in the log (LSN) is a byte number: LSN / segment_size names the turn of the segment, and
 *     LSN % segment_size the offset in its file.  The first ROTA_SEGMENT_HEADER_SIZE bytes of each turn are the
 *     header, so no commit ever has an LSN in them.  LSN 0 is never a position: turn 0 starts at the header size.
 *  4. Commits start at multiples of ROTA_CELL, lie in one segment, and name their predecessor (chain).
 *  5. Every CRC32C is seeded with the repository's salt, so bytes of another repository, or a log stored as the
 *     body of a message, are never taken for records.
 *
 * A commit, from its start:
 *
 *     header (96) | operations (op_bytes, each 32 + padded extra) | directory (32 per message) | data
 *
 *  header_crc covers the first 92 bytes, meta_crc operations and directory; each directory entry (the frame
 *  header) carries a CRC of its own over itself, its attributes and its body.  So the length is trusted only after
 *  the header checks, each body byte is summed once, and one flipped bit in a body costs one message.
 */
#ifndef ROTA_FORMAT_H
#define ROTA_FORMAT_H

#include <stdint.h>

#define ROTA_FORMAT_VERSION 1
#define ROTA_BYTE_ORDER 0x0102

/* Files of a development build are not taken for real ones. */
#ifdef ROTA_BUILD_DEBUG
#define ROTA_MAGIC_KIND 0x20u
#else
#define ROTA_MAGIC_KIND 0x00u
#endif
#define ROTA_MANIFEST_MAGIC (0x4d544f52u ^ ROTA_MAGIC_KIND) /* "ROTM" */
#define ROTA_SEGMENT_MAGIC (0x53544f52u ^ ROTA_MAGIC_KIND)  /* "ROTS" */
#define ROTA_COMMIT_MAGIC (0x43544f52u ^ ROTA_MAGIC_KIND)   /* "ROTC" */
#define ROTA_FAILED_MAGIC (0x46544f52u ^ ROTA_MAGIC_KIND)   /* "ROTF" */

#define ROTA_CELL 32u
#define ROTA_SECTOR_SIZE 512u
#define ROTA_PAGE_SIZE 4096u
#define ROTA_SEGMENT_HEADER_SIZE 4096u
#define ROTA_SEGMENT_SIZE_MIN (64u << 10)
#define ROTA_SEGMENT_SIZE_DEFAULT (64ull << 20)
#define ROTA_SEGMENT_SIZE_MAX (1ull << 30)
#define ROTA_SEGMENT_COUNT_MIN 12u
#define ROTA_SEGMENT_COUNT_MAX 4096u
#define ROTA_MANIFEST_SECTORS 4u
#define ROTA_MANIFEST_SIZE (ROTA_MANIFEST_SECTORS * ROTA_PAGE_SIZE)
#define ROTA_EPOCH_COUNT_MAX 24u
#define ROTA_COMMIT_BYTES_DEFAULT (4u << 20)
#define ROTA_PRIORITY_COUNT 10u
#define ROTA_QUEUE_COUNT_MAX 8192u
#define ROTA_NAME_LENGTH_MAX 255u
#define ROTA_INDEX_BYTES_MAX 1024u
#define ROTA_INDEX_HEADERS_MAX 14u
#define ROTA_TAG_LENGTH_MAX 4608u
#define ROTA_ATTRIBUTE_BYTES_MAX 65535u
#define ROTA_BLOCK_BYTES_MAX (64u << 10) /* raw bytes of one compressed block */

_Static_assert(ROTA_SEGMENT_HEADER_SIZE % ROTA_CELL == 0, "commits start at cells");
_Static_assert(ROTA_SEGMENT_SIZE_MIN >= 8 * ROTA_SEGMENT_HEADER_SIZE, "a segment is mostly log");

typedef struct rota_epoch {
    uint64_t start_lsn; /* the first LSN that was written in this epoch */
    uint32_t epoch;
    uint32_t reserved;
} rota_epoch;

/* One sector of the manifest; sectors 0 and 1 are one generation twice, 2 and 3 the other; each in its own page. */
typedef struct rota_manifest_sector {
    uint32_t magic;
    uint16_t version;
    uint16_t byte_order;
    uint32_t crc; /* over the sector with this field zero; not salted, since the salt is in it */
    uint32_t feature_bits;
    uint64_t sequence; /* generation; the higher valid one is the manifest */
    uint8_t uuid[16];
    uint64_t salt;
    uint64_t segment_size;
    uint64_t capacity;
    uint32_t sync_unit; /* after a sync the next commit starts at a multiple of this */
    uint32_t epoch_count;
    uint64_t checkpoint_begin; /* 0: no checkpoint, scan from the first LSN */
    uint64_t checkpoint_block; /* LSN of the first commit that carries a block of it */
    uint64_t checkpoint_end;   /* LSN after the last such commit: durable when this generation is */
    uint64_t checkpoint_chain; /* chain id of the commit before checkpoint_begin */
    uint64_t next_id_floor;    /* no id at or above this was given before this generation was durable */
    uint64_t created_at_ns;
    uint32_t compression; /* 0 none, 1 lz4: the default of the repository */
    uint32_t reached_turns; /* the last of so many turns held durable commits; 0: not known */
    rota_epoch epochs[ROTA_EPOCH_COUNT_MAX]; /* ascending; older than checkpoint_begin may be dropped */
} rota_manifest_sector;

_Static_assert(sizeof(rota_epoch) == 16, "epoch");
_Static_assert(sizeof(rota_manifest_sector) == ROTA_SECTOR_SIZE, "a manifest generation is one sector");

/* The first bytes of a segment file; the rest of the header page is zero. */
typedef struct rota_segment_header {
    uint32_t magic;
    uint16_t version;
    uint16_t byte_order;
    uint32_t crc; /* salted, over the 96 bytes with this field zero */
    uint32_t file_number;
    uint8_t uuid[16];
    uint64_t first_lsn; /* turn * segment_size + header size; 0: never used */
    uint32_t epoch;     /* of two files with one first_lsn the higher (epoch, sub_epoch) wins */
    uint32_t sub_epoch;
    uint64_t generation; /* raised at each reuse of the file */
    uint64_t segment_size;
    uint64_t created_at_ns;
    uint64_t reserved[3];
} rota_segment_header;

_Static_assert(sizeof(rota_segment_header) == 96, "segment header");

/* The file `failed`: a sync failed in this boot, so the page cache may show what the disk lacks. */
typedef struct rota_failed_mark {
    uint32_t magic;
    uint32_t crc; /* over the 48 bytes with this field zero; a mark that does not match counts as one of this boot */
    uint8_t boot_id[16];
    uint64_t time_ns;
    uint64_t durable_lsn; /* as the process knew it */
    uint32_t process_id;
    uint32_t os_errno;
} rota_failed_mark;

_Static_assert(sizeof(rota_failed_mark) == 48, "failed mark");

enum rota_commit_flag {
    ROTA_COMMIT_MARK = 1,   /* no operation: carries durable_lsn to prove what lies before it */
    ROTA_COMMIT_COPIES = 2, /* frames carry explicit ids (COPY); base_id gives none */
    ROTA_COMMIT_CLOSE = 4,  /* with MARK: the last process closed; nothing follows in this epoch, so no id was lost */
};

typedef struct rota_commit_header {
    uint32_t magic;
    uint16_t version;
    uint16_t flags;
    uint64_t lsn;
    uint32_t length;        /* of the whole commit, a multiple of ROTA_CELL */
    uint32_t op_bytes;      /* of the operations with their extras, a multiple of ROTA_CELL */
    uint32_t message_count; /* entries of the directory */
    uint32_t op_count;
    uint32_t epoch;     /* raised by each recovery, durable in the manifest before the first use */
    uint32_t sub_epoch; /* raised at each death of a lock owner */
    uint64_t previous_chain;
    uint64_t durable_lsn; /* everything below was synced before this commit was written */
    uint64_t base_id;     /* message i of the directory has the id base_id + i */
    uint64_t time_ns;     /* wall clock, never below the latest logged one */
    uint64_t token_generation; /* fencing token of the writer, 0 and 0: none */
    uint64_t token_number;
    uint32_t meta_crc;   /* salted, over operations and directory */
    uint32_t header_crc; /* salted, over the 92 bytes before it */
} rota_commit_header;

_Static_assert(sizeof(rota_commit_header) == 96, "commit header");
_Static_assert(sizeof(rota_commit_header) % ROTA_CELL == 0, "operations start at a cell");

/* Operations.  All are absolute: replay takes the later LSN, a repetition changes nothing. */
enum rota_op_kind {
    ROTA_OP_PUT = 1,    /* queue, detail = priority, id = index of the first message, a = count, b = rota_put_flag */
    ROTA_OP_ACK = 2,    /* queue, detail = priority lane, id..a = first and last id, b = count: its FRESH slots */
    ROTA_OP_ACK_LIST = 3, /* queue, a = count, extra: u64 ids */
    ROTA_OP_KILL = 4,   /* queue, id */
    ROTA_OP_EXPIRE = 5, /* queue, a = count, extra: u64 ids */
    ROTA_OP_MOVE = 6,   /* queue = source, id, a = target queue, detail = reason, b = handouts | excused << 32;
                           extra: u64 terms in the index of the target, behind that of the score its f64 */
    ROTA_OP_RETURN = 7, /* queue, id, a = handouts | excused << 32, b = due_ns (0: now), detail bit 0 = suspect */
    ROTA_OP_COPY = 8,   /* id = first index, a = count: frames with explicit ids, each now lives here */
    ROTA_OP_TAG = 9,    /* queue, id (or index with detail bit 7), detail = kind, a = epoch and b = position of the last
                           change that the writer expected (0: not asked), extra: rota_tag */
    ROTA_OP_REGISTER = 10,   /* queue, detail = rota_register_flag, a = epoch, b as in TAG, extra: rota_tag, no tag */
    ROTA_OP_DEREGISTER = 11, /* queue, a and b as in TAG, extra: rota_tag with an empty tag */
    ROTA_OP_QUEUE = 12,      /* queue, detail = rota_queue_action, extra: rota_queue_options, then the name */
    ROTA_OP_FENCE = 13,      /* queue, a = generation, b = number */
    ROTA_OP_DEDUP = 14,      /* queue, detail = rota_dedup_action, id (or index with detail bit 7), a and b = digest of the
                           key, extra: nothing, or u64 wall ns of the put when that is not the time of the commit */
    ROTA_OP_SAGA = 15,       /* kept for sagas */
    ROTA_OP_CHECKPOINT = 16, /* id = block number, a = begin LSN, extra: block */
    ROTA_OP_KIND_END
};

/* DATED: one is due later or expires.  ANSWER: they answer requests, and neither the bounds of the queue nor its being
 * stopped refuses them: a request that was accepted is answered. */
enum rota_put_flag { ROTA_PUT_DATED = 1, ROTA_PUT_ANSWER = 2 };
enum rota_move_reason { ROTA_MOVE_USER = 0, ROTA_MOVE_ATTEMPTS = 1, ROTA_MOVE_EXPIRED = 2, ROTA_MOVE_REDRIVE = 3 };
enum rota_queue_action {
    ROTA_QUEUE_CREATE = 0,
    ROTA_QUEUE_CONFIGURE = 1,
    ROTA_QUEUE_STOP = 2,
    ROTA_QUEUE_START = 3,
    ROTA_QUEUE_DESTROY = 4
};

typedef struct rota_op {
    uint8_t kind;
    uint8_t detail;
    uint16_t queue;
    uint32_t extra_bytes; /* bytes after these 32 that belong to it; the next operation starts at the next cell */
    uint64_t id;
    uint64_t a;
    uint64_t b;
} rota_op;

_Static_assert(sizeof(rota_op) == ROTA_CELL, "an operation is one cell");

/* Extra of QUEUE: this, then name_length bytes, then index_bytes of definitions (term.h). */
typedef struct rota_queue_options {
    uint64_t max_messages; /* 0: no bound */
    uint64_t lease_ns;
    uint32_t max_attempts; /* 0: no bound */
    uint16_t error_queue;  /* 0xffff: none */
    uint16_t name_length;
    uint8_t order;   /* rota_order */
    uint8_t is_volatile;
    uint8_t is_error_queue;
    uint8_t count_handouts; /* each hand-out is logged */
    uint16_t index_bytes; /* of the definitions behind the name */
    uint16_t reserved;
} rota_queue_options;

_Static_assert(sizeof(rota_queue_options) == 32, "queue options");
enum rota_order { ROTA_ORDER_SKIP = 0, ROTA_ORDER_GROUP = 1, ROTA_ORDER_STRICT = 2, ROTA_ORDER_HIGHEST = 3 };
enum rota_index_kind { ROTA_INDEX_KEY = 1, ROTA_INDEX_HEADER = 2, ROTA_INDEX_SCORE = 3, ROTA_INDEX_WINDOW = 4 };
#define ROTA_QUEUE_NONE 0xffffu

/* Extra of TAG, REGISTER, DEREGISTER: this, then the name, then the tag. */
typedef struct rota_tag {
    uint16_t name_length;
    uint16_t tag_length;
    uint16_t home; /* of TAG: 1 + the queue of the message, 0: the queue of the operation */
    uint16_t reserved;
} rota_tag;

_Static_assert(sizeof(rota_tag) == 8, "tag");
enum rota_register_flag { ROTA_REGISTER_STABLE = 1, ROTA_REGISTER_RAISE = 2 /* refused unless the epoch rises */ };
enum rota_dedup_action { ROTA_DEDUP_ENTER = 1, ROTA_DEDUP_FORGET = 2, ROTA_DEDUP_OWN_PUT = 0x81 };
enum rota_tag_kind { ROTA_TAG_NONE = 0, ROTA_TAG_PUT = 1, ROTA_TAG_GET = 2, ROTA_TAG_OWN_PUT = 0x81 };

enum rota_frame_flag {
    ROTA_FRAME_BLOCK = 1,    /* the body lies in a compressed block at offset, from byte `id` of its raw bytes */
    ROTA_FRAME_COPIED = 2,   /* id is explicit: written by copy-forward */
    ROTA_FRAME_DUE = 4,      /* an attribute says when the message becomes visible */
    ROTA_FRAME_EXPIRES = 8,  /* an attribute says when it expires */
};

/* Directory entry of one message: its frame header. */
typedef struct rota_frame {
    uint32_t crc;         /* salted, over the 28 bytes after it, the attributes and (unless BLOCK) the body */
    uint32_t body_length; /* raw length */
    uint32_t offset;      /* of the attributes from the commit's start; the body follows them */
    uint32_t back;        /* of this entry from the commit's start */
    uint64_t id;          /* 0, or the explicit id (COPIED), or the place in the block (BLOCK) */
    uint16_t attribute_bytes;
    uint16_t queue;
    uint8_t priority;
    uint8_t flags;
    uint16_t reserved;
} rota_frame;

_Static_assert(sizeof(rota_frame) == ROTA_CELL, "a frame header is one cell: a checkpoint has one bit per cell");

/* A compressed block: this, then stored_length bytes.  For BLOCK frames the attributes lie at `offset`, and the
 * block starts at the next multiple of 8 after them only for the frame that owns it; others reach it by block_back. */
typedef struct rota_block {
    uint32_t crc; /* salted, over the 12 bytes after it and the stored bytes */
    uint32_t raw_length;
    uint32_t stored_length;
    uint32_t algorithm; /* 1 lz4 block */
} rota_block;

_Static_assert(sizeof(rota_block) == 16, "block");

/* Attributes of a frame: kind (1), reserved (1), length (2), bytes; no padding. */
enum rota_attribute {
    ROTA_ATTRIBUTE_KEY_BYTES = 1,
    ROTA_ATTRIBUTE_KEY_TEXT = 2,
    ROTA_ATTRIBUTE_HEADERS = 3,
    ROTA_ATTRIBUTE_DUE = 4,    /* u64 wall ns */
    ROTA_ATTRIBUTE_EXPIRY = 5, /* u64 wall ns */
    ROTA_ATTRIBUTE_CLIENT = 6,   /* of a request and of its reply: who asked */
    ROTA_ATTRIBUTE_RID = 7,      /* of both: the id of the request, chosen by the client */
    ROTA_ATTRIBUTE_REPLY_TO = 8, /* of a request: rota_reply_to */
    ROTA_ATTRIBUTE_ORIGIN = 9, /* u16 queue where it was first put */
    ROTA_ATTRIBUTE_SAGA = 10,
    ROTA_ATTRIBUTE_ERROR = 11, /* text: why it failed */
    ROTA_ATTRIBUTE_DEDUP = 12,
    ROTA_ATTRIBUTE_BLOCK = 13, /* u32 offset of the block from the commit's start (BLOCK frames) */
    ROTA_ATTRIBUTE_PUT_AT = 14, /* u64 wall ns: when it was first put (COPIED frames) */
    ROTA_ATTRIBUTE_STATUS = 15, /* u8 rota_reply_status: it is the reply to a request */
};

/* What became of a request. */
enum rota_reply_status { ROTA_REPLY_OK = 0, ROTA_REPLY_FAILED = 1, ROTA_REPLY_CANCELLED = 2, ROTA_REPLY_EXPIRED = 3 };

/* Where the reply goes: a number may be given to another queue, so its making is named too. */
typedef struct rota_reply_to {
    uint64_t created_lsn;
    uint16_t queue;
    uint16_t reserved[3];
} rota_reply_to;

_Static_assert(sizeof(rota_reply_to) == 16, "reply to");

static inline uint64_t rota_round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
static inline uint32_t rota_cells(uint64_t bytes) { return (uint32_t)((bytes + ROTA_CELL - 1) / ROTA_CELL); }
static inline uint64_t rota_pad(uint64_t bytes) { return (bytes + ROTA_CELL - 1) & ~(uint64_t)(ROTA_CELL - 1); }

#endif
