/* Deduplication automata: for each key at most one owner works and at most one waits.
 *
 *     Init ──enqueue: ACCEPT──▶ Process ──enqueue: BLOCK──▶ Block ──enqueue: DECLINE──▶ Block
 *       ◀──────dequeue────────          ◀──dequeue, eviction, death: the waiter becomes head──
 *                                       ◀──the waiter gives up──
 *
 * What holds:
 *  1. A key lives in one slot of its stripe, found by linear probing; a slot is free when its word is 0.  The word:
 *     owner of the head (47 bits, never 0, never used again), blocked (1 bit), generation (16 bits).
 *  2. All of a stripe changes under its lock only, and every change is visible by one store of a word.  Who holds it
 *     calls no system and needs no interpreter, so it is held for well below a microsecond.
 *  3. A blocked slot has one waiter in the stripe's list with turn 0, and no other slot has one.  A waiter whose turn
 *     is set is on nobody's mind but its owner's, who takes it off the list.
 *  4. Only the waiter itself evicts, and only the head that it waits for: under the lock it looks whether its turn came.
 *  5. A promoted waiter has its turn set before it is woken; it counts itself as sleeping before it looks a last time
 *     (tests/model, dedup).
 *  6. Removal shifts back those that follow, so there are no tombstones.  `gap` names the slot that is being filled:
 *     whoever dies in a shift leaves one copy too many, and repeating the shift from `gap` mends it.
 */
#ifndef ROTA_AUTOMATON_H
#define ROTA_AUTOMATON_H

#include <stdbool.h>

#include "rota/atomics.h"
#include "rota/platform.h"
#include "rota/sip.h"

#define ROTA_DECLINE 0
#define ROTA_ACCEPT 1
#define ROTA_BLOCK 2
#define ROTA_TABLE_FULL (-1)
#define ROTA_OWN_HEAD (-2) /* the head asks again for what it has */

#define ROTA_TURN_ENDED 1u
#define ROTA_TURN_EVICTED 2u
#define ROTA_TURN_DIED 3u
#define ROTA_TURN_NONE 0u

#define ROTA_OWNER_BITS 47
#define ROTA_OWNER_MASK ((UINT64_C(1) << ROTA_OWNER_BITS) - 1)
#define ROTA_BLOCKED (UINT64_C(1) << ROTA_OWNER_BITS)
#define ROTA_GENERATION_SHIFT 48
#define ROTA_SPINS_PER_YIELD 64

typedef struct rota_automaton {
    rota_key_name name;
    uint64_t word;
} rota_automaton;

typedef struct rota_waiter {
    rota_key_name name;
    uint64_t owner;    /* 0: not in use */
    uint32_t turn;     /* what it sleeps on */
    uint32_t sleeping; /* somebody is to be woken */
    uint32_t next;     /* 1 + index, in the list of the used or of the spare ones */
    uint32_t generation;
    uint64_t reserved[3];
} rota_waiter;

typedef struct rota_stripe {
    uint32_t lock;
    uint32_t count;   /* slots in use */
    uint32_t gap;     /* 1 + index while a removal shifts, else 0 */
    uint32_t waiters; /* 1 + index of the first one in use */
    uint32_t spare;   /* 1 + index of the first one given back */
    uint32_t touched; /* waiters that were ever in use */
    uint64_t accepted, blocked, declined, evicted, died;
} rota_stripe;

typedef struct rota_automata {
    rota_stripe *stripes;
    rota_automaton *slots;
    rota_waiter *waiters;
    uint32_t stripe_count, slots_each, waiters_each, slots_most;
    uint64_t secret[2];
    const rota_platform *platform;
} rota_automata;

_Static_assert(sizeof(rota_automaton) == 24, "64 bytes a live key at half load");
_Static_assert(sizeof(rota_stripe) == 64, "a line each");
_Static_assert(sizeof(rota_waiter) == 64, "a line each");

ROTA_INLINE uint64_t rota_head_owner(uint64_t word) { return word & ROTA_OWNER_MASK; }
ROTA_INLINE uint32_t rota_head_generation(uint64_t word) { return (uint32_t)(word >> ROTA_GENERATION_SHIFT); }

ROTA_INLINE uint64_t rota_head_word(uint64_t owner, uint32_t generation)
{
    return owner | (uint64_t)(generation & 0xffffu) << ROTA_GENERATION_SHIFT;
}

