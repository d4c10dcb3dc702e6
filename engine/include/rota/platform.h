/* The platform table: the one place through which the engine reaches the operating system.
 *
 * What holds:
 *  1. Every system call of the engine is an entry of one rota_platform, called as p->sync(p, fd). Tests replace
 *     entries to fail, delay, count or record them (inject.h), and another system is another table.
 *  2. An entry returns 0 (or a count) or a negated errno, never -1 with errno; it handles EINTR itself, except
 *     futex_wait, which reports it. Whole transfers: pread and pwrite never return a part.
 *  3. All mutable state (the SIGBUS guard of a thread, its handler, what is injected) belongs to the module that made
 *     the table and is reached through the entries. Headers are included by several modules; a static here would
 *     exist once in each of them. So this header has no state, and platform_linux.h is included by one module only.
 *  4. A sync that failed is never tried again: after EIO the kernel has dropped the pages' dirty marks, and the
 *     second call would say yes about bytes that are not on the disk.
 *  5. record_* are NULL except under the power-loss simulator. The table calls them for what goes through it; stores
 *     through a mapping are told by whoever stores, with rota_record_store.
 */
#ifndef ROTA_PLATFORM_H
#define ROTA_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rota/atomics.h"
#include "rota/format.h"
#include "rota/status.h"

typedef struct rota_platform rota_platform;
struct rota_injection; /* inject.h */

/* How open shall behave; combined with |. */
enum {
    ROTA_OPEN_READ = 0,
    ROTA_OPEN_WRITE = 1,     /* for reading and writing */
    ROTA_OPEN_CREATE = 2,    /* create when missing */
    ROTA_OPEN_EXCLUSIVE = 4, /* with CREATE: -EEXIST when it is there */
    ROTA_OPEN_DIRECTORY = 8, /* a directory, to be used as first argument of open, rename, unlink */
    ROTA_OPEN_DIRECT = 16,   /* past the page cache: buffers, offsets and lengths in multiples of 4096 */
    ROTA_OPEN_FOLLOW = 32,   /* a symbolic link as last part of the name is followed (for the user's path only) */
};

#define ROTA_HERE (-100) /* the directory argument that means the working directory (AT_FDCWD) */
#define ROTA_DIRECT_ALIGNMENT 4096u

typedef struct rota_facts { /* what open checks about a file */
    uint64_t size;
    uint64_t device;
    uint64_t inode;
    uint64_t links;
    uint32_t mode; /* permission bits only */
    uint32_t owner;
    bool regular;
    bool directory;
} rota_facts;

enum {
    ROTA_FILESYSTEM_ALLOWED = 0,
    ROTA_FILESYSTEM_VOLATILE = 1, /* works, does not outlive the machine's power */
    ROTA_FILESYSTEM_REFUSED = 2,  /* shared mappings or syncs there do not keep their promise, or nobody knows */
};

/* Changes of files that record_change tells; value is the new size of truncate and allocate. */
enum {
    ROTA_CHANGE_OPEN = 1,
    ROTA_CHANGE_CLOSE = 2,
    ROTA_CHANGE_TRUNCATE = 3,
    ROTA_CHANGE_ALLOCATE = 4,
    ROTA_CHANGE_RENAME = 5,
    ROTA_CHANGE_UNLINK = 6,
    ROTA_CHANGE_DIRECTORY = 7, /* made */
};

/* Stages that record_sync tells: what is durable after the end is what was stored before the begin. */
enum { ROTA_SYNC_BEGIN = 0, ROTA_SYNC_END = 1, ROTA_SYNC_FAILED = 2 };

/* Every entry, once: the order of the call numbers, and the names by which a test arms them. */
#define ROTA_CALLS(X)                                                                                               \
    X(open) X(close) X(facts) X(make_directory) X(list_directory) X(pread) X(pwrite) X(sync) X(sync_metadata)       \
    X(sync_directory) X(allocate) X(zero) X(truncate) X(drop_cache) X(map) X(unmap) X(dont_fork) X(populate)        \
    X(rename) X(rename_new) X(unlink) X(lock_range) X(unlock_range) X(test_range) X(futex_wait) X(futex_wake)       \
    X(sleep) X(yield_processor) X(clock_wall_ns) X(clock_wall_coarse_ns) X(clock_boot_ns) X(clock_boot_coarse_ns) X(boot_id) X(pid_namespace)                  \
    X(time_namespace) X(process_id) X(process_start) X(random) X(filesystem_kind) X(memory_allocate)                \
    X(memory_free) X(guard_install) X(copy_guarded) X(crc_guarded) X(copy_crc_guarded)                        \
    X(gather_guarded) X(frame_guarded)

