/*
 * Extendible hash tables in the control file: history of messages, stragglers, registrations.
 *
 * What holds:
 *  1. A record is 32 bytes; key 0 marks a free place.  The root is a large page of bucket numbers, indexed by the top
 *     `depth` bits of the mixed key; a bucket is a large page probed linearly; page->depth is the number of bits that
 *     all its keys share, page->count the number of its records.
 *  2. A bucket is split before it is three quarters full: into two new pages, then the root's entries change, then the
 *     old page is given back.  Removal closes the gap by shifting back, so there are no tombstones.
 *  3. Lines are saved before they change; new pages need no saving.
 *  4. Where pages are short a bucket is split later: it may fill up to a few free places.  Splitting never takes pages
 *     from table_floor down, which the rest of the commit may need, unless the bucket is full.
 */
#ifndef ROTA_TABLE_H
#define ROTA_TABLE_H

#include "rota/crc32c.h"
#include "rota/pool.h"

#define ROTA_TABLE_DEPTH_MAX 13u
#define ROTA_BUCKET_SPLIT (ROTA_BUCKET_RECORDS / 4u * 3u)
#define ROTA_BUCKET_FULL (ROTA_BUCKET_RECORDS - 16u)
#define ROTA_TABLE_RECORDS_MAX (1500u << ROTA_TABLE_DEPTH_MAX) /* what a caller that can refuse goes up to */

static inline uint32_t *rota_table_buckets(rota_page *root) { return (uint32_t *)(root + 1); }
static inline rota_record *rota_bucket_records(rota_page *bucket) { return (rota_record *)(bucket + 1); }
static inline uint32_t rota_bucket_home(uint64_t hash) { return (uint32_t)(hash & 0xffffffffu) % ROTA_BUCKET_RECORDS; }

static inline uint32_t rota_table_index(uint64_t hash, uint32_t depth) {
    return depth && depth <= ROTA_TABLE_DEPTH_MAX ? (uint32_t)(hash >> (64 - depth)) : 0;
}

static inline rota_page *rota_table_bucket(const rota_handle *h, const rota_table *table, uint64_t hash) {
    rota_page *root = rota_page_at(h, table->root);
    if (ROTA_UNLIKELY(root->kind != ROTA_PAGE_TABLE_ROOT))
        return NULL;
    rota_page *bucket = rota_page_at(h, rota_table_buckets(root)[rota_table_index(hash, table->depth)]);
    return bucket->kind == ROTA_PAGE_TABLE_BUCKET ? bucket : NULL;
}

static inline rota_record *rota_bucket_find(rota_page *bucket, uint64_t key, uint64_t hash) {
    rota_record *records = rota_bucket_records(bucket);
    uint32_t place = rota_bucket_home(hash);
    for (uint32_t probes = 0; probes < ROTA_BUCKET_RECORDS; probes++) {
        if (records[place].key == key)
            return &records[place];
        if (!records[place].key)
            return NULL;
        place = place + 1 < ROTA_BUCKET_RECORDS ? place + 1 : 0;
    }
    return NULL;
}

/* The record of `key`, or NULL.  A caller that changes it saves its line first. */
static inline rota_record *rota_table_find(const rota_handle *h, const rota_table *table, uint64_t key) {
    if (!table->root || !key)
        return NULL;
    uint64_t hash = rota_mix64(key);
    rota_page *bucket = rota_table_bucket(h, table, hash);
    return bucket ? rota_bucket_find(bucket, key, hash) : NULL;
}

static inline rota_record *rota_bucket_place(rota_page *bucket, uint64_t hash) {
    rota_record *records = rota_bucket_records(bucket);
    uint32_t place = rota_bucket_home(hash);
    for (uint32_t probes = 0; probes < ROTA_BUCKET_RECORDS && records[place].key; probes++)
        place = place + 1 < ROTA_BUCKET_RECORDS ? place + 1 : 0;
    return &records[place];
}

static inline uint32_t rota_bucket_new(const rota_handle *h, uint32_t depth) {
    uint32_t number = rota_page_take_large(h, ROTA_PAGE_TABLE_BUCKET);
    if (number) {
        rota_page *bucket = rota_page_at(h, number);
        memset(bucket + 1, 0, ROTA_LARGE_PAGE - 64);
        bucket->depth = (uint16_t)depth;
    }
    return number;
}

/* Twice as many entries in the root, each bucket named by two. */
static inline void rota_table_double(const rota_handle *h, rota_table *table) {
    uint32_t *buckets = rota_table_buckets(rota_page_at(h, table->root));
    uint32_t count = 1u << table->depth;
    for (uint32_t i = 0; i < 2 * count; i += 16)
        rota_save_once(h, &buckets[i]);
    for (uint32_t i = count; i-- > 0;)
        buckets[2 * i] = buckets[2 * i + 1] = buckets[i];
    table->depth++;
}

