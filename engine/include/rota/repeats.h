/* How soon keys come again, in a stream of any length and one mebibyte.
 *
 * What holds:
 *  1. `seen` holds when a key came last, for keys of the last `queue_length` requests; so whether a request repeats one
 *     so near is known but for chance: 24 bits of the key's hash tell it in its bucket of eight, and a bucket that has
 *     more than eight keys that are so new forgets the oldest.
 *  2. A request that nothing repeats is the last one of its key, so there are as many of them as different keys:
 *     `registers` count these (HyperLogLog; Flajolet, Fusy, Gandouet, Meunier 2007), with a standard error of 0.3 %.
 *  3. `turns` replays the automaton of automaton.h: a key's work takes `service_length` requests, the entry tells when it
 *     ends and whether one waits behind it.
 */
#ifndef ROTA_REPEATS_H
#define ROTA_REPEATS_H

#include <math.h>

#include "rota/sip.h"

#define ROTA_REGISTER_BITS 17
#define ROTA_SEEN_BUCKETS 8192u
#define ROTA_TURN_BUCKETS 5120u
#define ROTA_BUCKET_WAYS 8u
#define ROTA_WHEN_BITS 40
#define ROTA_WHEN_MASK ((UINT64_C(1) << ROTA_WHEN_BITS) - 1)

typedef struct rota_repeats {
    uint64_t seen[ROTA_SEEN_BUCKETS][ROTA_BUCKET_WAYS];
    uint64_t turns[ROTA_TURN_BUCKETS][ROTA_BUCKET_WAYS];
    uint8_t registers[1u << ROTA_REGISTER_BITS];
    uint64_t secret[2];
    uint64_t requests, near, declined, queue_length, service_length;
} rota_repeats;

_Static_assert(sizeof(rota_repeats) <= 1u << 20, "one mebibyte");

/* The place of the key in its bucket, or of the entry that matters least: the one with the oldest time. */
static inline uint64_t *rota_repeats_find(uint64_t *bucket, uint64_t mark)
{
    uint64_t *oldest = bucket;
    for (uint32_t way = 0; way < ROTA_BUCKET_WAYS; way++) {
        if (bucket[way] >> ROTA_WHEN_BITS == mark)
            return &bucket[way];
        if ((bucket[way] & ROTA_WHEN_MASK) < (*oldest & ROTA_WHEN_MASK))
            oldest = &bucket[way];
    }
    return oldest;
}

/* One request of the key, at `now` (counted from 1): Init, Process or Block. */
static inline void rota_repeats_replay(rota_repeats *r, uint64_t *bucket, uint64_t mark, uint64_t now)
{
    uint64_t *entry = rota_repeats_find(bucket, mark);
    uint64_t end = 0, waits = 0;
    if (*entry >> ROTA_WHEN_BITS == mark) {
        end = (*entry & ROTA_WHEN_MASK) >> 1;
        waits = *entry & 1;
    }
    if (end <= now) { /* nobody works on it; or the one that waited does so since */
        if (waits && end + r->service_length > now) {
            end += r->service_length;
            waits = 0;
        } else
            end = 0;
    }
    if (end == 0) {
        end = now + r->service_length;
        waits = 0;
    } else if (!waits)
        waits = 1;
    else {
        r->declined++;
        return;
    }
    *entry = mark << ROTA_WHEN_BITS | end << 1 | waits;
}

static inline void rota_repeats_add(rota_repeats *r, rota_key_name name)
{
    uint64_t mark = (name.low & 0xffffffu) | 1, now = ++r->requests;
    uint32_t place = (uint32_t)(name.low >> 32);
    uint64_t *entry = rota_repeats_find(r->seen[(uint64_t)place * ROTA_SEEN_BUCKETS >> 32], mark);
    if (*entry >> ROTA_WHEN_BITS == mark && now - (*entry & ROTA_WHEN_MASK) <= r->queue_length)
        r->near++;
    *entry = mark << ROTA_WHEN_BITS | now;
    uint8_t *slot = &r->registers[name.high >> (64 - ROTA_REGISTER_BITS)];
    uint8_t rank = (uint8_t)(__builtin_clzll(name.high << ROTA_REGISTER_BITS | 1u << (ROTA_REGISTER_BITS - 1)) + 1);
    if (rank > *slot)
        *slot = rank;
    rota_repeats_replay(r, r->turns[(uint64_t)place * ROTA_TURN_BUCKETS >> 32], mark, now);
}

/* What the empty and the full registers stand for (Ertl, New cardinality estimation algorithms for HyperLogLog
 * sketches, 2017: the improved raw estimator, without bias at any number of keys). */
static inline double rota_repeats_empty(double share)
{
    double weight = 1, sum = share, before;
    if (share == 1)
        return INFINITY;
    do {
        before = sum;
        share *= share;
        sum += share * weight;
        weight += weight;
    } while (sum != before);
    return sum;
}

static inline double rota_repeats_full(double share)
{
    double weight = 1, sum = 1 - share, before;
    if (share == 0 || share == 1)
        return 0;
    do {
        before = sum;
        share = sqrt(share);
        weight *= 0.5;
        sum -= (1 - share) * (1 - share) * weight;
    } while (sum != before);
    return sum / 3;
}

/* How many different keys came. */
static inline double rota_repeats_distinct(const rota_repeats *r)
{
    enum { RANKS = 64 - ROTA_REGISTER_BITS };
    double count = 1u << ROTA_REGISTER_BITS;
    uint32_t of_rank[RANKS + 2] = {0};
    for (uint32_t i = 0; i < 1u << ROTA_REGISTER_BITS; i++)
        of_rank[r->registers[i]]++;
    double sum = count * rota_repeats_full(1 - of_rank[RANKS + 1] / count);
    for (int rank = RANKS; rank >= 1; rank--)
        sum = 0.5 * (sum + of_rank[rank]);
    sum += count * rota_repeats_empty(of_rank[0] / count);
    return count * count / (2 * log(2)) / sum;
}

#endif
