/* Files, mappings, range locks and waiting on Linux: half of the entries of the platform table.
 *
 * What holds:
 *  1. Included by platform_linux.h only.
 *  2. Calls that can be cut short are finished here: pread and pwrite loop over parts, EINTR is tried again, but a sync
 *     that reports anything else is reported as it is, once.
 *  3. Locks of ranges belong to the open file description (F_OFD_*), not to the process: closing another descriptor of
 *     the same file does not drop them, and a thread is as good a holder as a process.
 *  4. Futexes are the shared kind: waiter and waker may be different processes with different mappings.
 */
#ifndef ROTA_LINUX_FILES_H
#define ROTA_LINUX_FILES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rota/platform.h"

_Static_assert(sizeof(off_t) == 8, "files are addressed with 64 bits");
_Static_assert(ROTA_HERE == AT_FDCWD, "ROTA_HERE is the working directory");

#define ROTA_LINUX static __attribute__((unused))
#define ROTA_POPULATE_READ 22 /* MADV_POPULATE_*, newer than many C libraries */
#define ROTA_POPULATE_WRITE 23
#define ROTA_ZERO_STEP 4096u /* larger writes make large folios, and then one changed byte syncs all of one */

/* The result of a call made until a signal no longer cuts it short: its value, or the negated errno. */
#define ROTA_UNINTERRUPTED(call)                                                                                    \
    ({                                                                                                              \
        long rota_result;                                                                                           \
        do                                                                                                          \
            rota_result = (call);                                                                                   \
        while (rota_result == -1 && errno == EINTR);                                                                \
        rota_result == -1 ? -(long)errno : rota_result;                                                             \
    })

static __attribute__((unused)) const uint8_t rota_zero_page[ROTA_ZERO_STEP] __attribute__((aligned(4096)));

ROTA_INLINE void rota_record_change(const rota_platform *platform, int change, int file, const char *name,
                                    const char *other, uint64_t value)
{
    if (ROTA_UNLIKELY(platform->record_change != NULL))
        platform->record_change(platform->record_context, change, file, name, other, value);
}

/* --- files --------------------------------------------------------------------------------------------------- */

ROTA_LINUX int rota_linux_open(const rota_platform *platform, int directory, const char *name, int flags, int mode)
{
    int system = O_CLOEXEC | O_NOCTTY | (flags & ROTA_OPEN_WRITE ? O_RDWR : O_RDONLY);
    if (!(flags & ROTA_OPEN_FOLLOW))
        system |= O_NOFOLLOW;
    if (flags & ROTA_OPEN_CREATE)
        system |= O_CREAT;
    if (flags & ROTA_OPEN_EXCLUSIVE)
        system |= O_EXCL;
    if (flags & ROTA_OPEN_DIRECTORY)
        system |= O_DIRECTORY;
    else
        system |= O_NONBLOCK; /* a fifo of that name must not hold us; facts() then refuses it */
    if (flags & ROTA_OPEN_DIRECT)
        system |= O_DIRECT;
    int fd = (int)ROTA_UNINTERRUPTED(openat(directory, name, system, (mode_t)mode));
    if (fd >= 0)
        rota_record_change(platform, ROTA_CHANGE_OPEN, fd, name, NULL, (uint64_t)flags);
    return fd;
}

/* Never tried again: after EINTR the descriptor is gone already, and its number may be another's. */
ROTA_LINUX int rota_linux_close(const rota_platform *platform, int fd)
{
    rota_record_change(platform, ROTA_CHANGE_CLOSE, fd, NULL, NULL, 0);
    return close(fd) == -1 && errno != EINTR ? -errno : 0;
}

ROTA_LINUX int rota_linux_facts(const rota_platform *platform, int fd, rota_facts *facts)
{
    (void)platform;
    struct stat status;
    if (fstat(fd, &status) != 0)
        return -errno;
    facts->size = (uint64_t)status.st_size;
    facts->device = (uint64_t)status.st_dev;
    facts->inode = (uint64_t)status.st_ino;
    facts->links = (uint64_t)status.st_nlink;
    facts->mode = (uint32_t)(status.st_mode & 07777);
    facts->owner = (uint32_t)status.st_uid;
    facts->regular = S_ISREG(status.st_mode);
    facts->directory = S_ISDIR(status.st_mode);
    return 0;
}

ROTA_LINUX int rota_linux_make_directory(const rota_platform *platform, int directory, const char *name, int mode)
{
    if (mkdirat(directory, name, (mode_t)mode) != 0)
        return -errno;
    rota_record_change(platform, ROTA_CHANGE_DIRECTORY, directory, name, NULL, 0);
    return 0;
}

