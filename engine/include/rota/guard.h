/* The SIGBUS guard: a fault in a guarded copy becomes ROTA_BUS instead of the end of the process.
 *
 * What holds:
 *  1. Included by platform_linux.h only, so by one module of a process: the thread-local guard and the former handler
 *     below exist once.
 *  2. A fault is ours when the kernel raised it (si_code > 0), this thread has a guard, and the address lies in a page
 *     of one of the guard's two ranges. Every other SIGBUS goes to the handler that was there before.
 *  3. The jump leaves the signal mask alone (that would be a system call per copy), so the handler is installed with
 *     SA_NODEFER: after the jump SIGBUS is not blocked. SA_ONSTACK: an alternative stack is used where there is one.
 *  4. Nothing but loads and stores of plain memory happens inside a guard: no lock is held across the jump that was
 *     not held before it, nothing is allocated, so the jump leaks nothing.
 */
#ifndef ROTA_GUARD_H
#define ROTA_GUARD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>

#include "rota/atomics.h"
#include "rota/crc32c.h"
#include "rota/platform.h"
#include "rota/status.h"

#define ROTA_GUARD_PAGE 4096u

typedef struct rota_guard {
    struct rota_guard *outer;
    uintptr_t first[2]; /* two ranges, whole pages: what is read and what is written */
    uintptr_t end[2];
    sigjmp_buf jump;
} rota_guard;

/* With the C library of GNU the word sits in the static block: one load, and safe in a handler, where the first access
 * to a dynamic block could allocate. musl refuses that model in a module loaded later and has no lazy blocks. */
#if defined(__GLIBC__)
#define ROTA_GUARD_TLS __attribute__((tls_model("initial-exec")))
#else
#define ROTA_GUARD_TLS
#endif

static _Thread_local rota_guard *rota_guard_current ROTA_GUARD_TLS;
static _Thread_local int rota_guard_chaining ROTA_GUARD_TLS;
static struct sigaction rota_guard_former;
static pthread_mutex_t rota_guard_installing = PTHREAD_MUTEX_INITIALIZER;

static void rota_guard_handle(int number, siginfo_t *information, void *context)
{
    rota_guard *guard = rota_guard_current;
    if (guard != NULL && information->si_code > 0) {
        uintptr_t address = (uintptr_t)information->si_addr;
        for (int range = 0; range < 2; range++) {
            if (address >= guard->first[range] && address < guard->end[range]) {
                rota_guard_current = guard->outer;
                siglongjmp(guard->jump, 1);
            }
        }
    }
    struct sigaction former = rota_guard_former;
    bool callable = (former.sa_flags & SA_SIGINFO) || (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN);
    if (callable && !rota_guard_chaining) {
        /* The former handler may raise the signal again for whoever was before it; that must not come back to it. */
        rota_guard_chaining = 1;
        if (former.sa_flags & SA_SIGINFO)
            former.sa_sigaction(number, information, context);
        else
            former.sa_handler(number);
        rota_guard_chaining = 0;
        return;
    }
    if (former.sa_handler == SIG_IGN && !(former.sa_flags & SA_SIGINFO) && information->si_code <= 0)
        return;
    /* A fault happens again on return and then ends the process; a sent signal must be sent again. */
    struct sigaction standard;
    memset(&standard, 0, sizeof standard);
    standard.sa_handler = SIG_DFL;
    sigaction(number, &standard, NULL);
    if (information->si_code <= 0)
        raise(number);
}

/* Put the handler on top unless it is there. Others (a crash reporter) may have been installed since. */
static __attribute__((unused)) int rota_guard_install(void)
{
    int result = 0;
    struct sigaction present;
    pthread_mutex_lock(&rota_guard_installing);
    if (sigaction(SIGBUS, NULL, &present) != 0) {
        result = -errno;
    } else if (!(present.sa_flags & SA_SIGINFO) || present.sa_sigaction != rota_guard_handle) {
        struct sigaction ours;
        memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = rota_guard_handle;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigemptyset(&ours.sa_mask);
        rota_guard_former = present;
        if (sigaction(SIGBUS, &ours, NULL) != 0)
            result = -errno;
    }
    pthread_mutex_unlock(&rota_guard_installing);
    return result;
}

ROTA_INLINE void rota_guard_range(rota_guard *guard, int range, const void *data, size_t length)
{
    uintptr_t page = ROTA_GUARD_PAGE - 1;
    guard->first[range] = (uintptr_t)data & ~page;
    guard->end[range] = ((uintptr_t)data + length + page) & ~page;
}

/* Between enter and leave faults in the ranges come back as the second return of sigsetjmp, which must stand in the
 * function itself. Locals that are changed in between are not read after a fault. */
ROTA_INLINE void rota_guard_enter(rota_guard *guard)
{
    guard->outer = rota_guard_current;
    rota_guard_current = guard;
    rota_compiler_barrier();
}

ROTA_INLINE void rota_guard_leave(rota_guard *guard)
{
    rota_compiler_barrier();
    rota_guard_current = guard->outer;
}