enum {
#define ROTA_CALL_ENTRY(name) ROTA_CALL_##name,
    ROTA_CALLS(ROTA_CALL_ENTRY)
#undef ROTA_CALL_ENTRY
    ROTA_CALL_COUNT
};

/* One copy of several that are made under one guard: with sums, `sum` is the seed before and the sum of the copy after. */
typedef struct rota_piece {
    void *to; /* private memory */
    const void *from;
    uint32_t length;
    uint32_t sum;
} rota_piece;

struct rota_platform {
    /* Files. directory: a descriptor or ROTA_HERE. Opened close-on-exec and, but for FOLLOW, no symbolic link. */
    /* descriptor */
    int (*open)(const rota_platform *platform, int directory, const char *name, int flags, int mode);
    int (*close)(const rota_platform *platform, int fd);
    int (*facts)(const rota_platform *platform, int fd, rota_facts *facts);
    int (*make_directory)(const rota_platform *platform, int directory, const char *name, int mode);
    /* visit returns 0 to go on; anything else ends the walk and is returned. "." and ".." are left out. */
    int (*list_directory)(const rota_platform *platform, int fd, int (*visit)(void *context, const char *name),
                          void *context);
    /* -ENODATA: file ends */
    int (*pread)(const rota_platform *platform, int fd, void *data, size_t length, uint64_t offset);
    int (*pwrite)(const rota_platform *platform, int fd, const void *data, size_t length, uint64_t offset);
    /* data and what is needed to find it (fdatasync) */
    int (*sync)(const rota_platform *platform, int fd);
    int (*sync_metadata)(const rota_platform *platform, int fd); /* everything (fsync) */
    int (*sync_directory)(const rota_platform *platform, int fd);
    /* blocks; or zeros if it can't */
    int (*allocate)(const rota_platform *platform, int fd, uint64_t offset, uint64_t length);
    /* in writes of 4 KiB */
    int (*zero)(const rota_platform *platform, int fd, uint64_t offset, uint64_t length);
    int (*truncate)(const rota_platform *platform, int fd, uint64_t size);
    int (*drop_cache)(const rota_platform *platform, int fd);
    /* shared, from 0 */
    int (*map)(const rota_platform *platform, int fd, uint64_t length, bool writable, void **address);
    int (*unmap)(const rota_platform *platform, void *address, uint64_t length);
    /* a forked child gets no mapping */
    int (*dont_fork)(const rota_platform *platform, void *address, uint64_t length);
    /* -EFAULT: no room, bad disk */
    int (*populate)(const rota_platform *platform, void *address, uint64_t length, bool writable);
    int (*rename)(const rota_platform *platform, int directory, const char *old_name, const char *new_name);
    /* -EEXIST, never replaces */
    int (*rename_new)(const rota_platform *platform, int directory, const char *old_name, const char *new_name);
    int (*unlink)(const rota_platform *platform, int directory, const char *name);

    /* Byte-range locks of the open file description; they never wait. -EAGAIN: another holds it. */
    int (*lock_range)(const rota_platform *platform, int fd, uint64_t offset, uint64_t length, bool exclusive);
    int (*unlock_range)(const rota_platform *platform, int fd, uint64_t offset, uint64_t length);
    /* 1: another holds some of it */
    int (*test_range)(const rota_platform *platform, int fd, uint64_t offset, uint64_t length);

    /* Waiting across processes. timeout_ns < 0: for ever. 0 woken (or by chance), -EAGAIN the word differs,
     * -ETIMEDOUT, -EINTR. futex_wake returns how many it woke. */
    int (*futex_wait)(const rota_platform *platform, uint32_t *word, uint32_t expected, int64_t timeout_ns);
    int (*futex_wake)(const rota_platform *platform, uint32_t *word, int count);
    int (*sleep)(const rota_platform *platform, uint64_t duration_ns);
    int (*yield_processor)(const rota_platform *platform); /* to whoever else can run on it */

