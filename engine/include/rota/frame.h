/* Frames: the messages of a commit, their attributes, and the compressed blocks that several of them share.
 *
 * What holds:
 *  1. What scan.h says about bytes that nobody has vouched for holds here too: bounds first, one copy, no state.
 *  2. A frame's checksum is over 28 bytes of its header, its attributes and its body, so a message is checked without
 *     its neighbours. A BLOCK frame's is over header and attributes; the block has a checksum of its own, and the
 *     attribute BLOCK says where in the commit it starts.
 *  3. The id of a message is its commit's base id and its index, unless the frame is COPIED and names it.
 *
 *     directory entry ---offset---> attributes (attribute_bytes) | body (body_length; absent for BLOCK)
 *            |                          `- BLOCK ---> rota_block | stored bytes
 *          back: offset of the entry itself from the commit's start
 */
#ifndef ROTA_FRAME_H
#define ROTA_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "rota/atomics.h"
#include "rota/crc32c.h"
#include "rota/format.h"

#define ROTA_SCAN_RESULTS(X)                                                                                        \
    X(OK, 0, "valid")                                                                                               \
    X(SHORT, 1, "the file ends inside the header")                                                                  \
    X(EMPTY, 2, "zeros")                                                                                            \
    X(MAGIC, 3, "not the start of a commit")                                                                        \
    X(HEADER_CRC, 4, "the header does not match its checksum")                                                      \
    X(VERSION, 5, "written by a newer version")                                                                     \
    X(LSN, 6, "the header belongs to another position")                                                             \
    X(LENGTH, 7, "the length does not fit")                                                                         \
    X(FIELD, 8, "a field of the header is out of range")                                                            \
    X(META_CRC, 9, "operations or directory do not match their checksum")                                           \
    X(OPERATION, 10, "an operation is malformed")                                                                   \
    X(DIRECTORY, 11, "an entry of the directory is malformed")                                                      \
    X(FRAME_CRC, 12, "a message does not match its checksum")                                                       \
    X(ATTRIBUTE, 13, "an attribute is malformed")                                                                   \
    X(BLOCK, 14, "a compressed block is malformed or does not match its checksum")

enum rota_scan_result {
#define ROTA_SCAN_ENTRY(name, number, text) ROTA_SCAN_##name = (number),
    ROTA_SCAN_RESULTS(ROTA_SCAN_ENTRY)
#undef ROTA_SCAN_ENTRY
};

ROTA_COLD const char *rota_scan_text(int result)
{
    switch (result) {
#define ROTA_SCAN_ENTRY(name, number, text)                                                                         \
    case (number):                                                                                                  \
        return text;
        ROTA_SCAN_RESULTS(ROTA_SCAN_ENTRY)
#undef ROTA_SCAN_ENTRY
    default:
        return "unknown";
    }
}

/* The seed of every salted checksum. */
ROTA_INLINE uint32_t rota_salt_seed(uint64_t salt)
{
    return rota_crc32c_u64(0, salt);
}

ROTA_INLINE uint64_t rota_commit_directory_offset(const rota_commit_header *header)
{
    return sizeof(rota_commit_header) + (uint64_t)header->op_bytes;
}

ROTA_INLINE uint64_t rota_commit_data_offset(const rota_commit_header *header)
{
    return rota_commit_directory_offset(header) + (uint64_t)header->message_count * sizeof(rota_frame);
}

/* --- entries of the directory ----------------------------------------------------------------------------------- */

/* Entry `index` of the directory, copied; index < message_count. */
ROTA_INLINE void rota_frame_load(const uint8_t *commit, const rota_commit_header *header, uint32_t index,
                                 rota_frame *out)
{
    memcpy(out, commit + rota_commit_directory_offset(header) + (uint64_t)index * sizeof *out, sizeof *out);
    rota_compiler_barrier();
}

/* The id of message `index`. */
ROTA_INLINE uint64_t rota_frame_id(const rota_commit_header *header, const rota_frame *frame, uint32_t index)
{
    return (frame->flags & ROTA_FRAME_COPIED) != 0 ? frame->id : header->base_id + index;
}

/* One entry by itself: place is its offset in the commit, data the first offset after the directory. */
ROTA_INLINE bool rota_frame_fits(const rota_frame *frame, uint64_t place, uint64_t data, uint64_t length, bool copies)
{
    bool block = (frame->flags & ROTA_FRAME_BLOCK) != 0;
    uint64_t stored = (uint64_t)frame->attribute_bytes + (block ? 0 : frame->body_length);
    bool identity = copies ? (frame->flags & ROTA_FRAME_COPIED) != 0 && !block && frame->id != 0
                           : (frame->flags & ROTA_FRAME_COPIED) == 0 && (block || frame->id == 0);
    bool raw = !block || (frame->id <= ROTA_BLOCK_BYTES_MAX && frame->id + frame->body_length <= ROTA_BLOCK_BYTES_MAX);
    return (frame->flags & ~15u) == 0 && frame->reserved == 0 && frame->back == place && frame->offset >= data &&
           frame->offset <= length && stored <= length - frame->offset && frame->priority < ROTA_PRIORITY_COUNT &&
           frame->queue < ROTA_QUEUE_COUNT_MAX && identity && raw;
}

/* --- attributes ---------------------------------------------------------------------------------------------- */

typedef struct rota_attribute_cursor {
    const uint8_t *next;
    uint32_t left;
} rota_attribute_cursor;

ROTA_INLINE void rota_attribute_begin(rota_attribute_cursor *cursor, const uint8_t *attributes, uint32_t length)
{
    cursor->next = attributes;
    cursor->left = length;
}