/* The caller has saved the table's line. */
static inline int rota_table_split(const rota_handle *h, rota_table *table, uint64_t hash) {
    rota_page *old = rota_table_bucket(h, table, hash);
    uint32_t depth = old->depth;
    uint32_t floor = old->count < ROTA_BUCKET_FULL ? h->table_floor : 0;
    if (depth >= ROTA_TABLE_DEPTH_MAX || rota_pool_room(h) < floor + 2)
        return -1;
    if (depth == table->depth)
        rota_table_double(h, table);
    uint32_t halves[2] = {rota_bucket_new(h, depth + 1), rota_bucket_new(h, depth + 1)};
    if (!halves[0] || !halves[1])
        return -1;
    rota_record *records = rota_bucket_records(old);
    for (uint32_t i = 0; i < ROTA_BUCKET_RECORDS; i++) {
        if (!records[i].key)
            continue;
        uint64_t mixed = rota_mix64(records[i].key);
        rota_page *half = rota_page_at(h, halves[rota_table_index(mixed, depth + 1) & 1]);
        *rota_bucket_place(half, mixed) = records[i];
        half->count++;
    }
    uint32_t span = 1u << (table->depth - depth); /* entries of the root that name the old bucket */
    uint32_t first = rota_table_index(hash, table->depth) & ~(span - 1);
    uint32_t *buckets = rota_table_buckets(rota_page_at(h, table->root));
    for (uint32_t i = first; i < first + span; i++) {
        rota_save_once(h, &buckets[i]);
        buckets[i] = halves[(i - first) / (span / 2)];
    }
    table->buckets++;
    rota_page_give(h, rota_page_number(h, old));
    return 0;
}

/* The record of `key`, made (zero but for the key, its line saved) when it was not there.  NULL: no room.
 * The caller has saved the table's line. */
static inline rota_record *rota_table_put(const rota_handle *h, rota_table *table, uint64_t key) {
    if (!table->root) {
        table->root = rota_page_take_large(h, ROTA_PAGE_TABLE_ROOT);
        if (!table->root)
            return NULL;
        rota_table_buckets(rota_page_at(h, table->root))[0] = rota_bucket_new(h, 0);
        table->depth = 0;
        table->buckets = 1;
    }
    uint64_t hash = rota_mix64(key);
    rota_page *bucket = rota_table_bucket(h, table, hash);
    if (!bucket)
        return NULL;
    rota_record *record = rota_bucket_find(bucket, key, hash);
    if (record) {
        rota_save_once(h, record);
        return record;
    }
    while (bucket->count >= ROTA_BUCKET_SPLIT) {
        if (rota_table_split(h, table, hash) < 0) {
            if (bucket->count >= ROTA_BUCKET_FULL)
                return NULL;
            break;
        }
        bucket = rota_table_bucket(h, table, hash);
    }
    record = rota_bucket_place(bucket, hash);
    rota_save_once(h, bucket);
    rota_save_once(h, record);
    bucket->count++;
    table->count++;
    memset(record, 0, sizeof *record);
    record->key = key;
    return record;
}

/* The caller has saved the table's line. */
static inline void rota_table_remove(const rota_handle *h, rota_table *table, uint64_t key) {
    uint64_t hash = rota_mix64(key);
    rota_page *bucket = table->root ? rota_table_bucket(h, table, hash) : NULL;
    rota_record *record = bucket ? rota_bucket_find(bucket, key, hash) : NULL;
    if (!record)
        return;
    rota_save_once(h, bucket);
    bucket->count--;
    table->count--;
    rota_record *records = rota_bucket_records(bucket);
    uint32_t gap = (uint32_t)(record - records), place = gap;
    for (;;) {
        place = place + 1 < ROTA_BUCKET_RECORDS ? place + 1 : 0;
        if (!records[place].key || place == gap)
            break;
        uint32_t home = rota_bucket_home(rota_mix64(records[place].key));
        uint32_t from_home = (place + ROTA_BUCKET_RECORDS - home) % ROTA_BUCKET_RECORDS;
        uint32_t from_gap = (place + ROTA_BUCKET_RECORDS - gap) % ROTA_BUCKET_RECORDS;
        if (from_home >= from_gap) {
            rota_save_once(h, &records[gap]);
            records[gap] = records[place];
            gap = place;
        }
    }
    rota_save_once(h, &records[gap]);
    memset(&records[gap], 0, sizeof records[gap]);
}

#endif
