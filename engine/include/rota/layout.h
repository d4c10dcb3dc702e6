/* Where each field of each stored structure lies, as numbers that a test can read.
 *
 * What holds:
 *  1. Every field of every structure of format.h stands here once, in its order; no field is left out and none
 *     overlaps, which tests/unit/test_format_tables.py checks by adding the sizes up.
 *  2. docs/format.md has the same tables for people; the same test compares the two.
 */
#ifndef ROTA_LAYOUT_H
#define ROTA_LAYOUT_H

#include <stddef.h>

#include "rota/format.h"

typedef struct rota_layout_field {
    const char *structure;
    const char *field;
    size_t offset;
    size_t size;
    size_t structure_size;
} rota_layout_field;

#define ROTA_LAYOUT_FIELD(structure, field)                                                                         \
    {#structure, #field, offsetof(structure, field), sizeof(((structure *)0)->field), sizeof(structure)},

static const rota_layout_field rota_layout[] = {
    ROTA_LAYOUT_FIELD(rota_epoch, start_lsn)
    ROTA_LAYOUT_FIELD(rota_epoch, epoch)
    ROTA_LAYOUT_FIELD(rota_epoch, reserved)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, magic)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, version)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, byte_order)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, crc)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, feature_bits)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, sequence)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, uuid)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, salt)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, segment_size)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, capacity)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, sync_unit)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, epoch_count)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, checkpoint_begin)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, checkpoint_block)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, checkpoint_end)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, checkpoint_chain)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, next_id_floor)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, created_at_ns)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, compression)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, reached_turns)
    ROTA_LAYOUT_FIELD(rota_manifest_sector, epochs)
    ROTA_LAYOUT_FIELD(rota_segment_header, magic)
    ROTA_LAYOUT_FIELD(rota_segment_header, version)
    ROTA_LAYOUT_FIELD(rota_segment_header, byte_order)
    ROTA_LAYOUT_FIELD(rota_segment_header, crc)
    ROTA_LAYOUT_FIELD(rota_segment_header, file_number)
    ROTA_LAYOUT_FIELD(rota_segment_header, uuid)
    ROTA_LAYOUT_FIELD(rota_segment_header, first_lsn)
    ROTA_LAYOUT_FIELD(rota_segment_header, epoch)
    ROTA_LAYOUT_FIELD(rota_segment_header, sub_epoch)
    ROTA_LAYOUT_FIELD(rota_segment_header, generation)
    ROTA_LAYOUT_FIELD(rota_segment_header, segment_size)
    ROTA_LAYOUT_FIELD(rota_segment_header, created_at_ns)
    ROTA_LAYOUT_FIELD(rota_segment_header, reserved)
    ROTA_LAYOUT_FIELD(rota_failed_mark, magic)
    ROTA_LAYOUT_FIELD(rota_failed_mark, crc)
    ROTA_LAYOUT_FIELD(rota_failed_mark, boot_id)
    ROTA_LAYOUT_FIELD(rota_failed_mark, time_ns)
    ROTA_LAYOUT_FIELD(rota_failed_mark, durable_lsn)
    ROTA_LAYOUT_FIELD(rota_failed_mark, process_id)
    ROTA_LAYOUT_FIELD(rota_failed_mark, os_errno)
    ROTA_LAYOUT_FIELD(rota_commit_header, magic)
    ROTA_LAYOUT_FIELD(rota_commit_header, version)
    ROTA_LAYOUT_FIELD(rota_commit_header, flags)
    ROTA_LAYOUT_FIELD(rota_commit_header, lsn)
    ROTA_LAYOUT_FIELD(rota_commit_header, length)
    ROTA_LAYOUT_FIELD(rota_commit_header, op_bytes)
    ROTA_LAYOUT_FIELD(rota_commit_header, message_count)
    ROTA_LAYOUT_FIELD(rota_commit_header, op_count)
    ROTA_LAYOUT_FIELD(rota_commit_header, epoch)
    ROTA_LAYOUT_FIELD(rota_commit_header, sub_epoch)
    ROTA_LAYOUT_FIELD(rota_commit_header, previous_chain)
    ROTA_LAYOUT_FIELD(rota_commit_header, durable_lsn)
    ROTA_LAYOUT_FIELD(rota_commit_header, base_id)
    ROTA_LAYOUT_FIELD(rota_commit_header, time_ns)
    ROTA_LAYOUT_FIELD(rota_commit_header, token_generation)
    ROTA_LAYOUT_FIELD(rota_commit_header, token_number)
    ROTA_LAYOUT_FIELD(rota_commit_header, meta_crc)
    ROTA_LAYOUT_FIELD(rota_commit_header, header_crc)
    ROTA_LAYOUT_FIELD(rota_op, kind)
    ROTA_LAYOUT_FIELD(rota_op, detail)
    ROTA_LAYOUT_FIELD(rota_op, queue)
    ROTA_LAYOUT_FIELD(rota_op, extra_bytes)
    ROTA_LAYOUT_FIELD(rota_op, id)
    ROTA_LAYOUT_FIELD(rota_op, a)
    ROTA_LAYOUT_FIELD(rota_op, b)
    ROTA_LAYOUT_FIELD(rota_queue_options, max_messages)
    ROTA_LAYOUT_FIELD(rota_queue_options, lease_ns)
    ROTA_LAYOUT_FIELD(rota_queue_options, max_attempts)
    ROTA_LAYOUT_FIELD(rota_queue_options, error_queue)
    ROTA_LAYOUT_FIELD(rota_queue_options, name_length)
    ROTA_LAYOUT_FIELD(rota_queue_options, order)
    ROTA_LAYOUT_FIELD(rota_queue_options, is_volatile)
    ROTA_LAYOUT_FIELD(rota_queue_options, is_error_queue)
    ROTA_LAYOUT_FIELD(rota_queue_options, count_handouts)
    ROTA_LAYOUT_FIELD(rota_queue_options, index_bytes)
    ROTA_LAYOUT_FIELD(rota_queue_options, reserved)
    ROTA_LAYOUT_FIELD(rota_tag, name_length)
    ROTA_LAYOUT_FIELD(rota_tag, tag_length)
    ROTA_LAYOUT_FIELD(rota_tag, home)
    ROTA_LAYOUT_FIELD(rota_tag, reserved)
    ROTA_LAYOUT_FIELD(rota_frame, crc)
    ROTA_LAYOUT_FIELD(rota_frame, body_length)
    ROTA_LAYOUT_FIELD(rota_frame, offset)
    ROTA_LAYOUT_FIELD(rota_frame, back)
    ROTA_LAYOUT_FIELD(rota_frame, id)
    ROTA_LAYOUT_FIELD(rota_frame, attribute_bytes)
    ROTA_LAYOUT_FIELD(rota_frame, queue)
    ROTA_LAYOUT_FIELD(rota_frame, priority)
    ROTA_LAYOUT_FIELD(rota_frame, flags)
    ROTA_LAYOUT_FIELD(rota_frame, reserved)
    ROTA_LAYOUT_FIELD(rota_block, crc)
    ROTA_LAYOUT_FIELD(rota_block, raw_length)
    ROTA_LAYOUT_FIELD(rota_block, stored_length)
    ROTA_LAYOUT_FIELD(rota_block, algorithm)
    ROTA_LAYOUT_FIELD(rota_reply_to, created_lsn)
    ROTA_LAYOUT_FIELD(rota_reply_to, queue)
    ROTA_LAYOUT_FIELD(rota_reply_to, reserved)
};

#undef ROTA_LAYOUT_FIELD
#define ROTA_LAYOUT_COUNT (sizeof rota_layout / sizeof rota_layout[0])

#endif