static __attribute__((unused)) int rota_guard_copy(void *destination, const void *source, size_t length)
{
    rota_guard guard;
    rota_guard_range(&guard, 0, source, length);
    rota_guard_range(&guard, 1, destination, length);
    if (sigsetjmp(guard.jump, 0) != 0)
        return ROTA_BUS;
    rota_guard_enter(&guard);
    memcpy(destination, source, length);
    rota_guard_leave(&guard);
    return ROTA_OK;
}

/* Out of line, so that no argument changes between sigsetjmp and the jump. */
static __attribute__((noinline, unused)) uint32_t rota_guard_sum(uint32_t seed, const void *source, size_t length)
{
    return rota_crc32c(seed, source, length);
}

static __attribute__((noinline, unused)) uint32_t rota_guard_copy_sum(uint32_t seed, void *destination,
                                                                      const void *source, size_t length)
{
    return rota_crc32c_copy(seed, destination, source, length);
}

static __attribute__((unused)) int rota_guard_crc(uint32_t seed, const void *source, size_t length, uint32_t *crc)
{
    rota_guard guard;
    rota_guard_range(&guard, 0, source, length);
    rota_guard_range(&guard, 1, source, 0);
    if (sigsetjmp(guard.jump, 0) != 0)
        return ROTA_BUS;
    rota_guard_enter(&guard);
    uint32_t sum = rota_guard_sum(seed, source, length);
    rota_guard_leave(&guard);
    *crc = sum;
    return ROTA_OK;
}

static __attribute__((unused)) int rota_guard_copy_crc(uint32_t seed, void *destination, const void *source,
                                                        size_t length, uint32_t *crc)
{
    rota_guard guard;
    rota_guard_range(&guard, 0, source, length);
    rota_guard_range(&guard, 1, destination, length);
    if (sigsetjmp(guard.jump, 0) != 0)
        return ROTA_BUS;
    rota_guard_enter(&guard);
    uint32_t sum = rota_guard_copy_sum(seed, destination, source, length);
    rota_guard_leave(&guard);
    *crc = sum;
    return ROTA_OK;
}

/* Out of line, as above. */
static __attribute__((noinline, unused)) void rota_guard_pieces(rota_piece *pieces, uint32_t count, bool sums)
{
    for (uint32_t i = 0; i < count;) {
        rota_piece *piece = pieces + i;
        if (sums && i + 3 <= count && piece[1].length == piece->length && piece[2].length == piece->length &&
            piece->length <= ROTA_CRC32C_PIECE) { /* three of one length are summed side by side */
            uint32_t made[3] = {piece[0].sum, piece[1].sum, piece[2].sum};
            for (int k = 0; k < 3; k++)
                memcpy(piece[k].to, piece[k].from, piece->length);
            rota_compiler_barrier(); /* the sums are of what was kept */
            rota_crc32c_three(made, piece[0].to, piece[1].to, piece[2].to, piece->length);
            for (int k = 0; k < 3; k++)
                piece[k].sum = made[k];
            i += 3;
            continue;
        }
        if (sums)
            piece->sum = rota_crc32c_copy(piece->sum, piece->to, piece->from, piece->length);
        else
            memcpy(piece->to, piece->from, piece->length);
        i++;
    }
}

static __attribute__((unused)) int rota_guard_gather(const void *mapping, size_t span, rota_piece *pieces,
                                                      uint32_t count, bool sums)
{
    rota_guard guard;
    rota_guard_range(&guard, 0, mapping, span);
    rota_guard_range(&guard, 1, mapping, 0);
    if (sigsetjmp(guard.jump, 0) != 0)
        return ROTA_BUS;
    rota_guard_enter(&guard);
    rota_guard_pieces(pieces, count, sums);
    rota_guard_leave(&guard);
    return ROTA_OK;
}

/* Out of line, as above. The header is looked for only inside the segment. */
static __attribute__((noinline, unused)) int rota_guard_frame_load(const uint8_t *segment, uint64_t offset,
                                                                    rota_frame *frame, rota_commit_header *header)
{
    memcpy(frame, segment + offset, sizeof *frame);
    rota_compiler_barrier(); /* from here on the copy */
    if (frame->back > offset - ROTA_SEGMENT_HEADER_SIZE || frame->back < sizeof *header)
        return ROTA_CORRUPT;
    memcpy(header, segment + offset - frame->back, sizeof *header);
    return ROTA_OK;
}

static __attribute__((unused)) int rota_guard_frame(const uint8_t *segment, uint64_t offset, rota_frame *frame,
                                                    rota_commit_header *header)
{
    rota_guard guard;
    rota_guard_range(&guard, 0, segment, offset + sizeof *frame);
    rota_guard_range(&guard, 1, segment, 0);
    if (sigsetjmp(guard.jump, 0) != 0)
        return ROTA_BUS;
    rota_guard_enter(&guard);
    int result = rota_guard_frame_load(segment, offset, frame, header);
    rota_guard_leave(&guard);
    return result;
}

#endif
