/* Named atomic operations on 32-bit and 64-bit words.
 *
 * What holds:
 *  1. Each word is naturally aligned, plain (not _Atomic) and may lie in memory shared by processes; every
 *     operation below is lock-free on the machines that are supported, so it works across mappings.
 *  2. The name says the ordering. Nothing is sequentially consistent except rota_fence and the read-modify-write
 *     operations, which are acquire-release; a waiter and a waker that each store and then load need rota_fence.
 *  3. A word that one thread stores with these functions while another may look at it is loaded with them too.
 *  4. Nothing here calls the system.
 */
#ifndef ROTA_ATOMICS_H
#define ROTA_ATOMICS_H

#include <stdbool.h>
#include <stdint.h>

#if !defined(__GNUC__)
#error "rota needs GCC or Clang"
#endif
#if !defined(__x86_64__) && !defined(__aarch64__)
#error "rota runs on Linux x86-64 and arm64 for now"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "rota's formats are little-endian"
#endif

#define ROTA_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define ROTA_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* A small step that must not become a call, and a rare path that must not weigh on its caller. */
#define ROTA_INLINE static inline __attribute__((always_inline, unused))
#define ROTA_COLD static __attribute__((noinline, cold, unused))
#define ROTA_CACHE_LINE 64u

_Static_assert(__atomic_always_lock_free(sizeof(uint32_t), 0), "32-bit atomics must be lock-free");
_Static_assert(__atomic_always_lock_free(sizeof(uint64_t), 0), "64-bit atomics must be lock-free");

#define ROTA_ATOMICS(type, suffix)                                                                                  \
    ROTA_INLINE type rota_load_relaxed_##suffix(const type *word)                                                   \
    {                                                                                                               \
        return __atomic_load_n(word, __ATOMIC_RELAXED);                                                             \
    }                                                                                                               \
    ROTA_INLINE type rota_load_acquire_##suffix(const type *word)                                                   \
    {                                                                                                               \
        return __atomic_load_n(word, __ATOMIC_ACQUIRE);                                                             \
    }                                                                                                               \
    ROTA_INLINE void rota_store_relaxed_##suffix(type *word, type value)                                            \
    {                                                                                                               \
        __atomic_store_n(word, value, __ATOMIC_RELAXED);                                                            \
    }                                                                                                               \
    ROTA_INLINE void rota_store_release_##suffix(type *word, type value)                                            \
    {                                                                                                               \
        __atomic_store_n(word, value, __ATOMIC_RELEASE);                                                            \
    }                                                                                                               \
    /* True when the word was *expected and is now desired; else *expected holds what was found. */                 \
    ROTA_INLINE bool rota_compare_exchange_##suffix(type *word, type *expected, type desired)                       \
    {                                                                                                               \
        return __atomic_compare_exchange_n(word, expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);     \
    }                                                                                                               \
    /* The arithmetic ones return the value from before. */                                                         \
    ROTA_INLINE type rota_exchange_##suffix(type *word, type value)                                                 \
    {                                                                                                               \
        return __atomic_exchange_n(word, value, __ATOMIC_ACQ_REL);                                                  \
    }                                                                                                               \
    ROTA_INLINE type rota_fetch_add_##suffix(type *word, type value)                                                \
    {                                                                                                               \
        return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);                                                   \
    }                                                                                                               \
    ROTA_INLINE type rota_fetch_add_relaxed_##suffix(type *word, type value)                                        \
    {                                                                                                               \
        return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);                                                   \
    }                                                                                                               \
    ROTA_INLINE type rota_fetch_sub_##suffix(type *word, type value)                                                \
    {                                                                                                               \
        return __atomic_fetch_sub(word, value, __ATOMIC_ACQ_REL);                                                   \
    }                                                                                                               \
    ROTA_INLINE type rota_fetch_or_##suffix(type *word, type bits)                                                  \
    {                                                                                                               \
        return __atomic_fetch_or(word, bits, __ATOMIC_ACQ_REL);                                                     \
    }                                                                                                               \
    ROTA_INLINE type rota_fetch_and_##suffix(type *word, type bits)                                                 \
    {                                                                                                               \
        return __atomic_fetch_and(word, bits, __ATOMIC_ACQ_REL);                                                    \
    }                                                                                                               \
    /* Raise the word to value unless it is there already; true when this call raised it. */                        \
    ROTA_INLINE bool rota_raise_##suffix(type *word, type value)                                                    \
    {                                                                                                               \
        type seen = __atomic_load_n(word, __ATOMIC_RELAXED);                                                        \
        while (seen < value) {                                                                                      \
            if (__atomic_compare_exchange_n(word, &seen, value, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))          \
                return true;                                                                                        \
        }                                                                                                           \
        return false;                                                                                               \
    }

ROTA_ATOMICS(uint32_t, u32)
ROTA_ATOMICS(uint64_t, u64)

#undef ROTA_ATOMICS

/* The thread sanitizer knows no fences and its compilers refuse them; there the instruction stands in. */
#if defined(__SANITIZE_THREAD__)
#define ROTA_SANITIZES_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ROTA_SANITIZES_THREADS 1
#endif
#endif
#if !defined(ROTA_SANITIZES_THREADS)
#define ROTA_FENCE(order) __atomic_thread_fence(order)
#elif defined(__x86_64__)
#define ROTA_FENCE(order) __asm__ volatile("mfence" ::: "memory")
#else
#define ROTA_FENCE(order) __asm__ volatile("dmb ish" ::: "memory")
#endif

/* The full fence between a publishing store and the load of a waiter count (and, mirrored, in the waiter). */
ROTA_INLINE void rota_fence(void)
{
    ROTA_FENCE(__ATOMIC_SEQ_CST);
}

/* The two halves of a sequence-checked read: loads before stay before, loads after stay after. */
ROTA_INLINE void rota_fence_acquire(void)
{
    ROTA_FENCE(__ATOMIC_ACQUIRE);
}

ROTA_INLINE void rota_fence_release(void)
{
    ROTA_FENCE(__ATOMIC_RELEASE);
}

/* Stops the compiler only: what memory held before and after this line is not assumed equal. */
ROTA_INLINE void rota_compiler_barrier(void)
{
    __asm__ volatile("" ::: "memory");
}

/* One step of a bounded spin: leaves the pipeline to the sibling thread, never to the scheduler. */
ROTA_INLINE void rota_pause(void)
{
#if defined(__x86_64__)
    __asm__ volatile("pause" ::: "memory");
#else
    __asm__ volatile("isb" ::: "memory"); /* yield is a no-op on most cores; isb takes about as long as pause */
#endif
}

#endif
