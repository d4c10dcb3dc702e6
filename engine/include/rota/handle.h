/*
 * What one open repository holds in its own process: descriptors, mappings, its slot.  Nothing here is shared.
 *
 * What holds:
 *  1. One handle is one process slot; all threads of the process share it.
 *  2. `calls` counts threads inside; close waits for 0 before it unmaps (a robust lock must never be unmapped while
 *     held, and a copy must never lose its mapping).
 *  3. After a fork the child's copy is dead: fork_generation differs, and no call looks at anything else.
 *  4. A segment that was mapped for writing keeps its descriptor until close, so that no write-back error goes unseen.
 */
#ifndef ROTA_HANDLE_H
#define ROTA_HANDLE_H

#include <stdint.h>

#include "rota/control.h"
#include "rota/failpoint.h"
#include "rota/format.h"
#include "rota/platform.h"
#include "rota/status.h"

#define ROTA_SAVED_COUNT 1024u

typedef struct rota_segment_map {
    uint8_t *base; /* NULL: not mapped */
    int fd;
} rota_segment_map;

enum rota_durability { ROTA_LEVEL_NONE = 0, ROTA_LEVEL_INTERVAL = 1, ROTA_LEVEL_SYNC = 2 };

/* What the open found and cut. */
typedef struct rota_recovery_report {
    uint32_t performed;     /* 1: this open rebuilt the control file */
    uint32_t clean;         /* the log ended in a durable MARK and nothing followed it */
    uint64_t begin_lsn;     /* where the scan began */
    uint64_t cut_lsn;       /* where the log goes on */
    uint64_t proven_lsn;    /* highest position with a proof of durability */
    uint64_t scanned_bytes;
    uint64_t commits;
    uint64_t messages;      /* live after the recovery */
    uint64_t torn_bytes;    /* non-zero bytes found behind the cut */
    uint64_t elapsed_ns;
    uint64_t reaped_claims;
    uint32_t epoch;
    uint32_t case_number;   /* row of the recovery table */
} rota_recovery_report;

typedef struct rota_handle {
    /* hot */
    rota_control *control;
    rota_claim *claims;
    uint8_t *pool; /* control + pool_offset */
    const rota_platform *os;
    rota_failpoints *failpoints;
    rota_segment_map *segments; /* ROTA_SEGMENT_COUNT_MAX of them */
    uint64_t segment_size; /* a power of two */
    uint64_t segment_mask; /* segment_size - 1 */
    uint64_t unsynced_limit; /* more bytes than this beyond durable_lsn stop puts */
    uint64_t hint_id; /* under the main lock: a message that will be searched for next, and where its slot was */
    uint64_t hint_ref;
    uint64_t salt;
    uint32_t salt_crc;
    uint32_t process;            /* slot index */
    uint32_t process_generation;
    uint32_t fork_generation;
    const uint32_t *fork_current; /* the generation of this process: another one, and the handle is a dead copy */
    uint32_t calls;   /* (atomic) threads inside */
    uint32_t closing; /* (atomic) */
    uint32_t spinning; /* (atomic) threads of this handle that spin for a message: one at most */
    uint32_t wait_ns;  /* (loose) how soon a wait for a message ended of late */
    uint32_t spin_rest; /* (loose) waits that do not spin, since a spin found nothing */
    uint32_t spin_misses; /* (loose) spins in a row that found nothing */
    uint32_t reaping; /* (atomic) a thread of this handle takes over from the dead: its lock would let another one in */
    uint32_t read_only;
    uint32_t durability; /* default level */
    uint64_t section; /* under the main lock: raised where a section begins or ends */
    struct { uint64_t place, section; } saved[ROTA_SAVED_COUNT]; /* lines that rota_save_once() saved in it */
    uint32_t table_floor; /* pages that the splits of a commit leave to the rest of it (under the main lock) */
    uint64_t sync_interval_ns;
    uint64_t sync_bytes;
    uint64_t sync_count;
    uint64_t interval_lsn; /* (atomic) end of what calls put at "interval" while the default level is "none" */

    /* cold */
    uint64_t capacity;
    uint64_t window_bytes;
    uint32_t window_pages; /* pages of the pool that fit into the window */
    uint64_t claims_bytes;
    int directory_fd;
    int lock_fd; /* carries the OFD lock of the slot; closed in a forked child */
    int control_fd;
    int claims_fd;
    int manifest_fd;
    int is_memory; /* the file system forgets at power loss: no sync is worth anything */
    uint8_t uuid[16];
    rota_manifest_sector manifest; /* the newest generation that this handle read or wrote */
    rota_recovery_report recovery;
    rota_error error; /* of the last failed call under the GIL */
    uint64_t service_thread;
    uint32_t service_running;
    uint32_t service_stop;     /* (atomic) */
    uint32_t service_sequence; /* futex word of the service thread: raised by who wakes it */
    uint32_t service_rest;     /* (atomic) how it sleeps; who has work for it makes this 0 and wakes it */
    char path[1024];
} rota_handle;

#endif
