/* Many keys in one call: names first, then one pass over the stripes in order, slots fetched ahead.
 *
 * What holds:
 *  1. Keys are taken a chunk at a time, sorted by group of stripes; equal keys keep their order, so the first of them
 *     is the one that is accepted.  A stripe's lock is taken once for all neighbours of one stripe.
 *  2. An answer is written for each key; who is to be woken is collected and woken when no lock is held.
 *  3. When a stripe is full the call stops, and all that it did is undone: it was not made.
 */
#ifndef ROTA_AUTOMATON_MANY_H
#define ROTA_AUTOMATON_MANY_H

#include "rota/automaton.h"

#define ROTA_CHUNK 8192u
#define ROTA_GROUPS 1024u
#define ROTA_AHEAD 12u

typedef struct rota_chunk {
    rota_key_name names[ROTA_CHUNK], sorted[ROTA_CHUNK];
    uint32_t order[ROTA_CHUNK];
    uint32_t begins[ROTA_GROUPS + 1];
    rota_waiter *woken[ROTA_CHUNK];
    uint32_t count, woken_count;
} rota_chunk;

/* size 0: 64-bit numbers, with a sign or without; else strings of that size, of which zeros at the end are no part. */
static inline void rota_chunk_name(rota_chunk *chunk, const uint64_t secret[2], const uint8_t *keys, size_t size,
                                   bool with_sign, bool keep_zeros)
{
    for (uint32_t i = 0; i < chunk->count; i++) {
        if (size == 0) {
            uint64_t number;
            memcpy(&number, keys + 8 * (size_t)i, 8);
            unsigned kind = with_sign || number >> 63 == 0 ? ROTA_KEY_SIGNED : ROTA_KEY_UNSIGNED;
            chunk->names[i] = rota_name_number(secret, number, kind);
            continue;
        }
        const uint8_t *key = keys + size * i;
        size_t length = size;
        while (!keep_zeros && length > 0 && key[length - 1] == 0)
            length--;
        chunk->names[i] = rota_name_bytes(secret, key, length);
    }
}

ROTA_INLINE uint32_t rota_chunk_group(rota_key_name name) { return (uint32_t)((name.low >> 32) * ROTA_GROUPS >> 32); }

/* Counting sort by group; stable. */
static inline void rota_chunk_sort(rota_chunk *chunk)
{
    memset(chunk->begins, 0, sizeof chunk->begins);
    for (uint32_t i = 0; i < chunk->count; i++)
        chunk->begins[rota_chunk_group(chunk->names[i]) + 1]++;
    for (uint32_t group = 0; group < ROTA_GROUPS; group++)
        chunk->begins[group + 1] += chunk->begins[group];
    for (uint32_t i = 0; i < chunk->count; i++) {
        uint32_t place = chunk->begins[rota_chunk_group(chunk->names[i])]++;
        chunk->sorted[place] = chunk->names[i];
        chunk->order[place] = i;
    }
}

/* The stripe of a key, entered; the one before is left when it is another. */
ROTA_INLINE rota_stripe *rota_chunk_enter(const rota_automata *a, rota_stripe *held, uint32_t index)
{
    if (ROTA_LIKELY(held == &a->stripes[index]))
        return held;
    if (held != NULL)
        rota_stripe_leave(held);
    return rota_stripe_enter(a, index);
}

/* answers[i] as from rota_enqueue, a key in the caller's own hands being declined. How many of the sorted were taken:
 * all, or those before the one for which there was no room. */
static inline uint32_t rota_enqueue_chunk(const rota_automata *a, rota_chunk *chunk, uint64_t owner, uint8_t *answers)
{
    rota_stripe *stripe = NULL;
    uint32_t i = 0, generation;
    for (; i < chunk->count; i++) {
        if (i + ROTA_AHEAD < chunk->count)
            rota_automaton_prefetch(a, chunk->sorted[i + ROTA_AHEAD]);
        uint32_t index = rota_stripe_index(a, chunk->sorted[i]);
        stripe = rota_chunk_enter(a, stripe, index);
        int action = rota_enqueue_locked(a, index, stripe, chunk->sorted[i], owner, &generation);
        if (ROTA_UNLIKELY(action == ROTA_TABLE_FULL))
            break;
        if (ROTA_UNLIKELY(action == ROTA_OWN_HEAD)) {
            stripe->declined++;
            action = ROTA_DECLINE;
        }
        answers[chunk->order[i]] = (uint8_t)action;
    }
    if (stripe != NULL)
        rota_stripe_leave(stripe);
    return i;
}

static inline void rota_dequeue_chunk(const rota_automata *a, rota_chunk *chunk, uint64_t owner, uint8_t *answers)
{
    rota_stripe *stripe = NULL;
    chunk->woken_count = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        if (i + ROTA_AHEAD < chunk->count)
            rota_automaton_prefetch(a, chunk->sorted[i + ROTA_AHEAD]);
        uint32_t index = rota_stripe_index(a, chunk->sorted[i]);
        stripe = rota_chunk_enter(a, stripe, index);
        rota_waiter *woken = NULL;
        answers[chunk->order[i]] = rota_dequeue_locked(a, index, stripe, chunk->sorted[i], owner, -1, &woken);
        if (ROTA_UNLIKELY(woken != NULL))
            chunk->woken[chunk->woken_count++] = woken;
    }
    if (stripe != NULL)
        rota_stripe_leave(stripe);
}

#endif
