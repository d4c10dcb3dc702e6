/*
 * What processes share: the control file and the claims file.
 *
 * What holds:
 *  1. The control file is derived from the log: it may be lost or rebuilt at any time when nobody is attached.
 *  2. Nothing in it is a pointer: pages are named by their number, slots by page and index; all are range-checked
 *     before use, since the file is as untrusted as the log.
 *  3. Everything below `lock` is changed only under the main lock, except words marked (atomic).
 *  4. A change is undone or done as a whole: before a word changes, its 64-byte line is saved in the undo area and
 *     undo_count is raised; the end of the change is undo_count = 0.  The next owner of the lock after a death
 *     restores the lines in reverse order, then applies again the commits from applied_lsn to tail_lsn.
 *  5. Words that are not undone: lock words, futex words, waiter counts, statistics marked (loose), durable_lsn,
 *     tail_lsn (the one store that publishes), stamped_id.
 *
 * After the fixed part (rota_control) comes the pool: pages of 4 KiB ("small") and of 64 KiB ("large"); a page is named
 * by its number in units of 4 KiB from the pool's start; page 0 is never given out, so 0 means none.
 */
#ifndef ROTA_CONTROL_H
#define ROTA_CONTROL_H

#include <pthread.h>
#include <stdint.h>

#include "rota/format.h"

#define ROTA_CONTROL_MAGIC 0x314c5443544f5231ull
#define ROTA_CONTROL_VERSION 7
#define ROTA_SMALL_PAGE 4096u
#define ROTA_LARGE_PAGE 65536u
#define ROTA_PAGES_PER_LARGE 16u
#define ROTA_EXTENT_BYTES (4u << 20)
#define ROTA_PROCESS_COUNT_MAX 2048u
#define ROTA_QUEUE_COUNT_MAX 8192u
#define ROTA_CLAIM_COUNT 65536u
#define ROTA_UNDO_COUNT_MAX 24576u
#define ROTA_TOMBSTONE_COUNT 65536u
#define ROTA_TOMBSTONE_HELD (1ull << 63)
#define ROTA_TABLE_COUNT 8u

/* One cache line saved before its change. */
typedef struct rota_undo {
    uint64_t place; /* byte offset in the control file, or in the claims file with the top bit set */
    uint64_t bytes[8];
} rota_undo;
_Static_assert(sizeof(rota_undo) == 72, "undo");

/* A message's place: cell (28 bits) | file (16) << 28 | state (4) << 44 | flags (16) << 48. */
typedef struct rota_slot {
    uint64_t id;
    uint64_t word;
} rota_slot;
_Static_assert(sizeof(rota_slot) == 16, "slot");

enum rota_slot_state {
    ROTA_SLOT_EMPTY = 0,
    ROTA_SLOT_FRESH = 1,    /* never handed out one by one: ready ahead of the cursor, in a RANGE claim behind it */
    ROTA_SLOT_RETURNED = 2, /* in the heap of returned ones, or (CLAIMED) in a SINGLE claim */
    ROTA_SLOT_DELAYED = 3,  /* in the heap of due times */
    ROTA_SLOT_PARKED = 4,   /* used up, but its error queue cannot take it */
    ROTA_SLOT_WAITING = 5,  /* an older message of its key lives */
    ROTA_SLOT_ACKED = 8,    /* from here on: settled */
    ROTA_SLOT_KILLED = 9,
    ROTA_SLOT_EXPIRED = 10,
    ROTA_SLOT_MOVED = 11,
};
enum rota_slot_flag {
    ROTA_SLOT_HISTORY = 1,   /* a record in the history table */
    ROTA_SLOT_KEYED = 2,     /* in the index of its queue */
    ROTA_SLOT_SUSPECT = 4,
    ROTA_SLOT_EXPIRES = 8,
    ROTA_SLOT_STRAGGLER = 16, /* not in the id order of its lane: found by the straggler table */
    ROTA_SLOT_CLAIMED = 32,   /* RETURNED and handed out */
    ROTA_SLOT_ELSEWHERE = 64, /* its queue is not the one that its frame names */
    ROTA_SLOT_TAKEN = 128,    /* left FRESH by a claim of its own, which the log does not know: no range spans it */
    ROTA_SLOT_HEAPED = 256,   /* the heap of its lane has an entry of it, true or out of date */
};

