/* Statuses: what a call of the engine returns, and the record of why it failed.
 *
 * What holds:
 *  1. ROTA_OK is 0, every other status is negative and below -ROTA_STATUS_BASE, so a status and a negated errno
 *     (-1 to -4095) can travel in one int and are never mistaken for each other.
 *  2. The numbers are part of the interface of the compiled modules; they are never stored in a file.
 *  3. Corrupt data, a full disk, a dead peer are statuses. An assertion is for a programmer's error only.
 *  4. A rota_error is plain memory, owned by the caller, written by rota_fail without allocation or locks, so it
 *     may be filled while the main lock is held. rota_fail returns the status: `return rota_fail(...)`.
 */
#ifndef ROTA_STATUS_H
#define ROTA_STATUS_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "rota/atomics.h"

#define ROTA_STATUS_BASE 10000

/* X(name, number, what it says) */
#define ROTA_STATUSES(X)                                                                                            \
    X(EMPTY, 1, "no message is ready")                                                                              \
    X(FULL, 2, "the queue or the repository has no room")                                                           \
    X(DISK_FULL, 3, "the file system has no room")                                                                  \
    X(NOT_FOUND, 4, "there is no such message, queue or registration")                                              \
    X(LEASE_LOST, 5, "the claim ended before it was settled")                                                       \
    X(KILLED, 6, "the message was killed while it was claimed")                                                     \
    X(STALE_LEADER, 7, "the fence of the queue is newer than the token")                                            \
    X(STALE_CLERK, 8, "another connection took over the registration")                                              \
    X(LOG_FAILED, 9, "a sync failed; the repository must be reopened")                                              \
    X(OUTCOME_UNKNOWN, 10, "the commit is visible, whether it is durable is not known")                             \
    X(CORRUPT, 11, "stored bytes do not match their checksum or contradict each other")                             \
    X(TOO_LARGE, 12, "the message is larger than a frame may be")                                                   \
    X(TRANSACTION_TOO_LARGE, 13, "the transaction does not fit into one commit")                                    \
    X(OPTION_MISMATCH, 14, "the stored option has another value")                                                   \
    X(STATE, 15, "the call does not fit the state of the object")                                                   \
    X(FORKED, 16, "the handle was inherited through fork")                                                          \
    X(CLOSED, 17, "the handle is closed")                                                                           \
    X(STOPPED, 18, "the queue is stopped")                                                                          \
    X(NOT_A_REPOSITORY, 19, "the directory holds no repository")                                                    \
    X(VERSION, 20, "the files were written by a newer version")                                                     \
    X(FOREIGN_ABI, 21, "the control file belongs to another C library or machine")                                  \
    X(NETWORK_FILE_SYSTEM, 22, "the file system cannot hold a repository")                                          \
    X(LOCK_HELD, 23, "the holder of the lock is stopped")                                                           \
    X(TIMEOUT, 24, "the time is over")                                                                              \
    X(INTERRUPTED, 25, "a signal asked the call to return")                                                         \
    X(RETRY, 26, "what was looked at changed meanwhile; look again")                                                \
    X(NO_MEMORY, 27, "memory could not be allocated")                                                               \
    X(OS, 28, "the system refused a call; os_errno says why")                                                       \
    X(READ_ONLY, 29, "the repository is open for reading only")                                                     \
    X(DAMAGED_CONTROL, 30, "the control file contradicts itself; reopen to rebuild it")                             \
    X(IN_USE, 31, "others still use it")                                                                            \
    X(BUS, 32, "a guarded access to a mapped file faulted")                                                         \
    X(CONFLICT, 33, "what the commit depends on was changed meanwhile")

enum {
    ROTA_OK = 0,
#define ROTA_STATUS_ENTRY(name, number, text) ROTA_##name = -(ROTA_STATUS_BASE + (number)),
    ROTA_STATUSES(ROTA_STATUS_ENTRY)
#undef ROTA_STATUS_ENTRY
};

