/* Failpoints: named places in the engine where a test can kill, stop, pause or fail the process.
 *
 * What holds:
 *  1. Every point is declared once, in ROTA_FAILPOINTS below. Adding one is adding a line there and placing
 *     ROTA_FAILPOINT(failpoints, NAME) in the code.
 *  2. While nothing is armed a point costs one load and a predicted branch; ROTA_NO_FAILPOINTS removes even that.
 *  3. All state is one rota_failpoints of the process, owned by rota._core.platform and reached by pointer.
 *  4. A plain point never changes what its caller does next: it ends, stops or holds the process, or only counts.
 *     Only ROTA_FAILPOINT_STATUS may return an error, and stands where the caller can already fail.
 *
 * The specification, in a call or in the environment variable ROTA_FAILPOINTS:
 *
 *     append.copied=kill@3;sync.before=error:EIO;segment.*=count
 *     point=action[:argument][@nth]     actions: off count kill stop exit error pause
 *
 * nth: the hit that acts, 1 (the next) when left out, 0 for every hit. argument: exit code; for error an errno's name
 * or number or the name of a status (EIO when left out).
 */
#ifndef ROTA_FAILPOINT_H
#define ROTA_FAILPOINT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rota/atomics.h"
#include "rota/platform.h"
#include "rota/status.h"

/* X(NAME, "name") */
#define ROTA_FAILPOINTS(X)                                                                                          \
    X(APPEND_LOCKED, "append.locked")                                                                               \
    X(APPEND_ADMITTED, "append.admitted")                                                                           \
    X(APPEND_STAMPED, "append.stamped")                                                                             \
    X(APPEND_COPIED, "append.copied")                                                                               \
    X(APPEND_PUBLISHED, "append.published")                                                                         \
    X(APPEND_APPLYING, "append.applying")                                                                           \
    X(APPEND_APPLIED, "append.applied")                                                                             \
    X(APPEND_UNLOCKED, "append.unlocked")                                                                           \
    X(CLAIM_PREPARED, "claim.prepared")                                                                             \
    X(CLAIM_CURSOR, "claim.cursor")                                                                                 \
    X(CLAIM_ACTIVE, "claim.active")                                                                                 \
    X(SHOW_MARKED, "show.marked")                                                                                   \
    X(FENCE_COMMITTED, "fence.committed")                                                                           \
    X(KILL_LOCATED, "kill.located")                                                                                 \
    X(KILL_APPLIED, "kill.applied")                                                                                 \
    X(ANSWER_DRAFTED, "answer.drafted")                                                                             \
    X(REASON_KEPT, "reason.kept")                                                                                   \
    X(SETTLE_ADMITTED, "settle.admitted")                                                                           \
    X(REAP_VERDICT, "reap.verdict")                                                                                 \
    X(REAP_COMMITTED, "reap.committed")                                                                             \
    X(REAP_FREED, "reap.freed")                                                                                     \
    X(SYNC_BEFORE, "sync.before")                                                                                   \
    X(SYNC_FILE, "sync.file")                                                                                       \
    X(SYNC_AFTER, "sync.after")                                                                                     \
    X(SYNC_PUBLISHED, "sync.published")                                                                             \
    X(SEGMENT_CREATED, "segment.created")                                                                           \
    X(SEGMENT_ZEROED, "segment.zeroed")                                                                             \
    X(SEGMENT_RENAMED, "segment.renamed")                                                                           \
    X(SEGMENT_HEADER, "segment.header")                                                                             \
    X(SEGMENT_FREED, "segment.freed")                                                                               \
    X(MANIFEST_WRITTEN, "manifest.written")                                                                         \
    X(MANIFEST_SYNCED, "manifest.synced")                                                                           \
    X(RECOVERY_SCANNED, "recovery.scanned")                                                                         \
    X(RECOVERY_CUT, "recovery.cut")                                                                                 \
    X(RECOVERY_SYNCED, "recovery.synced")                                                                           \
    X(RECOVERY_EPOCH, "recovery.epoch")                                                                             \
    X(RECOVERY_REBUILT, "recovery.rebuilt")                                                                         \
    X(RECOVERY_OPENED, "recovery.opened")                                                                           \
    X(CHECKPOINT_BEGIN, "checkpoint.begin")                                                                         \
    X(CHECKPOINT_WALKED, "checkpoint.walked")                                                                       \
    X(CHECKPOINT_BLOCK, "checkpoint.block")                                                                         \
    X(CHECKPOINT_SYNCED, "checkpoint.synced")                                                                       \
    X(CHECKPOINT_MANIFEST, "checkpoint.manifest")                                                                   \
    X(CHECKPOINT_FREED, "checkpoint.freed")                                                                         \
    X(CLEAN_COPIED, "clean.copied")                                                                                 \
    X(CONTROL_CREATED, "control.created")                                                                           \
    X(CONTROL_GROWN, "control.grown")                                                                               \
    X(CONTROL_REPAIRED, "control.repaired")                                                                         \
    X(CONTROL_UNDONE, "control.undone")                                                                             \
    X(CONTROL_REDONE, "control.redone")                                                                             \
    X(ATTACH_GATE, "attach.gate")                                                                                   \
    X(ATTACH_SLOT, "attach.slot")                                                                                   \
    X(ATTACH_READY, "attach.ready")                                                                                 \
    X(DETACH_BEGIN, "detach.begin")                                                                                 \
    X(DETACH_SLOT, "detach.slot")                                                                                   \
    X(FAILED_WORD, "failed.word")                                                                                   \
    X(FAILED_FILE, "failed.file")                                                                                   \
    X(LIMIT_CHOSEN, "limit.chosen")                                                                                 \
    X(LIMIT_BUSY, "limit.busy")                                                                                     \
    X(LIMIT_NAMED, "limit.named")                                                                                   \
    X(LIMIT_FILLED, "limit.filled")                                                                                 \
    X(LIMIT_TAKEN, "limit.taken")                                                                                   \
    X(LIMIT_CREATED, "limit.created")                                                                               \
    X(LIMIT_REBOOTED, "limit.rebooted")                                                                             \
    X(WAKE_BEFORE, "wake.before")                                                                                   \
    X(WAIT_BEGIN, "wait.begin")                                                                                     \
    X(WAIT_SPINNING, "wait.spinning")                                                                               \
    X(WAIT_SLEEPING, "wait.sleeping")                                                                               \
    X(LOCK_ACQUIRED, "lock.acquired")

