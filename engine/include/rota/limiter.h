/* Frequency control: when may the next one begin?
 *
 * A bucket is one word: the time at which it is full again ("due"), in sixteenths of a nanosecond of the boot clock.
 * Who comes moves it by what its message costs, and may begin once it is no more than a burst ahead of the clock. So
 * each caller has a time of its own, in the order of their coming, and nothing has to refill anything.
 *
 * What holds:
 *  1. The bucket of a limiter is its word `due`, changed by compare-and-swap only. Whoever dies before the swap took
 *     nothing, whoever dies after it leaves its turn unused; there is nothing to repair.
 *  2. A key has a slot in its set of 64. `due` of a slot never falls to or below a value that it had under another
 *     name: it is raised by a swap, given back by a swap of the last raise only, and a slot passes to another key only
 *     when its time is over, with a later time. So a swap that succeeds was made under the name that was read
 *     between the load and it.
 *  3. Slots pass under the lock only. `filling` names the slot, `due` is ROTA_LIMIT_BUSY while the name changes, so
 *     who reads it then comes to the lock; the next owner after a death frees the slot. The clock is read under the
 *     lock: a time from before could lie before the end of the key's last slot (tests/model, limit).
 *  4. A slot whose time is over means what no slot means, a full bucket: so idle keys need no room and no cleaner.
 *  5. Interval and burst are a word each, read at every call: whatever two of them meet, each was valid.
 */
#ifndef ROTA_LIMITER_H
#define ROTA_LIMITER_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "rota/atomics.h"
#include "rota/failpoint.h"
#include "rota/lock.h"
#include "rota/sip.h"

#define ROTA_LIMIT_MAGIC UINT64_C(0x314d494c41544f52) /* "ROTALIM1" */
#define ROTA_LIMIT_BUSY UINT64_MAX
#define ROTA_LIMIT_SET 64u
#define ROTA_LIMIT_SLOTS_MAX (UINT32_C(1) << 28)
#define ROTA_LIMIT_TICKS 16.0          /* in a nanosecond */
#define ROTA_LIMIT_TICK_SHIFT 4
#define ROTA_LIMIT_FAR 9.2e18          /* ticks; what lies beyond is refused before it is added */

enum { ROTA_LIMIT_TAKEN = 0, ROTA_LIMIT_LATER = 1, ROTA_LIMIT_NO_SLOT = 2, ROTA_LIMIT_NO_ROOM = 3 };

typedef struct rota_limit_slot {
    rota_key_name name;
    uint64_t due;
} rota_limit_slot;

typedef struct rota_limit_file {
    uint64_t magic;
    uint32_t slot_count; /* a multiple of ROTA_LIMIT_SET */
    uint32_t name_length;
    uint8_t boot_id[16];      /* of the boot whose clock `due` is told in */
    uint64_t noted_boot_ns;   /* both clocks at one moment of that boot */
    uint64_t noted_wall_ns;
    uint64_t secret[2];
    uint64_t interval; /* a double: nanoseconds for a cost of 1 */
    uint64_t burst;    /* a double: cost that may come at once */
    uint64_t reserved[6];
    uint64_t due; /* of the limiter without a key; a line of its own */
    uint64_t beside[7];
    pthread_mutex_t lock;
    uint32_t filling; /* 1 + index of the slot that passes to another key */
    uint8_t gap[128 - sizeof(pthread_mutex_t) - 4];
    uint8_t name[256];
    rota_limit_slot slots[];
} rota_limit_file;

_Static_assert(sizeof(rota_limit_slot) == 24, "24 bytes a key");
_Static_assert(offsetof(rota_limit_file, due) == 128, "lines of 64 bytes");
_Static_assert(offsetof(rota_limit_file, slots) == 576, "no holes");

/* What one call asks for, in ticks, and what it got. */
typedef struct rota_limit_turn {
    uint64_t now, charge, burst, patience; /* patience: how long it may be until the turn */
    uint64_t *due;                         /* the bucket */
    uint64_t after;                        /* `due` as the call left it */
    uint64_t begins;                       /* when the caller may begin; <= now: at once */
} rota_limit_turn;

ROTA_INLINE double rota_limit_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

