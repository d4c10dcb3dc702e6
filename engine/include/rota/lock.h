/*
 * Robust mutexes in shared memory: the death of a holder is reported to the next one.
 *
 * What holds:
 *  1. Normal kind only: recursive and error-checking mutexes compare thread ids, which collide between pid namespaces.
 *  2. A try spins at most ROTA_SPIN_COUNT pauses; whoever holds the GIL does no more than that.
 *  3. ROTA_LOCK_DEAD means: the caller holds the lock and must repair what it guards, then rota_lock_repaired().
 */
#ifndef ROTA_LOCK_H
#define ROTA_LOCK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "rota/atomics.h"

#define ROTA_SPIN_COUNT 64

enum rota_lock_result { ROTA_LOCK_TAKEN = 0, ROTA_LOCK_DEAD = 1, ROTA_LOCK_BUSY = 2, ROTA_LOCK_BROKEN = 3 };

ROTA_COLD int rota_lock_init(pthread_mutex_t *mutex) {
    pthread_mutexattr_t attributes;
    int result = pthread_mutexattr_init(&attributes);
    if (!result)
        result = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (!result)
        result = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (!result)
        result = pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return -result;
}

ROTA_INLINE int rota_lock_result_of(int result) {
    if (ROTA_LIKELY(result == 0))
        return ROTA_LOCK_TAKEN;
    if (result == EOWNERDEAD)
        return ROTA_LOCK_DEAD;
    return result == EBUSY || result == ETIMEDOUT || result == EAGAIN ? ROTA_LOCK_BUSY : ROTA_LOCK_BROKEN;
}

ROTA_INLINE int rota_lock_try(pthread_mutex_t *mutex) { return rota_lock_result_of(pthread_mutex_trylock(mutex)); }

ROTA_INLINE int rota_lock_spin(pthread_mutex_t *mutex) {
    int result = rota_lock_try(mutex);
    for (int i = 0; ROTA_UNLIKELY(result == ROTA_LOCK_BUSY) && i < ROTA_SPIN_COUNT; i++) {
        rota_pause();
        if ((i & 7) == 7)
            result = rota_lock_try(mutex);
    }
    return result;
}

/* Wait at most `duration_ns`. */
ROTA_COLD int rota_lock_wait(pthread_mutex_t *mutex, uint64_t duration_ns) {
    struct timespec until;
#if defined(__GLIBC__)
    clock_gettime(CLOCK_MONOTONIC, &until);
#else
    clock_gettime(CLOCK_REALTIME, &until);
#endif
    uint64_t nanoseconds = (uint64_t)until.tv_nsec + duration_ns;
    until.tv_sec += (time_t)(nanoseconds / 1000000000u);
    until.tv_nsec = (long)(nanoseconds % 1000000000u);
#if defined(__GLIBC__)
    return rota_lock_result_of(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until));
#else
    return rota_lock_result_of(pthread_mutex_timedlock(mutex, &until)); /* a clock set back makes the slice longer */
#endif
}

ROTA_INLINE void rota_lock_leave(pthread_mutex_t *mutex) { pthread_mutex_unlock(mutex); }
ROTA_INLINE void rota_lock_repaired(pthread_mutex_t *mutex) { pthread_mutex_consistent(mutex); }

/* A full barrier between an unlock and a load; on x86-64 the unlock of a robust mutex is one already. */
ROTA_INLINE void rota_fence_after_unlock(void) {
#if defined(__x86_64__)
    rota_compiler_barrier();
#else
    rota_fence();
#endif
}

#endif