/* --- where a key is ------------------------------------------------------------------------------------------ */

ROTA_INLINE uint32_t rota_stripe_index(const rota_automata *a, rota_key_name name)
{
    return (uint32_t)((name.low >> 32) * a->stripe_count >> 32);
}

ROTA_INLINE uint32_t rota_slot_home(const rota_automata *a, rota_key_name name)
{
    return (uint32_t)((name.high >> 32) * a->slots_each >> 32);
}

ROTA_INLINE rota_automaton *rota_stripe_slots(const rota_automata *a, uint32_t stripe)
{
    return a->slots + (uint64_t)stripe * a->slots_each;
}

ROTA_INLINE rota_waiter *rota_stripe_waiters(const rota_automata *a, uint32_t stripe)
{
    return a->waiters + (uint64_t)stripe * a->waiters_each;
}

ROTA_INLINE bool rota_same_name(rota_key_name one, rota_key_name other)
{
    return one.low == other.low && one.high == other.high;
}

ROTA_INLINE void rota_automaton_prefetch(const rota_automata *a, rota_key_name name)
{
    const rota_automaton *slot = rota_stripe_slots(a, rota_stripe_index(a, name)) + rota_slot_home(a, name);
    __builtin_prefetch(slot, 1);
    __builtin_prefetch((const uint8_t *)slot + 23, 1);
}

/* --- the lock of a stripe ------------------------------------------------------------------------------------ */

ROTA_COLD void rota_stripe_wait(const rota_automata *a, rota_stripe *stripe)
{
    for (uint32_t spins = 1;; spins++) {
        uint32_t expected = 0;
        if (rota_load_relaxed_u32(&stripe->lock) == 0 && rota_compare_exchange_u32(&stripe->lock, &expected, 1))
            return;
        if (spins % ROTA_SPINS_PER_YIELD == 0)
            a->platform->yield_processor(a->platform); /* the holder may want just this processor */
        else
            rota_pause();
    }
}

ROTA_INLINE rota_stripe *rota_stripe_enter(const rota_automata *a, uint32_t index)
{
    rota_stripe *stripe = &a->stripes[index];
    uint32_t expected = 0;
    if (ROTA_UNLIKELY(!rota_compare_exchange_u32(&stripe->lock, &expected, 1)))
        rota_stripe_wait(a, stripe);
    return stripe;
}

ROTA_INLINE void rota_stripe_leave(rota_stripe *stripe) { rota_store_release_u32(&stripe->lock, 0); }

/* --- slots; the caller holds the lock ------------------------------------------------------------------------ */

/* The slot of the key, or the free one where it would go; there always is one. */
ROTA_INLINE rota_automaton *rota_slot_find(const rota_automata *a, uint32_t stripe, rota_key_name name)
{
    rota_automaton *slots = rota_stripe_slots(a, stripe), *end = slots + a->slots_each;
    rota_automaton *slot = slots + rota_slot_home(a, name);
    while (slot->word != 0 && !rota_same_name(slot->name, name))
        if (ROTA_UNLIKELY(++slot == end))
            slot = slots;
    return slot;
}

/* Fill the gap from behind until nobody wants it. Repeating it from `gap` after a death does no harm. */
static inline void rota_slots_shift(const rota_automata *a, uint32_t index, rota_stripe *stripe)
{
    rota_automaton *slots = rota_stripe_slots(a, index);
    uint32_t size = a->slots_each, gap = stripe->gap - 1;
    for (uint32_t place = gap;;) {
        place = place + 1 < size ? place + 1 : 0;
        if (slots[place].word == 0)
            break;
        uint32_t home = rota_slot_home(a, slots[place].name);
        uint32_t from_home = place >= home ? place - home : place + size - home;
        uint32_t from_gap = place >= gap ? place - gap : place + size - gap;
        if (from_home < from_gap)
            continue;
        slots[gap].name = slots[place].name;
        rota_store_release_u64(&slots[gap].word, slots[place].word);
        gap = place;
        rota_store_release_u32(&stripe->gap, gap + 1);
    }
    rota_store_release_u64(&slots[gap].word, 0);
    rota_store_release_u32(&stripe->gap, 0);
}