ROTA_LINUX int rota_linux_list_directory(const rota_platform *platform, int fd,
                                         int (*visit)(void *, const char *), void *context)
{
    (void)platform;
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* a position of its own */
    if (own < 0)
        return -errno;
    DIR *stream = fdopendir(own);
    if (stream == NULL) {
        int error = -errno;
        close(own);
        return error;
    }
    int result = 0;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(stream);
        if (entry == NULL) {
            result = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if ((result = visit(context, entry->d_name)) != 0)
            break;
    }
    closedir(stream);
    return result;
}

ROTA_LINUX int rota_linux_pread(const rota_platform *platform, int fd, void *data, size_t length, uint64_t offset)
{
    (void)platform;
    for (uint8_t *next = data; length > 0;) {
        long got = ROTA_UNINTERRUPTED(pread(fd, next, length, (off_t)offset));
        if (got < 0)
            return (int)got;
        if (got == 0)
            return -ENODATA;
        next += got;
        offset += (uint64_t)got;
        length -= (size_t)got;
    }
    return 0;
}

ROTA_INLINE int rota_linux_write_all(int fd, const void *data, size_t length, uint64_t offset)
{
    for (const uint8_t *next = data; length > 0;) {
        long put = ROTA_UNINTERRUPTED(pwrite(fd, next, length, (off_t)offset));
        if (put <= 0)
            return put < 0 ? (int)put : -EIO;
        next += put;
        offset += (uint64_t)put;
        length -= (size_t)put;
    }
    return 0;
}

ROTA_LINUX int rota_linux_pwrite(const rota_platform *platform, int fd, const void *data, size_t length,
                                 uint64_t offset)
{
    rota_record_store(platform, fd, offset, data, length);
    return rota_linux_write_all(fd, data, length, offset);
}

ROTA_INLINE int rota_linux_sync_with(const rota_platform *platform, int fd, int (*call)(int))
{
    if (ROTA_UNLIKELY(platform->record_sync != NULL))
        platform->record_sync(platform->record_context, fd, ROTA_SYNC_BEGIN);
    int result = (int)ROTA_UNINTERRUPTED(call(fd));
    if (ROTA_UNLIKELY(platform->record_sync != NULL))
        platform->record_sync(platform->record_context, fd, result == 0 ? ROTA_SYNC_END : ROTA_SYNC_FAILED);
    return result;
}

ROTA_LINUX int rota_linux_sync(const rota_platform *platform, int fd)
{
    return rota_linux_sync_with(platform, fd, fdatasync);
}

ROTA_LINUX int rota_linux_sync_metadata(const rota_platform *platform, int fd)
{
    return rota_linux_sync_with(platform, fd, fsync);
}

ROTA_LINUX int rota_linux_sync_directory(const rota_platform *platform, int fd)
{
    return rota_linux_sync_with(platform, fd, fsync);
}

ROTA_LINUX int rota_linux_zero(const rota_platform *platform, int fd, uint64_t offset, uint64_t length)
{
    rota_record_store(platform, fd, offset, NULL, length);
    while (length > 0) {
        uint64_t step = ROTA_ZERO_STEP - offset % ROTA_ZERO_STEP;
        if (step > length)
            step = length;
        int result = rota_linux_write_all(fd, rota_zero_page, (size_t)step, offset);
        if (result != 0)
            return result;
        offset += step;
        length -= step;
    }
    return 0;
}

/* Where blocks cannot be reserved, writing zeros reserves them, and a full disk is an error either way. */
ROTA_LINUX int rota_linux_allocate(const rota_platform *platform, int fd, uint64_t offset, uint64_t length)
{
    int result = (int)ROTA_UNINTERRUPTED(fallocate(fd, 0, (off_t)offset, (off_t)length));
    if (result == -EOPNOTSUPP || result == -ENOSYS)
        return rota_linux_zero(platform, fd, offset, length);
    if (result == 0)
        rota_record_change(platform, ROTA_CHANGE_ALLOCATE, fd, NULL, NULL, offset + length);
    return result;
}

ROTA_LINUX int rota_linux_truncate(const rota_platform *platform, int fd, uint64_t size)
{
    int result = (int)ROTA_UNINTERRUPTED(ftruncate(fd, (off_t)size));
    if (result == 0)
        rota_record_change(platform, ROTA_CHANGE_TRUNCATE, fd, NULL, NULL, size);
    return result;
}