ROTA_INLINE uint64_t rota_limit_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* False when the file says nonsense, or the cost is more than ever fits. */
ROTA_INLINE bool rota_limit_ask(const rota_limit_file *file, uint64_t now_ns, double cost, double patience_ns,
                                rota_limit_turn *turn)
{
    double interval = rota_limit_double(rota_load_relaxed_u64(&file->interval)) * ROTA_LIMIT_TICKS;
    double charge = ceil(cost * interval), burst = rota_limit_double(rota_load_relaxed_u64(&file->burst)) * interval;
    double patience = patience_ns * ROTA_LIMIT_TICKS;
    if (!(charge >= 1 && charge <= burst + 1 && burst < ROTA_LIMIT_FAR))
        return false;
    turn->now = now_ns << ROTA_LIMIT_TICK_SHIFT;
    turn->charge = (uint64_t)charge;
    turn->burst = (uint64_t)ceil(burst);
    turn->patience = patience < ROTA_LIMIT_FAR ? (uint64_t)patience : (uint64_t)ROTA_LIMIT_FAR;
    return true;
}

/* `due` after this call; false when the turn would come too late. */
ROTA_INLINE bool rota_limit_next(rota_limit_turn *turn, uint64_t seen)
{
    uint64_t base = seen > turn->now ? seen : turn->now;
    if (ROTA_UNLIKELY(base > (uint64_t)ROTA_LIMIT_FAR))
        return false;
    turn->after = base + turn->charge;
    turn->begins = turn->after > turn->burst ? turn->after - turn->burst : 0;
    return turn->begins <= turn->now || turn->begins - turn->now <= turn->patience;
}

/* ROTA_LIMIT_TAKEN, with the time to begin at, or ROTA_LIMIT_LATER, and nothing was taken. */
ROTA_INLINE int rota_limit_take(uint64_t *due, rota_limit_turn *turn)
{
    uint64_t seen = rota_load_relaxed_u64(due);
    turn->due = due;
    do
        if (!rota_limit_next(turn, seen))
            return ROTA_LIMIT_LATER;
    while (!rota_compare_exchange_u64(due, &seen, turn->after));
    return ROTA_LIMIT_TAKEN;
}

/* Who does not begin gives its turn back, unless others came after it: their times stand. */
ROTA_INLINE bool rota_limit_return(const rota_limit_turn *turn)
{
    uint64_t expected = turn->after;
    return turn->charge && rota_compare_exchange_u64(turn->due, &expected, turn->after - turn->charge);
}

/* --- keys ---------------------------------------------------------------------------------------------------- */

ROTA_INLINE rota_limit_slot *rota_limit_set(rota_limit_file *file, uint32_t slot_count, rota_key_name name)
{
    return file->slots + ((name.low >> 32) * (slot_count / ROTA_LIMIT_SET) >> 32) * ROTA_LIMIT_SET;
}

/* The slot of the key and its `due`, or NULL. A name that is half written never counts: its `due` is BUSY. */
ROTA_INLINE rota_limit_slot *rota_limit_find(rota_limit_slot *set, rota_key_name name, uint64_t *seen)
{
    for (uint32_t i = 0, place = (uint32_t)name.high % ROTA_LIMIT_SET; i < ROTA_LIMIT_SET;
         i++, place = (place + 1) % ROTA_LIMIT_SET) {
        rota_limit_slot *slot = set + place;
        *seen = rota_load_acquire_u64(&slot->due);
        if (rota_load_relaxed_u64(&slot->name.low) == name.low &&
            rota_load_relaxed_u64(&slot->name.high) == name.high && *seen != ROTA_LIMIT_BUSY)
            return slot;
    }
    return NULL;
}

/* The same for a key. ROTA_LIMIT_NO_SLOT: it has none; take the lock and call rota_limit_enter. */
ROTA_INLINE int rota_limit_take_key(rota_limit_file *file, uint32_t slot_count, rota_key_name name,
                                    rota_limit_turn *turn)
{
    for (;;) {
        uint64_t seen;
        rota_limit_slot *slot = rota_limit_find(rota_limit_set(file, slot_count, name), name, &seen);
        if (slot == NULL)
            return ROTA_LIMIT_NO_SLOT;
        if (!rota_limit_next(turn, seen))
            return ROTA_LIMIT_LATER;
        turn->due = &slot->due;
        if (rota_compare_exchange_u64(&slot->due, &seen, turn->after))
            return ROTA_LIMIT_TAKEN;
    }
}