ROTA_INLINE void rota_slot_remove(const rota_automata *a, uint32_t index, rota_stripe *stripe, rota_automaton *slot)
{
    rota_automaton *slots = rota_stripe_slots(a, index), *next = slot + 1 == slots + a->slots_each ? slots : slot + 1;
    stripe->count--;
    if (ROTA_LIKELY(next->word == 0)) {
        rota_store_release_u64(&slot->word, 0);
        return;
    }
    rota_store_release_u32(&stripe->gap, (uint32_t)(slot - slots) + 1);
    rota_slots_shift(a, index, stripe);
}

/* --- waiters; the caller holds the lock ---------------------------------------------------------------------- */

/* The link that names the waiter of this owner (0: of anybody whose turn has not come) for the key, or NULL. */
static inline uint32_t *rota_waiter_link(const rota_automata *a, uint32_t index, rota_stripe *stripe,
                                         rota_key_name name, uint64_t owner)
{
    rota_waiter *waiters = rota_stripe_waiters(a, index);
    for (uint32_t *link = &stripe->waiters; *link != 0; link = &waiters[*link - 1].next) {
        rota_waiter *waiter = &waiters[*link - 1];
        if (rota_same_name(waiter->name, name) && (owner ? waiter->owner == owner : waiter->turn == ROTA_TURN_NONE))
            return link;
    }
    return NULL;
}

static inline void rota_waiter_free(const rota_automata *a, uint32_t index, rota_stripe *stripe, uint32_t *link)
{
    uint32_t number = *link;
    rota_waiter *waiter = &rota_stripe_waiters(a, index)[number - 1];
    *link = waiter->next;
    waiter->owner = 0;
    waiter->next = stripe->spare;
    stripe->spare = number;
}

static inline rota_waiter *rota_waiter_new(const rota_automata *a, uint32_t index, rota_stripe *stripe)
{
    rota_waiter *waiters = rota_stripe_waiters(a, index);
    uint32_t number = stripe->spare;
    if (number)
        stripe->spare = waiters[number - 1].next;
    else if (stripe->touched < a->waiters_each)
        number = ++stripe->touched;
    else
        return NULL;
    waiters[number - 1].next = stripe->waiters;
    stripe->waiters = number;
    return &waiters[number - 1];
}

/* The waiter becomes head; returns it if somebody has to be woken, once the lock is left. */
static inline rota_waiter *rota_promote(const rota_automata *a, uint32_t index, rota_stripe *stripe,
                                        rota_automaton *slot, uint32_t turn)
{
    uint32_t *link = rota_waiter_link(a, index, stripe, slot->name, 0);
    rota_waiter *waiter = &rota_stripe_waiters(a, index)[*link - 1];
    waiter->generation = (rota_head_generation(slot->word) + 1) & 0xffffu;
    rota_store_release_u64(&slot->word, rota_head_word(waiter->owner, waiter->generation));
    rota_store_release_u32(&waiter->turn, turn);
    rota_fence();
    return rota_load_relaxed_u32(&waiter->sleeping) ? waiter : NULL;
}

/* --- the calls ----------------------------------------------------------------------------------------------- */

static inline int rota_enqueue_block(const rota_automata *a, uint32_t index, rota_stripe *stripe, rota_automaton *slot,
                                     uint64_t owner)
{
    rota_waiter *waiter = rota_waiter_new(a, index, stripe);
    if (waiter == NULL)
        return ROTA_TABLE_FULL;
    waiter->name = slot->name;
    waiter->owner = owner;
    waiter->turn = ROTA_TURN_NONE;
    waiter->sleeping = 0;
    rota_store_release_u64(&slot->word, slot->word | ROTA_BLOCKED);
    stripe->blocked++;
    return ROTA_BLOCK;
}

/* An owner that was promoted and evicted, and never waited, has an old record: it must not answer the new wait. */
static inline void rota_forget_turn(const rota_automata *a, uint32_t index, rota_stripe *stripe, rota_key_name name,
                                    uint64_t owner)
{
    uint32_t *link = stripe->waiters ? rota_waiter_link(a, index, stripe, name, owner) : NULL;
    if (link != NULL && rota_stripe_waiters(a, index)[*link - 1].turn != ROTA_TURN_NONE)
        rota_waiter_free(a, index, stripe, link);
}