enum {
#define ROTA_FAILPOINT_ENTRY(name, text) ROTA_AT_##name,
    ROTA_FAILPOINTS(ROTA_FAILPOINT_ENTRY)
#undef ROTA_FAILPOINT_ENTRY
    ROTA_FAILPOINT_COUNT
};

enum {
    ROTA_FAILPOINT_OFF = 0,
    ROTA_FAILPOINT_COUNTING = 1, /* only count */
    ROTA_FAILPOINT_KILL = 2,     /* SIGKILL to the own process */
    ROTA_FAILPOINT_STOP = 3,     /* SIGSTOP; goes on after SIGCONT */
    ROTA_FAILPOINT_EXIT = 4,     /* _exit(argument) */
    ROTA_FAILPOINT_ERROR = 5,    /* ROTA_FAILPOINT_STATUS returns the argument */
    ROTA_FAILPOINT_PAUSE = 6,    /* this thread waits until the point is disarmed or released */
    ROTA_FAILPOINT_ACTIONS
};

typedef struct rota_failpoint_state {
    uint32_t action;
    int32_t argument;
    uint64_t left; /* the hit that takes this from 1 to 0 acts; UINT64_MAX: every hit acts */
    uint64_t hits; /* since it was armed */
} rota_failpoint_state;

typedef struct rota_failpoints {
    uint32_t armed;   /* points whose action is not off */
    uint32_t release; /* futex word of the paused */
    uint32_t paused;  /* threads that wait there */
    uint32_t reserved;
    const rota_platform *platform;
    rota_failpoint_state points[ROTA_FAILPOINT_COUNT];
} rota_failpoints;