static inline uint64_t rota_slot_word(uint32_t file, uint64_t cell, unsigned state, unsigned flags) {
    return (cell & 0xfffffffu) | (uint64_t)(file & 0xffffu) << 28 | (uint64_t)(state & 15u) << 44 | (uint64_t)(flags & 65535u) << 48;
}
static inline uint64_t rota_slot_cell(uint64_t word) { return word & 0xfffffffu; }
static inline uint32_t rota_slot_file(uint64_t word) { return (uint32_t)(word >> 28) & 0xffffu; }
static inline unsigned rota_slot_state(uint64_t word) { return (unsigned)(word >> 44) & 15u; }
static inline unsigned rota_slot_flags(uint64_t word) { return (unsigned)(word >> 48); }
static inline uint64_t rota_slot_with_state(uint64_t word, unsigned state) {
    return (word & ~(15ull << 44)) | (uint64_t)state << 44;
}
static inline uint64_t rota_slot_with_flags(uint64_t word, unsigned flags) {
    return (word & ~(65535ull << 48)) | (uint64_t)flags << 48;
}
static inline uint64_t rota_slot_place(uint64_t word) { return word & 0xfffffffffffull; } /* file and cell */
static inline int rota_slot_live(uint64_t word) {
    unsigned state = rota_slot_state(word);
    return state > ROTA_SLOT_EMPTY && state < ROTA_SLOT_ACKED;
}

enum rota_page_kind {
    ROTA_PAGE_FREE = 0,
    ROTA_PAGE_CHUNK = 1,     /* slots of a lane in the order of their ids */
    ROTA_PAGE_STRAGGLERS = 2, /* slots of a lane that came with an older id */
    ROTA_PAGE_QUEUE = 3,
    ROTA_PAGE_HEAP_ROOT = 4,
    ROTA_PAGE_HEAP_LEAF = 5,
    ROTA_PAGE_TABLE_ROOT = 6,
    ROTA_PAGE_TABLE_BUCKET = 7,
    ROTA_PAGE_REGISTRATION = 8,
    ROTA_PAGE_TAG = 9, /* the rest of a long tag */
};

/* The first 64 bytes of each page that is in use. */
typedef struct rota_page {
    uint16_t kind;
    uint8_t is_large;
    uint8_t level; /* priority lane */
    uint16_t queue;
    uint16_t depth;     /* of a table bucket */
    uint32_t next;      /* towards the tail; next free page in a free list */
    uint32_t previous;  /* towards the head */
    uint32_t jump;      /* an older chunk, for a search in O(log n) steps */
    uint32_t count;     /* slots or records in use (a chunk's: set when it is full; the tail's is in the lane) */
    uint64_t sequence;  /* number of the chunk in its lane */
    uint64_t jump_sequence;
    uint64_t first_id;
    uint32_t dead; /* settled slots: a full chunk behind the cursor with dead == count is freed */
    uint32_t irregular; /* slots that are not plainly FRESH when the cursor comes: 0 lets a claim jump */
    uint64_t min_expiry_ns;
} rota_page;
_Static_assert(sizeof(rota_page) == 64, "page header");

#define ROTA_SMALL_SLOTS ((ROTA_SMALL_PAGE - 64u) / 16u) /* 252 */
#define ROTA_LARGE_SLOTS ((ROTA_LARGE_PAGE - 64u) / 16u) /* 4092 */

/* A slot's address: page number << 16 | index. */
typedef uint64_t rota_slot_ref;

