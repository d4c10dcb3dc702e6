/* What a commit must look like: checks and walks over bytes that nobody has vouched for.
 *
 * What holds:
 *  1. Nothing outside [commit, commit + available) is read, whatever the bytes say. Sums are made in 64 bits.
 *  2. A structure is copied to private memory once, the copy is checked, and only the copy is used afterwards: the
 *     bytes may lie in a mapping that someone else changes meanwhile.
 *  3. A check returns ROTA_SCAN_OK or the first reason why not; it never fails otherwise and never allocates.
 *  4. After rota_commit_check and rota_commit_meta_check the cursors need no check of their own: each operation with
 *     its extra, each frame header, its attributes and its body lie inside the commit, kinds and counts are in range,
 *     and PUT and COPY cover the directory once, in its order.
 *  5. No system call, no state: plain C, Cython and a fuzzer use the same functions. Accesses may fault (a truncated
 *     file): whoever scans a mapping does it under the guard or scans a private copy.
 */
#ifndef ROTA_SCAN_H
#define ROTA_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "rota/atomics.h"
#include "rota/crc32c.h"
#include "rota/format.h"
#include "rota/frame.h"
#include "rota/term.h"

/* --- header and chain ------------------------------------------------------------------------------------------- */

ROTA_INLINE uint32_t rota_commit_header_crc(uint32_t salt_crc, const rota_commit_header *header)
{
    return rota_crc32c(salt_crc, header, offsetof(rota_commit_header, header_crc));
}

/* The chain id: what the next commit names as its predecessor. Two written copies never share it, since it mixes the
 * salt, the predecessor's chain, both epochs and both sums. Never 0: that is the predecessor of the first commit. */
ROTA_INLINE uint64_t rota_commit_chain(uint64_t salt, const rota_commit_header *header)
{
    uint64_t epochs = (uint64_t)header->epoch << 32 | header->sub_epoch;
    uint64_t sums = (uint64_t)header->header_crc << 32 | header->meta_crc;
    uint64_t chain = rota_mix64(rota_mix64(salt ^ header->previous_chain ^ epochs) ^ sums);
    return chain != 0 ? chain : 1;
}

static __attribute__((unused)) int rota_commit_fields_check(const rota_commit_header *header)
{
    if ((header->flags & ~(ROTA_COMMIT_MARK | ROTA_COMMIT_COPIES | ROTA_COMMIT_CLOSE)) != 0 || header->epoch == 0)
        return ROTA_SCAN_FIELD;
    if (header->durable_lsn > header->lsn || header->op_bytes % ROTA_CELL != 0)
        return ROTA_SCAN_FIELD;
    if ((uint64_t)header->op_count * sizeof(rota_op) > header->op_bytes)
        return ROTA_SCAN_FIELD;
    bool mark = (header->flags & ROTA_COMMIT_MARK) != 0;
    if ((header->flags & ROTA_COMMIT_CLOSE) != 0 && !mark)
        return ROTA_SCAN_FIELD;
    if (mark != (header->op_count == 0) || (mark && (header->message_count != 0 || header->op_bytes != 0)))
        return ROTA_SCAN_FIELD;
    if (header->base_id > UINT64_MAX - header->message_count)
        return ROTA_SCAN_FIELD;
    if (header->message_count != 0 && header->base_id == 0 && (header->flags & ROTA_COMMIT_COPIES) == 0)
        return ROTA_SCAN_FIELD;
    if (rota_commit_data_offset(header) > header->length)
        return ROTA_SCAN_LENGTH;
    return ROTA_SCAN_OK;
}

/* Copy the header at `commit` to *out and check it. available: bytes up to the end of the segment. lsn: the position
 * that it must name, 0 for any. Nothing in *out may be trusted unless the result is OK. */