ROTA_COLD void rota_failpoint_pause(rota_failpoints *failpoints, rota_failpoint_state *point)
{
    uint32_t seen = rota_load_acquire_u32(&failpoints->release);
    rota_fetch_add_u32(&failpoints->paused, 1);
    while (rota_load_acquire_u32(&point->action) == ROTA_FAILPOINT_PAUSE &&
           rota_load_acquire_u32(&failpoints->release) == seen)
        failpoints->platform->futex_wait(failpoints->platform, &failpoints->release, seen, 50000000);
    rota_fetch_sub_u32(&failpoints->paused, 1);
}

ROTA_COLD int rota_failpoint_hit(rota_failpoints *failpoints, int place)
{
    rota_failpoint_state *point = &failpoints->points[place];
    uint32_t action = rota_load_acquire_u32(&point->action);
    if (action == ROTA_FAILPOINT_OFF)
        return ROTA_OK;
    rota_fetch_add_u64(&point->hits, 1);
    uint64_t left = rota_load_relaxed_u64(&point->left);
    if (left != UINT64_MAX && (left == 0 || rota_fetch_sub_u64(&point->left, 1) != 1))
        return ROTA_OK;
    switch (action) {
    case ROTA_FAILPOINT_KILL:
        raise(SIGKILL); /* to this thread, so to the process */
        for (;;)
            pause();
    case ROTA_FAILPOINT_STOP:
        raise(SIGSTOP);
        return ROTA_OK;
    case ROTA_FAILPOINT_EXIT:
        _exit(point->argument);
    case ROTA_FAILPOINT_ERROR:
        return point->argument;
    case ROTA_FAILPOINT_PAUSE:
        rota_failpoint_pause(failpoints, point);
        return ROTA_OK;
    default:
        return ROTA_OK;
    }
}

/* What Cython calls; C code uses the macros. */
ROTA_INLINE int rota_failpoint_status(rota_failpoints *failpoints, int place)
{
#if defined(ROTA_NO_FAILPOINTS)
    (void)failpoints;
    (void)place;
    return ROTA_OK;
#else
    return ROTA_UNLIKELY(rota_load_relaxed_u32(&failpoints->armed)) ? rota_failpoint_hit(failpoints, place) : ROTA_OK;
#endif
}

ROTA_INLINE void rota_failpoint(rota_failpoints *failpoints, int place)
{
    (void)rota_failpoint_status(failpoints, place);
}

#define ROTA_FAILPOINT(failpoints, name) rota_failpoint((failpoints), ROTA_AT_##name)
#define ROTA_FAILPOINT_STATUS(failpoints, name) rota_failpoint_status((failpoints), ROTA_AT_##name)

ROTA_COLD const char *rota_failpoint_name(int place)
{
    static const char *const names[] = {
#define ROTA_FAILPOINT_ENTRY(name, text) text,
        ROTA_FAILPOINTS(ROTA_FAILPOINT_ENTRY)
#undef ROTA_FAILPOINT_ENTRY
    };
    return place >= 0 && place < ROTA_FAILPOINT_COUNT ? names[place] : NULL;
}

/* Let every paused thread go on; their points stay armed. */
ROTA_COLD void rota_failpoints_release(rota_failpoints *failpoints)
{
    rota_fetch_add_u32(&failpoints->release, 1);
    rota_fence();
    if (rota_load_acquire_u32(&failpoints->paused) == 0)
        return;
    failpoints->platform->futex_wake(failpoints->platform, &failpoints->release, INT_MAX);
}

/* Arm one point; nth 0 acts at every hit. Action off disarms. One thread arms at a time. */
ROTA_COLD void rota_failpoint_arm(rota_failpoints *failpoints, int place, int action, uint64_t nth, int argument)
{
    rota_failpoint_state *point = &failpoints->points[place];
    if (rota_exchange_u32(&point->action, ROTA_FAILPOINT_OFF) != ROTA_FAILPOINT_OFF)
        rota_fetch_sub_u32(&failpoints->armed, 1);
    rota_failpoints_release(failpoints);
    if (action == ROTA_FAILPOINT_OFF)
        return;
    point->argument = argument;
    rota_store_relaxed_u64(&point->left, nth == 0 ? UINT64_MAX : nth);
    rota_store_relaxed_u64(&point->hits, 0);
    rota_store_release_u32(&point->action, (uint32_t)action);
    rota_fetch_add_u32(&failpoints->armed, 1);
}

#endif
