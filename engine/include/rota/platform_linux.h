/* The platform table of Linux. Every system call of rota is made here, in linux_files.h, guard.h or filesystem.h.
 *
 * What holds:
 *  1. One module of a process includes this header (rota._core.platform; in C tests the program): the guard's state
 *     lives with it. Everybody else uses the table that it hands out.
 *  2. Leases run on the boot clock, which counts suspend; the wall clock may jump, and nothing here hides that.
 *  3. Identity of a process is (boot, pid namespace, pid, start time): a number alone is reused.
 */
#ifndef ROTA_PLATFORM_LINUX_H
#define ROTA_PLATFORM_LINUX_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdlib.h>
#include <sys/random.h>

#include "rota/filesystem.h"
#include "rota/guard.h"
#include "rota/linux_files.h"
#include "rota/platform.h"

/* --- clocks -------------------------------------------------------------------------------------------------- */

ROTA_INLINE uint64_t rota_linux_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

ROTA_LINUX uint64_t rota_linux_clock_wall_ns(const rota_platform *platform)
{
    (void)platform;
    return rota_linux_clock(CLOCK_REALTIME);
}

ROTA_LINUX uint64_t rota_linux_clock_wall_coarse_ns(const rota_platform *platform)
{
    (void)platform;
    return rota_linux_clock(CLOCK_REALTIME_COARSE);
}

ROTA_LINUX uint64_t rota_linux_clock_boot_ns(const rota_platform *platform)
{
    (void)platform;
    return rota_linux_clock(CLOCK_BOOTTIME);
}

/* Linux has no coarse boot clock, but a coarse one that stands still in suspend (monotonic). What suspend has added is
 * remembered, with the distance of the wall clock at that time: a suspend makes the wall clock jump against the
 * monotonic one, and so does whoever sets it; then, and when it drifted as far, the sum is made anew. Two coarse clocks
 * are read a tick (10 ms at most) apart and the distance may be off by 10 ms before it is noticed. */
#define ROTA_CLOCK_DISTANCE_NS INT64_C(10000000)
static uint64_t rota_clock_suspended_ns;    /* boot clock less monotonic clock */
static int64_t rota_clock_distance_ns = -1; /* wall clock less monotonic clock, when that was found out */

ROTA_COLD uint64_t rota_linux_clock_compare(void)
{
    int64_t distance = (int64_t)(rota_linux_clock(CLOCK_REALTIME_COARSE) - rota_linux_clock(CLOCK_MONOTONIC_COARSE));
    uint64_t now = rota_linux_clock(CLOCK_BOOTTIME);
    __atomic_store_n(&rota_clock_suspended_ns, now - rota_linux_clock(CLOCK_MONOTONIC), __ATOMIC_RELEASE);
    __atomic_store_n(&rota_clock_distance_ns, distance, __ATOMIC_RELEASE); /* last: who sees it sees the sum */
    return now;
}

ROTA_LINUX uint64_t rota_linux_clock_boot_coarse_ns(const rota_platform *platform)
{
    (void)platform;
    int64_t distance = __atomic_load_n(&rota_clock_distance_ns, __ATOMIC_ACQUIRE);
    uint64_t wall = rota_linux_clock(CLOCK_REALTIME_COARSE), now = rota_linux_clock(CLOCK_MONOTONIC_COARSE);
    int64_t change = (int64_t)(wall - now) - distance;
    if (ROTA_UNLIKELY(change > ROTA_CLOCK_DISTANCE_NS || change < -ROTA_CLOCK_DISTANCE_NS))
        return rota_linux_clock_compare();
    return now + __atomic_load_n(&rota_clock_suspended_ns, __ATOMIC_ACQUIRE);
}

/* --- identity ------------------------------------------------------------------------------------------------ */

/* A small file of procfs as text; its length or a negated errno. */
ROTA_LINUX int rota_linux_read_text(const char *path, char *text, size_t size)
{
    int fd = (int)ROTA_UNINTERRUPTED(open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0)
        return fd;
    long got = ROTA_UNINTERRUPTED(read(fd, text, size - 1));
    close(fd);
    if (got < 0)
        return (int)got;
    text[got] = 0;
    return (int)got;
}

ROTA_LINUX int rota_linux_boot_id(const rota_platform *platform, uint8_t id[16])
{
    (void)platform;
    char text[64];
    int length = rota_linux_read_text("/proc/sys/kernel/random/boot_id", text, sizeof text);
    if (length < 0)
        return length;
    int digits = 0;
    for (const char *next = text; *next != 0 && digits < 32; next++) {
        int digit = *next >= '0' && *next <= '9' ? *next - '0' : *next >= 'a' && *next <= 'f' ? *next - 'a' + 10 : -1;
        if (digit < 0)
            continue;
        id[digits / 2] = (uint8_t)(digits % 2 == 0 ? digit << 4 : id[digits / 2] | digit);
        digits++;
    }
    return digits == 32 ? 0 : -EINVAL;
}

