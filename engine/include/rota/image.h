/*
 * The image in a checkpoint: what a scan from its begin cannot find again, as one stream of bytes.
 *
 * What holds:
 *  1. Everything in it is absolute, so an image taken while others append, and the ordered replay from its begin,
 *     converge.
 *  2. The stream is cut into the extras of CHECKPOINT operations; the sum of all bytes so far stands in each of them.
 *  3. A reader never leaves the stream, whatever it holds: a cursor that ran out stays empty and says so.
 *
 *     header (64) | segments (32 each) | queues | stragglers | lanes | registrations
 *
 *  number       seven bits a byte, low first, the top bit says that more follow; at most ten bytes
 *  queue        number + 1, state (1), created_lsn (8), fence generation (8), fence number (8), rota_queue_options,
 *               name, definitions of the index; a later entry of the same number replaces an earlier one; ends with a 0
 *  straggler    queue + 1, level (1), id, file, cell, details; ends with a 0
 *  lane         queue + 1, level (1), runs, 0; ends with a 0
 *  run          count << 3 | bits, [id - end of the last run's ids], [file], cell: from the segment's start after a
 *               change of file, else the distance from the last run's end, zigzag
 *  details      state (1), flags (1), rota_image_has (1), [hand-outs, excused], [due (8)], [expiry (8)], [order],
 *               [count (1), as many terms (8); behind that of the score the place in the order (8)]
 *  registration queue + 1, kind (1), stable (1), id, lsn, epoch, name length (2), tag length (2), name, tag;
 *               ends with a 0
 */
#ifndef ROTA_IMAGE_H
#define ROTA_IMAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "rota/atomics.h"
#include "rota/format.h"

#define ROTA_IMAGE_MAGIC (0x49544f52u ^ ROTA_MAGIC_KIND) /* "ROTI" */
#define ROTA_IMAGE_NUMBER_BYTES 10u

typedef struct rota_image_header {
    uint32_t magic;
    uint32_t segment_count;
    uint64_t begin_lsn;
    uint64_t next_id; /* no id at or above this lies below begin_lsn */
    uint64_t time_ns; /* latest logged decision */
    uint64_t message_count; /* in lanes, at most */
    uint64_t straggler_count;
    uint64_t bytes; /* of the whole stream */
    uint64_t reserved;
} rota_image_header;
_Static_assert(sizeof(rota_image_header) == 64, "image header");

/* A segment that holds commits below the begin. */
typedef struct rota_image_segment {
    uint64_t first_lsn;
    uint64_t end_lsn;  /* of the commits below the begin */
    uint32_t file;
    uint32_t frames;   /* below the begin */
    uint64_t reserved;
} rota_image_segment;
_Static_assert(sizeof(rota_image_segment) == 32, "image segment");

enum rota_image_run { ROTA_IMAGE_GAP = 1, ROTA_IMAGE_FILE = 2, ROTA_IMAGE_DETAILS = 4 };
enum rota_image_has {
    ROTA_IMAGE_COUNTS = 1,
    ROTA_IMAGE_DUE = 2,
    ROTA_IMAGE_EXPIRY = 4,
    ROTA_IMAGE_ORDER = 8,
    ROTA_IMAGE_TERMS = 16,
};

/* A block's operation: id = its number, a = begin, b = sum of the stream up to its end | number of blocks << 32 (in the
 * last), detail bit 0 = the last. */
enum rota_image_block { ROTA_IMAGE_LAST = 1 };

ROTA_INLINE uint64_t rota_zigzag(int64_t value) { return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63); }
ROTA_INLINE int64_t rota_unzigzag(uint64_t value) { return (int64_t)(value >> 1) ^ -(int64_t)(value & 1); }

/* Store a number; the place after it.  The caller has room for ROTA_IMAGE_NUMBER_BYTES. */
ROTA_INLINE uint8_t *rota_number_put(uint8_t *to, uint64_t value)
{
    while (value >= 0x80) {
        *to++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *to++ = (uint8_t)value;
    return to;
}

typedef struct rota_image_cursor {
    const uint8_t *next;
    uint64_t left;
    bool failed; /* it ran out, or held what cannot be */
} rota_image_cursor;

ROTA_INLINE void rota_image_begin(rota_image_cursor *cursor, const uint8_t *bytes, uint64_t length)
{
    cursor->next = bytes;
    cursor->left = length;
    cursor->failed = false;
}

/* `length` bytes of the stream, or NULL. */
ROTA_INLINE const uint8_t *rota_image_bytes(rota_image_cursor *cursor, uint64_t length)
{
    if (ROTA_UNLIKELY(cursor->left < length)) {
        cursor->failed = true;
        cursor->left = 0;
        return NULL;
    }
    const uint8_t *bytes = cursor->next;
    cursor->next += length;
    cursor->left -= length;
    return bytes;
}

ROTA_INLINE uint8_t rota_image_byte(rota_image_cursor *cursor)
{
    const uint8_t *bytes = rota_image_bytes(cursor, 1);
    return bytes != NULL ? *bytes : 0;
}

ROTA_INLINE uint64_t rota_image_u64(rota_image_cursor *cursor)
{
    uint64_t value = 0;
    const uint8_t *bytes = rota_image_bytes(cursor, sizeof value);
    if (bytes != NULL)
        memcpy(&value, bytes, sizeof value);
    return value;
}

/* The next number; 0 where the stream ends or the number does not. */
ROTA_INLINE uint64_t rota_image_number(rota_image_cursor *cursor)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (ROTA_UNLIKELY(cursor->left == 0))
            break;
        uint8_t byte = *cursor->next++;
        cursor->left--;
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if (byte < 0x80)
            return value;
    }
    cursor->failed = true;
    cursor->left = 0;
    return 0;
}

#endif