/* ROTA_ACCEPT, ROTA_BLOCK, ROTA_DECLINE, ROTA_TABLE_FULL or ROTA_OWN_HEAD; the lock is held. */
ROTA_INLINE int rota_enqueue_locked(const rota_automata *a, uint32_t index, rota_stripe *stripe, rota_key_name name,
                                    uint64_t owner, uint32_t *generation)
{
    rota_automaton *slot = rota_slot_find(a, index, name);
    if (ROTA_LIKELY(slot->word == 0)) {
        if (ROTA_UNLIKELY(stripe->count >= a->slots_most))
            return ROTA_TABLE_FULL;
        rota_forget_turn(a, index, stripe, name, owner);
        *generation = (uint32_t)(stripe->accepted & 0xffffu);
        slot->name = name;
        rota_store_release_u64(&slot->word, rota_head_word(owner, *generation));
        stripe->count++;
        stripe->accepted++;
        return ROTA_ACCEPT;
    }
    if (rota_head_owner(slot->word) == owner)
        return ROTA_OWN_HEAD;
    if (slot->word & ROTA_BLOCKED) {
        stripe->declined++;
        return ROTA_DECLINE;
    }
    rota_forget_turn(a, index, stripe, name, owner);
    return rota_enqueue_block(a, index, stripe, slot, owner);
}

/* Whether the owner was the head (of this generation; -1: of any) and is no more. *woken: whom to wake, or NULL. */
ROTA_INLINE bool rota_dequeue_locked(const rota_automata *a, uint32_t index, rota_stripe *stripe, rota_key_name name,
                                     uint64_t owner, int64_t generation, rota_waiter **woken)
{
    rota_automaton *slot = rota_slot_find(a, index, name);
    *woken = NULL;
    if (slot->word == 0 || rota_head_owner(slot->word) != owner)
        return false;
    if (generation >= 0 && rota_head_generation(slot->word) != (uint32_t)generation)
        return false;
    rota_forget_turn(a, index, stripe, name, owner);
    if (ROTA_UNLIKELY(slot->word & ROTA_BLOCKED))
        *woken = rota_promote(a, index, stripe, slot, ROTA_TURN_ENDED);
    else
        rota_slot_remove(a, index, stripe, slot);
    return true;
}

ROTA_INLINE void rota_wake(const rota_automata *a, rota_waiter *woken)
{
    if (ROTA_UNLIKELY(woken != NULL))
        a->platform->futex_wake(a->platform, &woken->turn, 1);
}

ROTA_INLINE int rota_enqueue(const rota_automata *a, rota_key_name name, uint64_t owner, uint32_t *generation)
{
    uint32_t index = rota_stripe_index(a, name);
    rota_stripe *stripe = rota_stripe_enter(a, index);
    int action = rota_enqueue_locked(a, index, stripe, name, owner, generation);
    rota_stripe_leave(stripe);
    return action;
}

/* The waiter of this owner for the key, or NULL. It stays where it is until its owner takes it off. */
static inline rota_waiter *rota_waiter_of(const rota_automata *a, rota_key_name name, uint64_t owner)
{
    uint32_t index = rota_stripe_index(a, name);
    rota_stripe *stripe = rota_stripe_enter(a, index);
    uint32_t *link = rota_waiter_link(a, index, stripe, name, owner);
    rota_waiter *waiter = link ? &rota_stripe_waiters(a, index)[*link - 1] : NULL;
    rota_stripe_leave(stripe);
    return waiter;
}

/* The wait is over: the turn that came, or, if none did, after an eviction (`evict`) or after giving up. */
static inline uint32_t rota_wait_end(const rota_automata *a, rota_key_name name, uint64_t owner, bool evict,
                                     uint32_t *generation)
{
    uint32_t index = rota_stripe_index(a, name);
    rota_stripe *stripe = rota_stripe_enter(a, index);
    uint32_t *link = rota_waiter_link(a, index, stripe, name, owner), turn = ROTA_TURN_NONE;
    if (link != NULL) {
        rota_waiter *waiter = &rota_stripe_waiters(a, index)[*link - 1];
        turn = waiter->turn;
        if (turn == ROTA_TURN_NONE) { /* looked at under the lock: the head is the one it waits for */
            rota_automaton *slot = rota_slot_find(a, index, name);
            if (evict) {
                rota_promote(a, index, stripe, slot, ROTA_TURN_EVICTED);
                turn = ROTA_TURN_EVICTED;
                stripe->evicted++;
            } else
                rota_store_release_u64(&slot->word, slot->word & ~ROTA_BLOCKED);
        }
        *generation = waiter->generation;
        rota_waiter_free(a, index, stripe, link);
    }
    rota_stripe_leave(stripe);
    return turn;
}

#endif