static __attribute__((unused)) int rota_commit_check(const uint8_t *commit, uint64_t available, uint32_t salt_crc,
                                                     uint64_t lsn, rota_commit_header *out)
{
    if (available < sizeof *out) {
        memset(out, 0, sizeof *out);
        return ROTA_SCAN_SHORT;
    }
    memcpy(out, commit, sizeof *out);
    rota_compiler_barrier(); /* from here on the copy */
    if (out->magic != ROTA_COMMIT_MAGIC)
        return out->magic == 0 && out->length == 0 && out->lsn == 0 ? ROTA_SCAN_EMPTY : ROTA_SCAN_MAGIC;
    if (out->header_crc != rota_commit_header_crc(salt_crc, out))
        return ROTA_SCAN_HEADER_CRC;
    if (out->version != ROTA_FORMAT_VERSION)
        return ROTA_SCAN_VERSION;
    if (out->lsn % ROTA_CELL != 0 || out->lsn < ROTA_SEGMENT_HEADER_SIZE || (lsn != 0 && out->lsn != lsn))
        return ROTA_SCAN_LSN;
    if (out->length < sizeof *out || out->length % ROTA_CELL != 0 || out->length > available)
        return ROTA_SCAN_LENGTH;
    return rota_commit_fields_check(out);
}

/* --- operations ---------------------------------------------------------------------------------------------- */

typedef struct rota_op_cursor {
    const uint8_t *next;
    uint64_t left;  /* bytes */
    uint32_t count; /* operations not yet seen */
} rota_op_cursor;

ROTA_INLINE void rota_op_begin(rota_op_cursor *cursor, const uint8_t *commit, const rota_commit_header *header)
{
    cursor->next = commit + sizeof *header;
    cursor->left = header->op_bytes;
    cursor->count = header->op_count;
}

/* The next operation, copied to *op, and where its extra lies; false at the end, or where it would not fit. */
ROTA_INLINE bool rota_op_next(rota_op_cursor *cursor, rota_op *op, const uint8_t **extra)
{
    if (cursor->count == 0 || cursor->left < sizeof *op)
        return false;
    memcpy(op, cursor->next, sizeof *op);
    rota_compiler_barrier();
    uint64_t size = sizeof *op + rota_pad(op->extra_bytes);
    if (size > cursor->left)
        return false;
    *extra = cursor->next + sizeof *op;
    cursor->next += size;
    cursor->left -= size;
    cursor->count--;
    return true;
}

static __attribute__((unused)) int rota_op_tag_check(const rota_op *op, const uint8_t *extra)
{
    rota_tag tag;
    if (op->extra_bytes < sizeof tag)
        return ROTA_SCAN_OPERATION;
    memcpy(&tag, extra, sizeof tag);
    rota_compiler_barrier();
    bool lengths = tag.name_length != 0 && tag.name_length <= ROTA_NAME_LENGTH_MAX &&
                   tag.tag_length <= ROTA_TAG_LENGTH_MAX && tag.reserved == 0 && tag.home <= ROTA_QUEUE_COUNT_MAX &&
                   op->extra_bytes == sizeof tag + (uint64_t)tag.name_length + tag.tag_length;
    return lengths ? ROTA_SCAN_OK : ROTA_SCAN_OPERATION;
}

static __attribute__((unused)) int rota_op_queue_check(const rota_op *op, const uint8_t *extra)
{
    rota_queue_options options;
    if (op->detail > ROTA_QUEUE_DESTROY)
        return ROTA_SCAN_OPERATION;
    if (op->extra_bytes == 0)
        return op->detail >= ROTA_QUEUE_STOP ? ROTA_SCAN_OK : ROTA_SCAN_OPERATION;
    if (op->extra_bytes < sizeof options)
        return ROTA_SCAN_OPERATION;
    memcpy(&options, extra, sizeof options);
    rota_compiler_barrier();
    bool fields = options.name_length <= ROTA_NAME_LENGTH_MAX && options.order <= ROTA_ORDER_HIGHEST &&
                  options.is_volatile <= 1 && options.is_error_queue <= 1 && options.count_handouts <= 1 &&
                  options.reserved == 0 &&
                  op->extra_bytes == sizeof options + (uint64_t)options.name_length + options.index_bytes &&
                  rota_index_mask(extra + sizeof options + options.name_length, options.index_bytes, options.order) >= 0;
    bool named = options.name_length != 0 || op->detail != ROTA_QUEUE_CREATE;
    bool target = options.error_queue < ROTA_QUEUE_COUNT_MAX || options.error_queue == ROTA_QUEUE_NONE;
    return fields && named && target ? ROTA_SCAN_OK : ROTA_SCAN_OPERATION;
}