/* A binary heap of 32-byte entries: a root page of leaf numbers. */
typedef struct rota_heap {
    uint32_t root;
    uint32_t size;
} rota_heap;
typedef struct rota_heap_entry {
    uint64_t key; /* place in the order, or due time in ns */
    uint64_t id;
    uint64_t slot; /* rota_slot_ref; valid only while that slot still has this id and the state that the heap is for */
    uint64_t reserved;
} rota_heap_entry;
#define ROTA_HEAP_LEAF_ENTRIES ((ROTA_LARGE_PAGE - 64u) / 32u) /* 2046 */

/* Extendible hash table of 32-byte records; key 0 means free. */
typedef struct rota_table {
    uint32_t root;
    uint32_t depth;
    uint32_t count; /* records */
    uint32_t buckets;
} rota_table;
typedef struct rota_record {
    uint64_t key;
    uint64_t a;
    uint64_t b;
    uint64_t c;
} rota_record;
#define ROTA_BUCKET_RECORDS ((ROTA_LARGE_PAGE - 64u) / 32u)
enum rota_table_name {
    ROTA_TABLE_HISTORY = 0,       /* id -> a: handouts | excused << 32, b: due_ns, c: place in the order (stragglers) */
    ROTA_TABLE_STRAGGLERS = 1,    /* id -> a: slot, b: queue */
    ROTA_TABLE_REGISTRATIONS = 2, /* hash of (queue, name) -> a: page of the registration, b: next with that hash */
    ROTA_TABLE_EXPIRY = 3,   /* id -> a: wall ns after which it must not be handed out */
    ROTA_TABLE_VALUES = 4,   /* hash of queue, lane and term -> a: first slot, b: last slot, c: count */
    ROTA_TABLE_POSTINGS = 5, /* id << 4 | ordinal -> a: term, b: previous slot, c: next; of the score a: the place */
    ROTA_TABLE_KEYS = 6, /* of queue and digest -> a: id, b: sequence, c: second half of the digest */
    ROTA_TABLE_KEY_ORDER = 7, /* queue + 1 << 48 | sequence -> a, b: the digest, c: wall ns of the put */
};

/* One priority of one queue.  Line A changes with puts, line B with claims and settlements. */
typedef struct rota_lane {
    uint32_t head; /* oldest chunk */
    uint32_t tail; /* chunk that takes the next slot */
    uint32_t tail_index;
    uint32_t reserved_a;
    uint64_t last_id;
    uint64_t appended;       /* slots ever added, stragglers included */
    uint64_t appended_fresh; /* of these FRESH when added, stragglers excluded */
    uint64_t next_sequence;  /* of the next chunk */
    uint64_t appended_bytes; /* bodies */
    uint64_t reserved_a2;
    /* line B */
    uint32_t cursor; /* chunk; 0: at the head */
    uint32_t cursor_index;
    uint64_t consumed; /* FRESH slots that the cursor passed, or that ended before it came */
    uint64_t settled;  /* slots that reached ACKED, KILLED, EXPIRED or MOVED */
    uint64_t returned; /* RETURNED and not CLAIMED: ready in the heap */
    uint64_t delayed;
    rota_heap heap; /* of the returned ones, by place in the order */
    uint32_t stragglers; /* chunk that takes the next straggler */
    uint32_t straggler_index;
    uint64_t parked;
} rota_lane;
_Static_assert(sizeof(rota_lane) == 128, "lane");