/* Pages that are dirty, or mapped by anybody, stay. */
ROTA_LINUX int rota_linux_drop_cache(const rota_platform *platform, int fd)
{
    (void)platform;
    return -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

ROTA_LINUX int rota_linux_rename(const rota_platform *platform, int directory, const char *from, const char *to)
{
    if (renameat(directory, from, directory, to) != 0)
        return -errno;
    rota_record_change(platform, ROTA_CHANGE_RENAME, directory, from, to, 0);
    return 0;
}

/* A file system without RENAME_NOREPLACE has hard links; those never replace either. */
ROTA_LINUX int rota_linux_rename_new(const rota_platform *platform, int directory, const char *from, const char *to)
{
    if (syscall(SYS_renameat2, directory, from, directory, to, 1u /* RENAME_NOREPLACE */) != 0) {
        if (errno != EINVAL && errno != ENOSYS)
            return -errno;
        if (linkat(directory, from, directory, to, 0) != 0 || unlinkat(directory, from, 0) != 0)
            return -errno;
    }
    rota_record_change(platform, ROTA_CHANGE_RENAME, directory, from, to, 0);
    return 0;
}

ROTA_LINUX int rota_linux_unlink(const rota_platform *platform, int directory, const char *name)
{
    if (unlinkat(directory, name, 0) != 0)
        return -errno;
    rota_record_change(platform, ROTA_CHANGE_UNLINK, directory, name, NULL, 0);
    return 0;
}

/* --- mappings ------------------------------------------------------------------------------------------------ */

ROTA_LINUX int rota_linux_map(const rota_platform *platform, int fd, uint64_t length, bool writable, void **address)
{
    (void)platform;
    void *found = mmap(NULL, length, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (found == MAP_FAILED)
        return -errno;
    *address = found;
    return 0;
}

ROTA_LINUX int rota_linux_unmap(const rota_platform *platform, void *address, uint64_t length)
{
    (void)platform;
    return munmap(address, length) != 0 ? -errno : 0;
}

ROTA_LINUX int rota_linux_dont_fork(const rota_platform *platform, void *address, uint64_t length)
{
    (void)platform;
    return madvise(address, length, MADV_DONTFORK) != 0 ? -errno : 0;
}

/* The polite probe of a window: a full disk or a read error is -EFAULT here and would be SIGBUS later. */
ROTA_LINUX int rota_linux_populate(const rota_platform *platform, void *address, uint64_t length, bool writable)
{
    (void)platform;
    int result = (int)ROTA_UNINTERRUPTED(madvise(address, length, writable ? ROTA_POPULATE_WRITE : ROTA_POPULATE_READ));
    return result == -EINVAL ? 0 : result; /* a kernel before 5.14 cannot tell */
}

/* --- locks and waiting --------------------------------------------------------------------------------------- */

ROTA_INLINE int rota_linux_range(int fd, int command, short kind, uint64_t offset, uint64_t length, short *found)
{
    struct flock range = {.l_type = kind, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = (off_t)length};
    int result = (int)ROTA_UNINTERRUPTED(fcntl(fd, command, &range));
    if (found != NULL)
        *found = range.l_type;
    return result == -EACCES ? -EAGAIN : result;
}

ROTA_LINUX int rota_linux_lock_range(const rota_platform *platform, int fd, uint64_t offset, uint64_t length,
                                     bool exclusive)
{
    (void)platform;
    return rota_linux_range(fd, F_OFD_SETLK, exclusive ? F_WRLCK : F_RDLCK, offset, length, NULL);
}

ROTA_LINUX int rota_linux_unlock_range(const rota_platform *platform, int fd, uint64_t offset, uint64_t length)
{
    (void)platform;
    return rota_linux_range(fd, F_OFD_SETLK, F_UNLCK, offset, length, NULL);
}

ROTA_LINUX int rota_linux_test_range(const rota_platform *platform, int fd, uint64_t offset, uint64_t length)
{
    (void)platform;
    short found = F_UNLCK;
    int result = rota_linux_range(fd, F_OFD_GETLK, F_WRLCK, offset, length, &found);
    return result != 0 ? result : found != F_UNLCK;
}

ROTA_LINUX int rota_linux_futex_wait(const rota_platform *platform, uint32_t *word, uint32_t expected,
                                     int64_t timeout_ns)
{
    (void)platform;
    struct timespec timeout = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    long result = syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout_ns < 0 ? NULL : &timeout, NULL, 0);
    return result == -1 ? -errno : 0;
}

ROTA_LINUX int rota_linux_futex_wake(const rota_platform *platform, uint32_t *word, int count)
{
    (void)platform;
    long result = syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
    return result == -1 ? -errno : (int)result;
}

/* Until a point in time: what is left after a signal is rounded up, and with frequent signals never becomes less. */
ROTA_LINUX int rota_linux_sleep(const rota_platform *platform, uint64_t duration_ns)
{
    (void)platform;
    struct timespec end;
    int result;
    clock_gettime(CLOCK_MONOTONIC, &end);
    uint64_t nanoseconds = (uint64_t)end.tv_nsec + duration_ns;
    end.tv_sec += (time_t)(nanoseconds / 1000000000);
    end.tv_nsec = (long)(nanoseconds % 1000000000);
    do
        result = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
    while (result == EINTR);
    return -result;
}

ROTA_LINUX int rota_linux_yield_processor(const rota_platform *platform)
{
    (void)platform;
    return sched_yield() == 0 ? 0 : -errno;
}

#endif