/* One operation by itself; *covered counts the entries of the directory that PUT and COPY have named so far. */
static __attribute__((unused)) int rota_op_check(const rota_op *op, const uint8_t *extra, uint32_t message_count,
                                                 uint64_t *covered)
{
    bool good = op->queue < ROTA_QUEUE_COUNT_MAX;
    switch (op->kind) {
    case ROTA_OP_PUT:
    case ROTA_OP_COPY:
        good = (good || op->kind == ROTA_OP_COPY) && op->extra_bytes == 0 && op->detail < ROTA_PRIORITY_COUNT &&
               op->id == *covered && op->a != 0 && op->a <= message_count - *covered;
        *covered += good ? op->a : 0;
        break;
    case ROTA_OP_ACK:
        good = good && op->extra_bytes == 0 && op->detail < ROTA_PRIORITY_COUNT && op->id != 0 && op->a >= op->id &&
               op->a != UINT64_MAX && op->b <= op->a - op->id + 1;
        break;
    case ROTA_OP_ACK_LIST:
    case ROTA_OP_EXPIRE:
        good = good && op->a != 0 && op->a <= UINT32_MAX / 8 && op->extra_bytes == op->a * 8;
        break;
    case ROTA_OP_KILL:
        good = good && op->extra_bytes == 0 && op->id != 0;
        break;
    case ROTA_OP_MOVE:
        good = good && op->extra_bytes % 8 == 0 && op->extra_bytes <= ROTA_TERM_COUNT_MAX * 8 + 8 && op->id != 0 && op->a < ROTA_QUEUE_COUNT_MAX &&
               op->detail <= ROTA_MOVE_REDRIVE;
        break;
    case ROTA_OP_RETURN:
        good = good && op->extra_bytes == 0 && op->id != 0 && op->detail <= 3;
        break;
    case ROTA_OP_TAG:
        good = good && rota_op_tag_check(op, extra) == ROTA_SCAN_OK &&
               ((op->detail & 0x80) == 0 || op->id < message_count);
        break;
    case ROTA_OP_REGISTER:
    case ROTA_OP_DEREGISTER:
        good = good && rota_op_tag_check(op, extra) == ROTA_SCAN_OK;
        break;
    case ROTA_OP_QUEUE:
        good = good && rota_op_queue_check(op, extra) == ROTA_SCAN_OK;
        break;
    case ROTA_OP_FENCE:
        good = good && op->extra_bytes == 0;
        break;
    case ROTA_OP_DEDUP:
        good = good && (op->extra_bytes == 0 || op->extra_bytes == 8) &&
               (op->detail == ROTA_DEDUP_ENTER || op->detail == ROTA_DEDUP_FORGET ||
                (op->detail == ROTA_DEDUP_OWN_PUT && op->id < message_count));
        break;
    case ROTA_OP_SAGA:
    case ROTA_OP_CHECKPOINT: /* what their extras hold is checked by whoever reads them */
        good = true;
        break;
    default:
        good = false;
    }
    return good ? ROTA_SCAN_OK : ROTA_SCAN_OPERATION;
}

static __attribute__((unused)) int rota_commit_operations_check(const uint8_t *commit, const rota_commit_header *header)
{
    rota_op_cursor cursor;
    rota_op op;
    const uint8_t *extra;
    uint64_t covered = 0;
    rota_op_begin(&cursor, commit, header);
    while (rota_op_next(&cursor, &op, &extra)) {
        int result = rota_op_check(&op, extra, header->message_count, &covered);
        if (result != ROTA_SCAN_OK)
            return result;
    }
    return cursor.count == 0 && cursor.left == 0 && covered == header->message_count ? ROTA_SCAN_OK
                                                                                       : ROTA_SCAN_OPERATION;
}