/* One queue: a small page. */
typedef struct rota_queue {
    rota_page page;
    /* line 1: identity */
    uint16_t number;
    uint16_t state; /* rota_queue_state */
    uint32_t generation; /* raised when the number is used again */
    rota_queue_options options;
    uint64_t created_lsn;
    uint64_t fence_generation;
    uint32_t index_mask, index_bytes; /* one bit for each indexed field; bytes of index_text */
    /* line 2 (atomic, not undone): waking */
    uint32_t wake_sequence; /* futex */
    uint32_t waiters;  /* that sleep, or are about to */
    uint64_t gets, acks, nacks, expired, moved, killed; /* (loose) */
    uint32_t spinners; /* that watch wake_sequence and need no system call to be woken */
    uint32_t fences;   /* how often the fence was raised in this life: whose claims are older */
    /* line 3 */
    rota_heap due; /* of the delayed ones, by due time */
    uint64_t claimed; /* messages handed out */
    uint64_t fence_number;
    uint32_t suspects, expiring; /* live messages that are SUSPECT; that have an expiry */
    uint64_t waiting;      /* messages behind an older one of their key */
    uint32_t blocked_keys; /* keys with more than one message: so many may be pushed on the heap by settlements */
    uint32_t levels; /* bit n: lane n has had a message */
    uint64_t opened_puts, opened_bytes; /* of the lanes, when the recovery had filled them */
    uint8_t name[256];
    rota_lane lanes[ROTA_PRIORITY_COUNT];
    uint8_t index_text[ROTA_INDEX_BYTES_MAX]; /* definitions */
    uint64_t key_first, key_next, key_last_id, key_count; /* keys of puts that it remembers, by sequence */
} rota_queue;
_Static_assert(sizeof(rota_queue) <= ROTA_SMALL_PAGE, "a queue is a small page");
_Static_assert(__builtin_offsetof(rota_queue, wake_sequence) % 64 == 0, "waking has a line of its own");
_Static_assert(__builtin_offsetof(rota_queue, due) % 64 == 0, "heaps have a line of their own");
_Static_assert(__builtin_offsetof(rota_queue, lanes) % 64 == 0, "lanes start at a line");
enum rota_queue_state { ROTA_QUEUE_FREE = 0, ROTA_QUEUE_OPEN = 1, ROTA_QUEUE_STOPPED = 2 };

/* One segment file. */
enum rota_segment_state {
    ROTA_SEGMENT_ABSENT = 0,
    ROTA_SEGMENT_FREE = 1,   /* exists, durable in its directory, holds nothing that counts */
    ROTA_SEGMENT_ACTIVE = 2, /* the log goes on here */
    ROTA_SEGMENT_SEALED = 3, /* full */
};
typedef struct rota_segment {
    uint32_t state;
    uint32_t next_free; /* file number + 1 of the next in the free list, last freed first */
    uint64_t first_lsn;
    uint64_t end_lsn; /* after the last commit (sealed) */
    uint64_t generation;
    uint32_t frames; /* set when sealed; the active one's is in log.tail_frames */
    uint32_t dead;   /* frames that are no longer the place of a live message */
    uint32_t pinned; /* registration copies and checkpoint blocks */
    uint32_t reserved;
    uint64_t reserved2[2];
} rota_segment;
_Static_assert(sizeof(rota_segment) == 64, "segment record");

/* An attached process (one per open repository). */
typedef struct rota_process {
    uint32_t state; /* 0 free, 1 attached */
    uint32_t generation;
    uint32_t pid;
    uint32_t claims; /* records held */
    uint64_t start_time;
    uint64_t pid_namespace;
    uint64_t attached_at_ns;
    uint32_t suspect_held, reserved; /* so many suspects: gets nothing but for the transaction that holds them */
    uint64_t reserved2[2];
} rota_process;
_Static_assert(sizeof(rota_process) == 64, "process slot");

