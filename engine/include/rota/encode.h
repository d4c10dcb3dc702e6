/* Encoding the parts of a commit as whole words.
 *
 * What holds:
 *  1. Each word is stored once, eight bytes at a time and aligned, and sums are made from the registers: a load that
 *     reads together what was stored in pieces waits until all of them have left the store buffer.
 *  2. The bytes are those of the structures in format.h (tests/c/encode_test.c compares them field by field).
 *  3. Nothing here reads shared memory or allocates.
 */
#ifndef ROTA_ENCODE_H
#define ROTA_ENCODE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "rota/crc32c.h"
#include "rota/format.h"

_Static_assert(offsetof(rota_op, id) == 8 && sizeof(rota_op) == 32, "four words");
_Static_assert(offsetof(rota_frame, offset) == 8 && offsetof(rota_frame, id) == 16, "four words");
_Static_assert(offsetof(rota_frame, priority) == 28 && sizeof(rota_frame) == 32, "four words");
_Static_assert(offsetof(rota_commit_header, meta_crc) == 88 && sizeof(rota_commit_header) == 96, "twelve words");

ROTA_INLINE void rota_store_u64(void *to, uint64_t value)
{
    memcpy(to, &value, sizeof value);
}

/* One operation without its extra. */
ROTA_INLINE void rota_encode_op(void *to, uint8_t kind, uint8_t detail, uint16_t queue, uint64_t id, uint64_t a,
                                uint64_t b, uint32_t extra_bytes)
{
    uint8_t *bytes = (uint8_t *)to;
    rota_store_u64(bytes, kind | (uint64_t)detail << 8 | (uint64_t)queue << 16 | (uint64_t)extra_bytes << 32);
    rota_store_u64(bytes + 8, id);
    rota_store_u64(bytes + 16, a);
    rota_store_u64(bytes + 24, b);
}

/* The sum of the 28 bytes of a plain frame's header that it covers: no attributes, no flags, no explicit id. */
ROTA_INLINE uint32_t rota_plain_frame_sum(uint32_t salt_crc, uint32_t body_length, uint32_t offset, uint32_t back,
                                          uint16_t queue, uint8_t priority)
{
    uint64_t words[3] = {body_length | (uint64_t)offset << 32, back, (uint64_t)queue << 48};
    uint32_t last = priority;
#if ROTA_CRC32C_HARDWARE
    if (rota_crc32c_is_hardware()) {
        uint64_t sum = (uint32_t)~salt_crc;
        sum = rota_crc32c_step_u64(sum, words[0]);
        sum = rota_crc32c_step_u64(sum, words[1]);
        sum = rota_crc32c_step_u64(sum, words[2]);
        return ~(uint32_t)rota_crc32c_step_u32(sum, last);
    }
#endif
    return rota_crc32c_portable(rota_crc32c_portable(salt_crc, words, sizeof words), &last, sizeof last);
}

/* The header of a plain frame, with the sum that goes on over the body. */
ROTA_INLINE void rota_encode_plain_frame(void *to, uint32_t crc, uint32_t body_length, uint32_t offset, uint32_t back,
                                         uint16_t queue, uint8_t priority)
{
    uint8_t *bytes = (uint8_t *)to;
    rota_store_u64(bytes, crc | (uint64_t)body_length << 32);
    rota_store_u64(bytes + 8, offset | (uint64_t)back << 32);
    rota_store_u64(bytes + 16, 0);
    rota_store_u64(bytes + 24, (uint64_t)queue << 16 | (uint64_t)priority << 32);
}

/* A header whose fields are all set but header_crc, which is made here. `to` may be the memory of `header`. */
ROTA_INLINE uint32_t rota_encode_header(void *to, uint32_t salt_crc, const rota_commit_header *header)
{
    uint8_t *bytes = (uint8_t *)to;
    uint32_t meta = header->meta_crc;
    uint64_t sum = (uint32_t)~salt_crc, word;
#if ROTA_CRC32C_HARDWARE
    bool hardware = rota_crc32c_is_hardware();
#define ROTA_SUM_WORD(value) sum = hardware ? rota_crc32c_step_u64(sum, value) : 0
#else
    bool hardware = false;
#define ROTA_SUM_WORD(value) (void)(value)
#endif
#define ROTA_HEADER_WORD(place, value)                                                                              \
    word = (value);                                                                                                 \
    rota_store_u64(bytes + 8 * (place), word);                                                                      \
    ROTA_SUM_WORD(word)
    ROTA_HEADER_WORD(0, header->magic | (uint64_t)header->version << 32 | (uint64_t)header->flags << 48);
    ROTA_HEADER_WORD(1, header->lsn);
    ROTA_HEADER_WORD(2, header->length | (uint64_t)header->op_bytes << 32);
    ROTA_HEADER_WORD(3, header->message_count | (uint64_t)header->op_count << 32);
    ROTA_HEADER_WORD(4, header->epoch | (uint64_t)header->sub_epoch << 32);
    ROTA_HEADER_WORD(5, header->previous_chain);
    ROTA_HEADER_WORD(6, header->durable_lsn);
    ROTA_HEADER_WORD(7, header->base_id);
    ROTA_HEADER_WORD(8, header->time_ns);
    ROTA_HEADER_WORD(9, header->token_generation);
    ROTA_HEADER_WORD(10, header->token_number);
#undef ROTA_HEADER_WORD
#undef ROTA_SUM_WORD
    uint32_t made = hardware ? rota_crc32c_u32(~(uint32_t)sum, meta)
                             : rota_crc32c_portable(rota_crc32c_portable(salt_crc, bytes, 88), &meta, sizeof meta);
    rota_store_u64(bytes + 88, meta | (uint64_t)made << 32);
    return made;
}

#endif
