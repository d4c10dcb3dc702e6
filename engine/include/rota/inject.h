/* Faults on demand: a layer in front of a platform table that counts, fails and delays its calls.
 *
 * What holds:
 *  1. Nothing of it runs until rota_injection_install has exchanged the entries of the table; without it a call costs
 *     what it always costs.
 *  2. An armed call does not reach the system when it fails: an injected sync error leaves the file unsynced, an
 *     injected ENOSPC writes nothing. A delay alone (os_errno 0) delays and then calls.
 *  3. Included by the module that owns the table, like platform_linux.h.
 *  4. Entries are exchanged one pointer at a time; a call that runs meanwhile uses either and both are right.
 *  5. Clocks can be shifted; waits (futex, sleep) are durations and stay what they are.
 */
#ifndef ROTA_INJECT_H
#define ROTA_INJECT_H

#include <errno.h>

#include "rota/platform.h"

#define ROTA_INJECT_EVERY UINT64_MAX /* nth: not one call but all of them */

typedef struct rota_injection_point {
    uint64_t calls; /* since the layer was installed or cleared */
    uint64_t fired;
    uint64_t left;  /* the call that takes this from 1 to 0 fires */
    uint64_t delay_ns;
    int32_t os_errno;
    uint32_t armed;
} rota_injection_point;

typedef struct rota_injection {
    rota_platform inner; /* the table as it was */
    uint64_t wall_shift_ns;
    uint64_t boot_shift_ns;
    rota_injection_point points[ROTA_CALL_COUNT];
} rota_injection;

/* Count the call; the errno to fail with, or 0 to go on. */
ROTA_COLD int rota_injection_enter(rota_injection *injection, int call)
{
    rota_injection_point *point = &injection->points[call];
    rota_fetch_add_relaxed_u64(&point->calls, 1);
    if (!rota_load_acquire_u32(&point->armed))
        return 0;
    uint64_t left = rota_load_relaxed_u64(&point->left);
    if (left != ROTA_INJECT_EVERY) {
        if (left == 0 || rota_fetch_sub_u64(&point->left, 1) != 1)
            return 0;
        rota_store_release_u32(&point->armed, 0);
    }
    rota_fetch_add_relaxed_u64(&point->fired, 1);
    if (point->delay_ns > 0)
        injection->inner.sleep(&injection->inner, point->delay_ns);
    return point->os_errno;
}