/* A hand-out that the log does not have yet; lives in the claims file. */
enum rota_claim_state { ROTA_CLAIM_FREE = 0, ROTA_CLAIM_PREPARED = 1, ROTA_CLAIM_ACTIVE = 2 };
enum rota_claim_kind { ROTA_CLAIM_RANGE = 1, ROTA_CLAIM_SINGLE = 2 };
enum rota_claim_flag { ROTA_CLAIM_BROKEN = 1, ROTA_CLAIM_SUSPECT = 2, ROTA_CLAIM_KILLED = 4, ROTA_CLAIM_FIRST = 8 /* suspect */ };
enum rota_claim_verdict { ROTA_VERDICT_NONE, ROTA_VERDICT_CHARGE, ROTA_VERDICT_SUSPECT, ROTA_VERDICT_RELEASE, ROTA_VERDICT_BOTH };
typedef struct rota_claim {
    uint64_t shown;      /* (atomic) generation << 32 | n: ids below first_id + n were shown; compare-and-swap */
    uint8_t state;
    uint8_t kind;
    uint8_t level;
    uint8_t flags; /* BROKEN: a message of the range was returned by itself, so its acks name ids */
    uint16_t queue;
    uint16_t process;
    uint32_t process_generation;
    uint32_t count;       /* messages not yet settled or returned */
    uint64_t first_id;
    uint64_t last_id;
    uint64_t lease_deadline_ns; /* boot clock */
    uint32_t handouts;    /* before this one (SINGLE) */
    uint16_t verdict;     /* of a reap: 1 charge, 2 suspect, 3 return free, 4 both 1 and 2 */
    uint16_t fences;      /* of its queue when it was taken */
    uint32_t excused;     /* before this one (SINGLE) */
    uint32_t next_free;   /* claim + 1 of the next free record */
} rota_claim;
_Static_assert(sizeof(rota_claim) == 64, "claim record");

/* The line of the log that every commit changes (undone as one). */
typedef struct rota_log_state {
    uint64_t applied_lsn; /* the lanes are as the log says up to here */
    uint64_t last_chain;  /* chain id of the last commit */
    uint64_t next_id;
    uint64_t time_ns;     /* latest logged decision */
    uint32_t tail_file;
    uint32_t tail_frames;
    uint64_t commits;
    uint64_t messages;
    uint64_t reserved;
} rota_log_state;
_Static_assert(sizeof(rota_log_state) == 64, "one line");