typedef struct rota_error {
    int status;         /* one of the above; ROTA_OK when nothing was recorded */
    int os_errno;       /* 0 unless the system refused a call */
    char file[64];      /* name inside the repository's directory, cut if longer */
    uint64_t offset;    /* byte in that file, 0 when it means nothing */
    uint64_t expected;  /* with found: what a check compared; both 0 when it compared nothing */
    uint64_t found;
    char detail[160];   /* one sentence for a person, cut if longer */
} rota_error;

_Static_assert(sizeof(rota_error) == 256, "rota_error is 256 bytes");

ROTA_INLINE bool rota_is_errno(int status)
{
    return status < 0 && status > -ROTA_STATUS_BASE;
}

/* "LEASE_LOST" for ROTA_LEASE_LOST; "OS" for a negated errno; "UNKNOWN" for a number that is no status. */
ROTA_COLD const char *rota_status_name(int status)
{
    if (status == ROTA_OK)
        return "OK";
    if (rota_is_errno(status))
        return "OS";
    switch (status) {
#define ROTA_STATUS_ENTRY(name, number, text)                                                                       \
    case ROTA_##name:                                                                                               \
        return #name;
        ROTA_STATUSES(ROTA_STATUS_ENTRY)
#undef ROTA_STATUS_ENTRY
    default:
        return "UNKNOWN";
    }
}

ROTA_COLD const char *rota_status_text(int status)
{
    if (status == ROTA_OK)
        return "done";
    switch (status) {
#define ROTA_STATUS_ENTRY(name, number, text)                                                                       \
    case ROTA_##name:                                                                                               \
        return text;
        ROTA_STATUSES(ROTA_STATUS_ENTRY)
#undef ROTA_STATUS_ENTRY
    default:
        return rota_is_errno(status) ? "the system refused a call" : "unknown status";
    }
}

/* The status of that name ("CORRUPT"), or ROTA_OK when there is none. */
ROTA_COLD int rota_status_by_name(const char *name)
{
#define ROTA_STATUS_ENTRY(entry, number, text)                                                                      \
    if (strcmp(name, #entry) == 0)                                                                                  \
        return ROTA_##entry;
    ROTA_STATUSES(ROTA_STATUS_ENTRY)
#undef ROTA_STATUS_ENTRY
    return ROTA_OK;
}

/* The status that an errno (positive or negated) means to a caller. */
ROTA_INLINE int rota_status_of_errno(int os_errno)
{
    switch (os_errno < 0 ? -os_errno : os_errno) {
    case 0:
        return ROTA_OK;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return ROTA_DISK_FULL;
    case ENOMEM:
        return ROTA_NO_MEMORY;
    case ETIMEDOUT:
        return ROTA_TIMEOUT;
    default:
        return ROTA_OS;
    }
}

ROTA_INLINE void rota_error_clear(rota_error *error)
{
    memset(error, 0, sizeof *error);
}

/* Record a failure and return its status. A negated errno given as status is kept in os_errno and turned into the
 * status that it means. error may be NULL: then only the status is returned. file may be NULL. */
__attribute__((format(printf, 5, 6))) ROTA_COLD int rota_fail(rota_error *error, int status, const char *file,
                                                              uint64_t offset, const char *format, ...)
{
    int os_errno = 0;
    if (rota_is_errno(status)) {
        os_errno = -status;
        status = rota_status_of_errno(status);
    }
    if (error == NULL)
        return status;
    memset(error, 0, sizeof *error);
    error->status = status;
    error->os_errno = os_errno;
    error->offset = offset;
    if (file != NULL)
        snprintf(error->file, sizeof error->file, "%s", file);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->detail, sizeof error->detail, format, arguments);
    va_end(arguments);
    return status;
}

/* The same for a check that compared two numbers. */
ROTA_COLD int rota_fail_compared(rota_error *error, int status, const char *file, uint64_t offset, uint64_t expected,
                                 uint64_t found, const char *what)
{
    status = rota_fail(error, status, file, offset, "%s", what);
    if (error != NULL) {
        error->expected = expected;
        error->found = found;
    }
    return status;
}

#endif