#define ROTA_INJECTED_WITH(result, name, parameters, arguments, failure)                                            \
    static __attribute__((unused)) result rota_injected_##name parameters                                           \
    {                                                                                                               \
        int rota_errno = rota_injection_enter(platform->injection, ROTA_CALL_##name);                               \
        if (rota_errno != 0)                                                                                        \
            return failure;                                                                                         \
        return platform->injection->inner.name arguments;                                                           \
    }
#define ROTA_INJECTED(name, parameters, arguments) ROTA_INJECTED_WITH(int, name, parameters, arguments, -rota_errno)
#define ROTA_INJECTED_GUARD(name, parameters, arguments) ROTA_INJECTED_WITH(int, name, parameters, arguments, ROTA_BUS)
#define ROTA_INJECTED_CLOCK(name, shift)                                                                            \
    static __attribute__((unused)) uint64_t rota_injected_##name(const rota_platform *platform)                     \
    {                                                                                                               \
        rota_injection *injection = platform->injection;                                                            \
        (void)rota_injection_enter(injection, ROTA_CALL_##name);                                                    \
        return injection->inner.name(platform) + rota_load_relaxed_u64(&injection->shift);                          \
    }

ROTA_INJECTED(open, (const rota_platform *platform, int directory, const char *name, int flags, int mode),
              (platform, directory, name, flags, mode))
ROTA_INJECTED(close, (const rota_platform *platform, int fd), (platform, fd))
ROTA_INJECTED(facts, (const rota_platform *platform, int fd, rota_facts *facts), (platform, fd, facts))
ROTA_INJECTED(make_directory, (const rota_platform *platform, int directory, const char *name, int mode),
              (platform, directory, name, mode))
ROTA_INJECTED(list_directory,
              (const rota_platform *platform, int fd, int (*visit)(void *, const char *), void *context),
              (platform, fd, visit, context))
ROTA_INJECTED(pread, (const rota_platform *platform, int fd, void *data, size_t length, uint64_t offset),
              (platform, fd, data, length, offset))
ROTA_INJECTED(pwrite, (const rota_platform *platform, int fd, const void *data, size_t length, uint64_t offset),
              (platform, fd, data, length, offset))
ROTA_INJECTED(sync, (const rota_platform *platform, int fd), (platform, fd))
ROTA_INJECTED(sync_metadata, (const rota_platform *platform, int fd), (platform, fd))
ROTA_INJECTED(sync_directory, (const rota_platform *platform, int fd), (platform, fd))
ROTA_INJECTED(allocate, (const rota_platform *platform, int fd, uint64_t offset, uint64_t length),
              (platform, fd, offset, length))
ROTA_INJECTED(zero, (const rota_platform *platform, int fd, uint64_t offset, uint64_t length),
              (platform, fd, offset, length))
ROTA_INJECTED(truncate, (const rota_platform *platform, int fd, uint64_t size), (platform, fd, size))
ROTA_INJECTED(drop_cache, (const rota_platform *platform, int fd), (platform, fd))
ROTA_INJECTED(map, (const rota_platform *platform, int fd, uint64_t length, bool writable, void **address),
              (platform, fd, length, writable, address))
ROTA_INJECTED(unmap, (const rota_platform *platform, void *address, uint64_t length), (platform, address, length))
ROTA_INJECTED(dont_fork, (const rota_platform *platform, void *address, uint64_t length), (platform, address, length))
ROTA_INJECTED(populate, (const rota_platform *platform, void *address, uint64_t length, bool writable),
              (platform, address, length, writable))
ROTA_INJECTED(rename, (const rota_platform *platform, int directory, const char *from, const char *to),
              (platform, directory, from, to))
ROTA_INJECTED(rename_new, (const rota_platform *platform, int directory, const char *from, const char *to),
              (platform, directory, from, to))
ROTA_INJECTED(unlink, (const rota_platform *platform, int directory, const char *name), (platform, directory, name))
ROTA_INJECTED(lock_range,
              (const rota_platform *platform, int fd, uint64_t offset, uint64_t length, bool exclusive),
              (platform, fd, offset, length, exclusive))
ROTA_INJECTED(unlock_range, (const rota_platform *platform, int fd, uint64_t offset, uint64_t length),
              (platform, fd, offset, length))
ROTA_INJECTED(test_range, (const rota_platform *platform, int fd, uint64_t offset, uint64_t length),
              (platform, fd, offset, length))
ROTA_INJECTED(futex_wait,
              (const rota_platform *platform, uint32_t *word, uint32_t expected, int64_t timeout_ns),
              (platform, word, expected, timeout_ns))
ROTA_INJECTED(futex_wake, (const rota_platform *platform, uint32_t *word, int count), (platform, word, count))
ROTA_INJECTED(sleep, (const rota_platform *platform, uint64_t duration_ns), (platform, duration_ns))
ROTA_INJECTED(yield_processor, (const rota_platform *platform), (platform))
ROTA_INJECTED_CLOCK(clock_wall_ns, wall_shift_ns)
ROTA_INJECTED_CLOCK(clock_wall_coarse_ns, wall_shift_ns)
ROTA_INJECTED_CLOCK(clock_boot_ns, boot_shift_ns)
ROTA_INJECTED_CLOCK(clock_boot_coarse_ns, boot_shift_ns)
ROTA_INJECTED(boot_id, (const rota_platform *platform, uint8_t id[16]), (platform, id))
ROTA_INJECTED(pid_namespace, (const rota_platform *platform, uint64_t *inode), (platform, inode))
ROTA_INJECTED(time_namespace, (const rota_platform *platform, uint64_t *inode), (platform, inode))
ROTA_INJECTED(process_id, (const rota_platform *platform), (platform))
ROTA_INJECTED(process_start, (const rota_platform *platform, int process, uint64_t *ticks), (platform, process, ticks))
ROTA_INJECTED(random, (const rota_platform *platform, void *data, size_t length), (platform, data, length))
ROTA_INJECTED(filesystem_kind, (const rota_platform *platform, int fd, char name[32]), (platform, fd, name))
ROTA_INJECTED_WITH(void *, memory_allocate, (const rota_platform *platform, size_t alignment, size_t size),
                   (platform, alignment, size), NULL)
static __attribute__((unused)) void rota_injected_memory_free(const rota_platform *platform, void *memory)
{
    (void)rota_injection_enter(platform->injection, ROTA_CALL_memory_free);
    platform->injection->inner.memory_free(platform, memory);
}
ROTA_INJECTED(guard_install, (const rota_platform *platform), (platform))
ROTA_INJECTED_GUARD(copy_guarded,
                    (const rota_platform *platform, void *destination, const void *source, size_t length),
                    (platform, destination, source, length))
ROTA_INJECTED_GUARD(crc_guarded,
                    (const rota_platform *platform, uint32_t seed, const void *source, size_t length, uint32_t *crc),
                    (platform, seed, source, length, crc))
ROTA_INJECTED_GUARD(copy_crc_guarded,
                    (const rota_platform *platform, uint32_t seed, void *destination, const void *source,
                     size_t length, uint32_t *crc),
                    (platform, seed, destination, source, length, crc))

ROTA_INJECTED_GUARD(gather_guarded,
                    (const rota_platform *platform, const void *mapping, size_t span, rota_piece *pieces,
                     uint32_t count, bool sums),
                    (platform, mapping, span, pieces, count, sums))

ROTA_INJECTED_GUARD(frame_guarded,
                    (const rota_platform *platform, const uint8_t *segment, uint64_t offset, rota_frame *frame,
                     rota_commit_header *header),
                    (platform, segment, offset, frame, header))

/* Stand in front of the table's entries. injection is zeroed memory that outlives the table. */
ROTA_COLD void rota_injection_install(rota_platform *platform, rota_injection *injection)
{
    if (platform->injection != NULL)
        return;
    injection->inner = *platform;
    __atomic_store_n(&platform->injection, injection, __ATOMIC_SEQ_CST);
#define ROTA_CALL_ENTRY(name) __atomic_store_n(&platform->name, rota_injected_##name, __ATOMIC_SEQ_CST);
    ROTA_CALLS(ROTA_CALL_ENTRY)
#undef ROTA_CALL_ENTRY
}

/* Let the nth call from now on (1: the next; ROTA_INJECT_EVERY) take delay_ns longer and fail with os_errno, unless 0.
 * A guarded access fails with ROTA_BUS whatever the errno is, an allocation returns NULL, a clock only delays. */
ROTA_COLD void rota_injection_arm(rota_injection *injection, int call, uint64_t nth, int os_errno, uint64_t delay_ns)
{
    rota_injection_point *point = &injection->points[call];
    rota_store_release_u32(&point->armed, 0);
    point->os_errno = os_errno;
    point->delay_ns = delay_ns;
    rota_store_relaxed_u64(&point->left, nth);
    rota_store_release_u32(&point->armed, nth > 0);
}

/* Set the clocks apart from the system's; a shift back is the two's complement. */
ROTA_COLD void rota_injection_shift(rota_injection *injection, uint64_t wall_ns, uint64_t boot_ns)
{
    rota_store_relaxed_u64(&injection->wall_shift_ns, wall_ns);
    rota_store_relaxed_u64(&injection->boot_shift_ns, boot_ns);
}

/* Disarm everything, forget the counts, let the clocks run true. */
ROTA_COLD void rota_injection_clear(rota_injection *injection)
{
    for (int call = 0; call < ROTA_CALL_COUNT; call++) {
        rota_injection_point *point = &injection->points[call];
        rota_store_release_u32(&point->armed, 0);
        rota_store_relaxed_u64(&point->left, 0);
        rota_store_relaxed_u64(&point->calls, 0);
        rota_store_relaxed_u64(&point->fired, 0);
    }
    rota_injection_shift(injection, 0, 0);
}

#endif