/* Give the key a slot whose time is over, with its first message in it. The lock is held. */
static inline int rota_limit_enter(rota_limit_file *file, uint32_t slot_count, rota_key_name name,
                                   rota_limit_turn *turn, rota_failpoints *failpoints)
{
    int result = rota_limit_take_key(file, slot_count, name, turn);
    if (result != ROTA_LIMIT_NO_SLOT)
        return result;
    rota_limit_slot *set = rota_limit_set(file, slot_count, name);
    for (uint32_t i = 0, place = (uint32_t)name.high % ROTA_LIMIT_SET; i < ROTA_LIMIT_SET;
         i++, place = (place + 1) % ROTA_LIMIT_SET) {
        rota_limit_slot *slot = set + place;
        uint64_t seen = rota_load_relaxed_u64(&slot->due);
        if (seen > turn->now)
            continue;
        if (!rota_limit_next(turn, turn->now))
            return ROTA_LIMIT_LATER;
        rota_store_release_u32(&file->filling, (uint32_t)(slot - file->slots) + 1);
        ROTA_FAILPOINT(failpoints, LIMIT_CHOSEN);
        if (!rota_compare_exchange_u64(&slot->due, &seen, ROTA_LIMIT_BUSY))
            continue; /* its key is in use again */
        rota_fence();
        ROTA_FAILPOINT(failpoints, LIMIT_BUSY);
        rota_store_relaxed_u64(&slot->name.low, name.low);
        ROTA_FAILPOINT(failpoints, LIMIT_NAMED);
        rota_store_relaxed_u64(&slot->name.high, name.high);
        turn->due = &slot->due;
        rota_store_release_u64(&slot->due, turn->after);
        ROTA_FAILPOINT(failpoints, LIMIT_FILLED);
        rota_store_release_u32(&file->filling, 0);
        return ROTA_LIMIT_TAKEN;
    }
    rota_store_release_u32(&file->filling, 0);
    return ROTA_LIMIT_NO_ROOM;
}

/* After the death of an owner of the lock: a slot that was passing is nobody's. */
static inline void rota_limit_repair(rota_limit_file *file, uint32_t slot_count)
{
    uint32_t filling = rota_load_acquire_u32(&file->filling);
    if (filling != 0 && filling <= slot_count) {
        rota_limit_slot *slot = &file->slots[filling - 1];
        if (rota_load_acquire_u64(&slot->due) == ROTA_LIMIT_BUSY) {
            rota_store_relaxed_u64(&slot->name.low, 0);
            rota_store_relaxed_u64(&slot->name.high, 0);
            rota_store_release_u64(&slot->due, 0);
        }
    }
    rota_store_release_u32(&file->filling, 0);
}

/* --- from boot to boot ---------------------------------------------------------------------------------------- */

/* What is left of a debt after a reboot: by the wall clock, but never more than it can be if no time went by. */
ROTA_INLINE uint64_t rota_limit_carry(const rota_limit_file *file, uint64_t due, uint64_t boot_ns, uint64_t wall_ns)
{
    uint64_t noted = file->noted_boot_ns << ROTA_LIMIT_TICK_SHIFT;
    if (due == 0 || due == ROTA_LIMIT_BUSY || due <= noted)
        return 0;
    uint64_t debt = due - noted, gone = wall_ns > file->noted_wall_ns ? wall_ns - file->noted_wall_ns : 0;
    uint64_t passed = gone < UINT64_MAX >> ROTA_LIMIT_TICK_SHIFT ? gone << ROTA_LIMIT_TICK_SHIFT : UINT64_MAX;
    return debt > passed ? (boot_ns << ROTA_LIMIT_TICK_SHIFT) + (debt - passed) : 0;
}

/* Nobody else has the file mapped: its boot is over. */
static inline void rota_limit_reboot(rota_limit_file *file, uint32_t slot_count, uint64_t boot_ns, uint64_t wall_ns)
{
    file->due = rota_limit_carry(file, file->due, boot_ns, wall_ns);
    for (uint32_t i = 0; i < slot_count; i++)
        file->slots[i].due = rota_limit_carry(file, file->slots[i].due, boot_ns, wall_ns);
    file->filling = 0;
}

#endif