/* The next attribute; false at the end (left == 0) or where the bytes are malformed (left != 0). */
ROTA_INLINE bool rota_attribute_next(rota_attribute_cursor *cursor, unsigned *kind, const uint8_t **bytes,
                                     uint32_t *length)
{
    if (cursor->left < 4)
        return false;
    uint32_t head = rota_load_unaligned_u32(cursor->next); /* kind, reserved, length */
    rota_compiler_barrier();
    uint32_t size = head >> 16;
    if ((head & 0xff00u) != 0 || size > cursor->left - 4)
        return false;
    *kind = head & 0xffu;
    *bytes = cursor->next + 4;
    *length = size;
    cursor->next += 4 + size;
    cursor->left -= 4 + size;
    return true;
}

/* The first attribute of that kind; false when there is none. */
ROTA_INLINE bool rota_attribute_find(const uint8_t *attributes, uint32_t attribute_bytes, unsigned wanted,
                                     const uint8_t **bytes, uint32_t *length)
{
    rota_attribute_cursor cursor;
    unsigned kind;
    rota_attribute_begin(&cursor, attributes, attribute_bytes);
    while (rota_attribute_next(&cursor, &kind, bytes, length)) {
        if (kind == wanted)
            return true;
    }
    return false;
}

/* A number of eight bytes; false when there is none or it has another length. */
ROTA_INLINE bool rota_attribute_u64(const uint8_t *attributes, uint32_t attribute_bytes, unsigned wanted,
                                    uint64_t *value)
{
    const uint8_t *bytes;
    uint32_t length;
    if (!rota_attribute_find(attributes, attribute_bytes, wanted, &bytes, &length) || length != sizeof *value)
        return false;
    *value = rota_load_unaligned_u64(bytes);
    return true;
}

/* --- messages ------------------------------------------------------------------------------------------------ */

/* The sum of one message: 28 bytes of its header, its attributes, its body. */
ROTA_INLINE uint32_t rota_frame_crc(uint32_t salt_crc, const rota_frame *frame, const uint8_t *stored)
{
    uint32_t sum = rota_crc32c(salt_crc, (const uint8_t *)frame + sizeof frame->crc, sizeof *frame - sizeof frame->crc);
    uint64_t body = (frame->flags & ROTA_FRAME_BLOCK) != 0 ? 0 : frame->body_length;
    return rota_crc32c(sum, stored, (size_t)(frame->attribute_bytes + body));
}

/* Where the block of a BLOCK frame starts, from the commit's start; 0: nowhere inside it. */
static __attribute__((unused)) uint32_t rota_frame_block(const uint8_t *commit, const rota_commit_header *header,
                                                         const rota_frame *frame)
{
    const uint8_t *bytes;
    uint32_t length;
    if (!rota_attribute_find(commit + frame->offset, frame->attribute_bytes, ROTA_ATTRIBUTE_BLOCK, &bytes, &length) ||
        length != 4)
        return 0;
    uint32_t block = rota_load_unaligned_u32(bytes);
    bool inside = block >= rota_commit_data_offset(header) && block <= header->length &&
                  header->length - block >= sizeof(rota_block);
    return inside ? block : 0;
}

/* A block: bounds, then checksum. available: bytes from the block's start to the commit's end. */
static __attribute__((unused)) int rota_block_check(const uint8_t *block, uint64_t available, uint32_t salt_crc,
                                                    rota_block *out)
{
    if (available < sizeof *out)
        return ROTA_SCAN_BLOCK;
    memcpy(out, block, sizeof *out);
    rota_compiler_barrier();
    if (out->raw_length > ROTA_BLOCK_BYTES_MAX || out->stored_length > available - sizeof *out || out->algorithm != 1)
        return ROTA_SCAN_BLOCK;
    uint32_t sum = rota_crc32c(salt_crc, (const uint8_t *)out + sizeof out->crc, sizeof *out - sizeof out->crc);
    return rota_crc32c(sum, block + sizeof *out, out->stored_length) == out->crc ? ROTA_SCAN_OK : ROTA_SCAN_BLOCK;
}

/* What the last check of a message found out about its block: the next one mostly lies in the same. */
typedef struct rota_block_memory {
    uint32_t offset; /* 0: none */
    uint32_t raw_length;
    int result;
} rota_block_memory;

/* One message of a checked commit: checksum, attributes, block. memory: zeroed before the first message. */
static __attribute__((unused)) int rota_frame_check(const uint8_t *commit, const rota_commit_header *header,
                                                    const rota_frame *frame, uint32_t salt_crc,
                                                    rota_block_memory *memory)
{
    if (rota_frame_crc(salt_crc, frame, commit + frame->offset) != frame->crc)
        return ROTA_SCAN_FRAME_CRC;
    if (frame->attribute_bytes != 0) {
        rota_attribute_cursor cursor;
        unsigned kind;
        const uint8_t *bytes;
        uint32_t length;
        rota_attribute_begin(&cursor, commit + frame->offset, frame->attribute_bytes);
        while (rota_attribute_next(&cursor, &kind, &bytes, &length)) {
        }
        if (cursor.left != 0)
            return ROTA_SCAN_ATTRIBUTE;
    }
    if ((frame->flags & ROTA_FRAME_BLOCK) == 0)
        return ROTA_SCAN_OK;
    uint32_t block = rota_frame_block(commit, header, frame);
    if (block == 0)
        return ROTA_SCAN_BLOCK;
    if (memory->offset != block) {
        rota_block found;
        memory->offset = block;
        memory->result = rota_block_check(commit + block, header->length - block, salt_crc, &found);
        memory->raw_length = found.raw_length;
    }
    if (memory->result != ROTA_SCAN_OK)
        return memory->result;
    return frame->id + frame->body_length <= memory->raw_length ? ROTA_SCAN_OK : ROTA_SCAN_BLOCK;
}

#endif