typedef struct rota_control {
    /* page 0: identity, written once before `state` */
    uint64_t magic;
    uint32_t version;
    uint32_t abi; /* sizes and libc; another one is refused */
    uint8_t uuid[16];
    uint8_t boot_id[16];
    uint64_t pid_namespace;
    uint64_t time_namespace;
    uint64_t salt;
    uint64_t segment_size;
    uint64_t capacity, pool_offset;
    uint64_t window_bytes; /* address space to map */
    uint32_t segment_count_max;
    uint32_t sync_unit;
    uint32_t epoch, salt_crc; /* the seed of all checksums */
    uint32_t state;    /* (atomic) rota_control_state */
    uint32_t failed;   /* (atomic) 1: a sync failed; nothing is acknowledged any more */
    uint32_t syncing;  /* (atomic) raised around every sync: left raised by the dead, its outcome is unknown */
    uint32_t reserved_failed;
    uint64_t opened_lsn; /* the cut of the recovery that built this file */
    uint8_t reserved0[ROTA_PAGE_SIZE - 168];

    /* page 1: locks, each in a line of its own */
    pthread_mutex_t lock __attribute__((aligned(128))); /* the main lock */
    uint32_t lock_owner; /* (loose) process slot + 1, for messages */
    pthread_mutex_t sync_lock __attribute__((aligned(128))); /* who leads a sync */
    pthread_mutex_t job_lock __attribute__((aligned(128)));  /* checkpoint, copy-forward, freeing */
    uint32_t job_owner;
    pthread_mutex_t grow_lock __attribute__((aligned(128))); /* new segments and extents */
    pthread_mutex_t tick_lock __attribute__((aligned(128))); /* whose service thread ticks */
    uint8_t pad1[ROTA_PAGE_SIZE - 4 * 128 - 64];

    /* page 2: positions */
    uint64_t tail_lsn __attribute__((aligned(128))); /* (atomic) the one store that publishes */
    uint64_t sealed_lsn; /* a sync took its snapshot here: the next commit starts at the next sync unit */
    uint64_t stamped_id; /* above every id that was ever stamped */
    uint32_t sub_epoch;
    uint32_t undo_count; /* lines to restore */
    uint32_t undo_overflow; /* the undo area was too small: a death now means a rebuild */
    uint32_t rebuild; /* the lanes must be rebuilt from the log before anything else */
    rota_log_state log __attribute__((aligned(64)));
    uint64_t durable_lsn __attribute__((aligned(128))); /* (atomic) */
    uint32_t durable_sequence; /* futex: raised with durable_lsn */
    uint32_t durable_waiters;
    uint32_t space_sequence; /* futex: raised when room appears */
    uint32_t space_waiters;
    uint64_t syncs;          /* (loose) */
    uint64_t sync_ns;        /* (loose) total time of syncs */
    uint64_t sync_last_ns;   /* boot clock of the last sync's end */
    uint64_t synced_commits; /* (loose) log.commits when the last sync took its snapshot */
    uint64_t mark_lsn; /* tail after the last MARK */
    uint64_t pending_lsn; /* start of the commit that is being published: what a redo applies again */

    /* pool and segments (undone) */
    uint32_t pool_limit __attribute__((aligned(64))); /* pages that exist */
    uint32_t pool_next;  /* first page never given out */
    uint32_t free_small; /* list heads */
    uint32_t free_large;
    uint32_t free_small_count;
    uint32_t free_large_count;
    uint32_t segment_count; /* files that exist */
    uint32_t free_segments; /* list head: file + 1 */
    uint32_t free_segment_count;
    uint32_t claim_free; /* list head: claim + 1 */
    uint32_t claim_used; /* claims never used start here */
    uint32_t claim_count;
    uint32_t queue_count;
    uint32_t live_segments;
    uint32_t indexed_queues;
    uint32_t fenced; /* 1: a queue has, or had, a fence; else no commit is compared with one */
    rota_table tables[ROTA_TABLE_COUNT] __attribute__((aligned(64)));

    /* checkpoint (under the job lock) */
    uint64_t checkpoint_begin __attribute__((aligned(64)));
    uint64_t checkpoint_end;
    uint64_t checkpoint_bytes;
    uint64_t checkpoints; /* (loose) */
    uint64_t copied_messages; /* (loose) */
    uint64_t kills; /* (loose) KILL operations applied: who holds something compares */
    uint64_t life_id; /* no id at or above this was given before this file was built */
    uint64_t reserved_checkpoint;

    /* statistics (loose) */
    uint64_t stored_bytes __attribute__((aligned(64))); /* bytes of commits */
    uint64_t raw_bytes;        /* bodies before compression */
    uint64_t compressed_bytes; /* what they became */
    uint64_t owner_deaths;
    uint64_t reaped_claims;
    uint64_t rebuilds;
    uint64_t unreadable; /* messages that the last making of room could not read */
    uint64_t reserved_statistics;

    rota_process processes[ROTA_PROCESS_COUNT_MAX] __attribute__((aligned(4096)));
    uint32_t queues[ROTA_QUEUE_COUNT_MAX] __attribute__((aligned(4096))); /* page of queue n, 0: none */
    rota_segment segments[ROTA_SEGMENT_COUNT_MAX] __attribute__((aligned(4096)));
    rota_undo undo[ROTA_UNDO_COUNT_MAX] __attribute__((aligned(4096)));
    uint64_t tombstones[ROTA_TOMBSTONE_COUNT] __attribute__((aligned(4096))); /* id % count: the id, when it was killed; HELD: in a claim */
} rota_control;

enum rota_control_state { ROTA_CONTROL_BUILDING = 0, ROTA_CONTROL_READY = 1 };
#define ROTA_CONTROL_FIXED_BYTES ((sizeof(rota_control) + 65535u) / 65536u * 65536u)

#endif