ROTA_LINUX int rota_linux_namespace(const char *path, uint64_t *inode)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return -errno;
    *inode = (uint64_t)status.st_ino;
    return 0;
}

ROTA_LINUX int rota_linux_pid_namespace(const rota_platform *platform, uint64_t *inode)
{
    (void)platform;
    return rota_linux_namespace("/proc/self/ns/pid", inode);
}

ROTA_LINUX int rota_linux_time_namespace(const rota_platform *platform, uint64_t *inode)
{
    (void)platform;
    int result = rota_linux_namespace("/proc/self/ns/time", inode);
    if (result == -ENOENT) {
        *inode = 0; /* a kernel before 5.6: one time for all */
        return 0;
    }
    return result;
}

ROTA_LINUX int rota_linux_process_id(const rota_platform *platform)
{
    (void)platform;
    return (int)getpid();
}

/* Field 22 of stat; the name in field 2 may hold spaces and brackets, so counting begins at the last bracket. */
ROTA_LINUX int rota_linux_process_start(const rota_platform *platform, int process, uint64_t *ticks)
{
    (void)platform;
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    int length = rota_linux_read_text(path, text, sizeof text);
    if (length < 0)
        return length;
    const char *next = strrchr(text, ')');
    for (int field = 2; next != NULL && field < 22; field++)
        next = strchr(next + 1, ' ');
    if (next == NULL)
        return -EINVAL;
    *ticks = strtoull(next + 1, NULL, 10);
    return 0;
}

ROTA_LINUX int rota_linux_random(const rota_platform *platform, void *data, size_t length)
{
    (void)platform;
    for (uint8_t *next = data; length > 0;) {
        long got = ROTA_UNINTERRUPTED(getrandom(next, length, 0));
        if (got < 0)
            return (int)got;
        next += got;
        length -= (size_t)got;
    }
    return 0;
}

ROTA_LINUX int rota_linux_filesystem_kind(const rota_platform *platform, int fd, char name[32])
{
    (void)platform;
    return rota_filesystem_kind(fd, name);
}

/* --- memory -------------------------------------------------------------------------------------------------- */

ROTA_LINUX void *rota_linux_memory_allocate(const rota_platform *platform, size_t alignment, size_t size)
{
    (void)platform;
    void *memory = NULL;
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    if (posix_memalign(&memory, alignment, size > 0 ? size : 1) != 0)
        return NULL;
    memset(memory, 0, size);
    return memory;
}

ROTA_LINUX void rota_linux_memory_free(const rota_platform *platform, void *memory)
{
    (void)platform;
    free(memory);
}

/* --- guarded accesses ---------------------------------------------------------------------------------------- */

ROTA_LINUX int rota_linux_guard_install(const rota_platform *platform)
{
    (void)platform;
    return rota_guard_install();
}

ROTA_LINUX int rota_linux_copy_guarded(const rota_platform *platform, void *destination, const void *source,
                                       size_t length)
{
    (void)platform;
    return rota_guard_copy(destination, source, length);
}

ROTA_LINUX int rota_linux_crc_guarded(const rota_platform *platform, uint32_t seed, const void *source, size_t length,
                                      uint32_t *crc)
{
    (void)platform;
    return rota_guard_crc(seed, source, length, crc);
}

ROTA_LINUX int rota_linux_copy_crc_guarded(const rota_platform *platform, uint32_t seed, void *destination,
                                           const void *source, size_t length, uint32_t *crc)
{
    (void)platform;
    return rota_guard_copy_crc(seed, destination, source, length, crc);
}

ROTA_LINUX int rota_linux_gather_guarded(const rota_platform *platform, const void *mapping, size_t span,
                                         rota_piece *pieces, uint32_t count, bool sums)
{
    (void)platform;
    return rota_guard_gather(mapping, span, pieces, count, sums);
}

ROTA_LINUX int rota_linux_frame_guarded(const rota_platform *platform, const uint8_t *segment, uint64_t offset,
                                        rota_frame *frame, rota_commit_header *header)
{
    (void)platform;
    return rota_guard_frame(segment, offset, frame, header);
}

/* --- the table ----------------------------------------------------------------------------------------------- */

ROTA_LINUX rota_platform rota_platform_linux(void)
{
    rota_platform platform = {
#define ROTA_CALL_ENTRY(name) .name = rota_linux_##name,
        ROTA_CALLS(ROTA_CALL_ENTRY)
#undef ROTA_CALL_ENTRY
    };
    return platform;
}

#endif