    /* Clocks and identity. */
    uint64_t (*clock_wall_ns)(const rota_platform *platform);
    uint64_t (*clock_wall_coarse_ns)(const rota_platform *platform); /* a tick old at most, for stamps of messages */
    uint64_t (*clock_boot_ns)(const rota_platform *platform);        /* runs through suspend, starts anew at boot */
    uint64_t (*clock_boot_coarse_ns)(const rota_platform *platform); /* the same within 40 ms, for leases */
    int (*boot_id)(const rota_platform *platform, uint8_t id[16]);
    int (*pid_namespace)(const rota_platform *platform, uint64_t *inode);
    int (*time_namespace)(const rota_platform *platform, uint64_t *inode); /* 0 where the kernel has none */
    int (*process_id)(const rota_platform *platform);
    int (*process_start)(const rota_platform *platform, int process, uint64_t *ticks); /* -ESRCH or -ENOENT: gone */
    int (*random)(const rota_platform *platform, void *data, size_t length);
    /* ROTA_FILESYSTEM_* or negated errno */
    int (*filesystem_kind)(const rota_platform *platform, int fd, char name[32]);

    /* Memory outside Python's. NULL when there is none. alignment: a power of two. Zeroed. */
    void *(*memory_allocate)(const rota_platform *platform, size_t alignment, size_t size);
    void (*memory_free)(const rota_platform *platform, void *memory);

    /* Accesses to mapped files that may fault (a truncated file, a full or dead disk): 0 or ROTA_BUS. After ROTA_BUS
     * the destination holds an unknown part. guard_install puts the SIGBUS handler (back) on top; call it at open. */
    int (*guard_install)(const rota_platform *platform);
    int (*copy_guarded)(const rota_platform *platform, void *destination, const void *source, size_t length);
    int (*crc_guarded)(const rota_platform *platform, uint32_t seed, const void *source, size_t length, uint32_t *crc);
    int (*gather_guarded)(const rota_platform *platform, const void *mapping, size_t span, rota_piece *pieces,
                          uint32_t count, bool sums); /* all pieces come from the mapping */
    /* the frame header at `offset` of a mapped segment, and the header of its commit; ROTA_CORRUPT: not inside it */
    int (*frame_guarded)(const rota_platform *platform, const uint8_t *segment, uint64_t offset, rota_frame *frame,
                         rota_commit_header *header);
    int (*copy_crc_guarded)(const rota_platform *platform, uint32_t seed, void *destination, const void *source,
                            size_t length, uint32_t *crc);

    /* The recorder; see 5. data is NULL for zeros. */
    void *record_context;
    void (*record_store)(void *context, int file, uint64_t offset, const void *data, uint64_t length);
    void (*record_sync)(void *context, int file, int stage);
    void (*record_change)(void *context, int change, int file, const char *name, const char *other, uint64_t value);

    struct rota_injection *injection; /* NULL unless inject.h stands in front of the entries */
    void *system;                     /* private to whoever made the table */
};

/* Tell the recorder of a store through a mapping. Before the store is published, in program order. */
ROTA_INLINE void rota_record_store(const rota_platform *platform, int file, uint64_t offset, const void *data,
                                   uint64_t length)
{
    if (ROTA_UNLIKELY(platform->record_store != NULL))
        platform->record_store(platform->record_context, file, offset, data, length);
}

ROTA_COLD const char *rota_call_name(int call)
{
    static const char *const names[] = {
#define ROTA_CALL_ENTRY(name) #name,
        ROTA_CALLS(ROTA_CALL_ENTRY)
#undef ROTA_CALL_ENTRY
    };
    return call >= 0 && call < ROTA_CALL_COUNT ? names[call] : NULL;
}

ROTA_COLD int rota_call_by_name(const char *name)
{
    for (int call = 0; call < ROTA_CALL_COUNT; call++)
        if (strcmp(rota_call_name(call), name) == 0)
            return call;
    return -1;
}

#endif