/* --- directory ----------------------------------------------------------------------------------------------- */

static __attribute__((unused)) int rota_commit_directory_check(const uint8_t *commit, const rota_commit_header *header)
{
    uint64_t data = rota_commit_data_offset(header), place = rota_commit_directory_offset(header);
    bool copies = (header->flags & ROTA_COMMIT_COPIES) != 0;
    rota_frame frame;
    for (uint32_t index = 0; index < header->message_count; index++, place += sizeof frame) {
        rota_frame_load(commit, header, index, &frame);
        if (!rota_frame_fits(&frame, place, data, header->length, copies))
            return ROTA_SCAN_DIRECTORY;
    }
    return ROTA_SCAN_OK;
}

/* Operations and directory without the checksum: nothing in them leads out of the commit. */
ROTA_INLINE int rota_commit_structure_check(const uint8_t *commit, const rota_commit_header *header)
{
    int result = rota_commit_operations_check(commit, header);
    return result != ROTA_SCAN_OK ? result : rota_commit_directory_check(commit, header);
}

/* Operations and directory: checksum first, then each by itself. header: the copy that rota_commit_check accepted. */
static __attribute__((unused)) int rota_commit_meta_check(const uint8_t *commit, const rota_commit_header *header,
                                                          uint32_t salt_crc)
{
    uint64_t meta = rota_commit_data_offset(header) - sizeof *header;
    if (rota_crc32c(salt_crc, commit + sizeof *header, (size_t)meta) != header->meta_crc)
        return ROTA_SCAN_META_CRC;
    return rota_commit_structure_check(commit, header);
}

/* All messages of a checked commit; *index is the first bad one (or message_count). */
static __attribute__((unused)) int rota_commit_bodies_check(const uint8_t *commit, const rota_commit_header *header,
                                                            uint32_t salt_crc, uint32_t *index)
{
    rota_block_memory memory = {0, 0, 0};
    rota_frame frame;
    for (*index = 0; *index < header->message_count; (*index)++) {
        rota_frame_load(commit, header, *index, &frame);
        if (!rota_frame_fits(&frame, frame.back, rota_commit_data_offset(header), header->length,
                             (header->flags & ROTA_COMMIT_COPIES) != 0))
            return ROTA_SCAN_DIRECTORY;
        int result = rota_frame_check(commit, header, &frame, salt_crc, &memory);
        if (result != ROTA_SCAN_OK)
            return result;
    }
    return ROTA_SCAN_OK;
}

/* --- segments ------------------------------------------------------------------------------------------------ */

ROTA_INLINE uint32_t rota_segment_header_crc(uint32_t salt_crc, const rota_segment_header *header)
{
    rota_segment_header copy = *header;
    copy.crc = 0;
    return rota_crc32c(salt_crc, &copy, sizeof copy);
}

/* The header of a segment file, copied before; OK, EMPTY (never written), or why not. */
static __attribute__((unused)) int rota_segment_header_check(const rota_segment_header *header, uint32_t salt_crc,
                                                             const uint8_t uuid[16], uint64_t segment_size)
{
    if (header->magic != ROTA_SEGMENT_MAGIC)
        return header->magic == 0 && header->crc == 0 && header->first_lsn == 0 ? ROTA_SCAN_EMPTY : ROTA_SCAN_MAGIC;
    if (header->crc != rota_segment_header_crc(salt_crc, header))
        return ROTA_SCAN_HEADER_CRC;
    if (header->version != ROTA_FORMAT_VERSION)
        return ROTA_SCAN_VERSION;
    bool fields = header->byte_order == ROTA_BYTE_ORDER && memcmp(header->uuid, uuid, 16) == 0 &&
                  header->segment_size == segment_size && header->file_number < ROTA_SEGMENT_COUNT_MAX &&
                  (header->reserved[0] | header->reserved[1] | header->reserved[2]) == 0;
    bool place = header->first_lsn == 0 || header->first_lsn % segment_size == ROTA_SEGMENT_HEADER_SIZE;
    return fields && place ? ROTA_SCAN_OK : ROTA_SCAN_FIELD;
}

#endif
