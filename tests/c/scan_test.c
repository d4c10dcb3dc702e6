/* Commits, operations, messages and segment headers: what is valid passes, and nothing else does or leads outside. */
#include "check.h"

#include <string.h>

#include "rota/scan.h"

enum { SALT = 0x5a17, LENGTH = 512, OPERATIONS = 160, MESSAGES = 3 };

static uint32_t seed;
static uint64_t state = 88172645463325252u;

static uint64_t drawn(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static rota_commit_header *head(uint8_t *commit) { return (rota_commit_header *)commit; }

static rota_frame *frame_at(uint8_t *commit, int index)
{
    return (rota_frame *)(commit + sizeof(rota_commit_header) + OPERATIONS) + index;
}

static void sum_block(uint8_t *commit, uint32_t offset)
{
    rota_block *block = (rota_block *)(commit + offset);
    if (block->stored_length > LENGTH - offset - sizeof *block)
        return;
    block->crc = rota_crc32c(rota_crc32c(seed, (uint8_t *)block + 4, 12), block + 1, block->stored_length);
}

/* Every checksum again, so that a changed field is judged by itself. */
static void sum(uint8_t *commit)
{
    rota_commit_header *header = head(commit);
    for (int index = 0; index < MESSAGES; index++) {
        rota_frame *frame = frame_at(commit, index);
        uint64_t stored = (uint64_t)frame->attribute_bytes + (frame->flags & ROTA_FRAME_BLOCK ? 0 : frame->body_length);
        if (frame->offset <= LENGTH && stored <= LENGTH - frame->offset)
            frame->crc = rota_frame_crc(seed, frame, commit + frame->offset);
    }
    if (rota_commit_data_offset(header) <= LENGTH)
        header->meta_crc = rota_crc32c(seed, commit + 96, (size_t)(rota_commit_data_offset(header) - 96));
    header->header_crc = rota_commit_header_crc(seed, header);
}

static void add(uint8_t **to, rota_op op, const void *extra)
{
    memcpy(*to, &op, sizeof op);
    memcpy(*to + sizeof op, extra, op.extra_bytes);
    *to += sizeof op + rota_pad(op.extra_bytes);
}

/* A PUT of three, one of them in a block, an ACK, a list of acks and a tag. */
static void build(uint8_t *commit)
{
    static const uint64_t ids[2] = {7, 9};
    static const uint8_t tag[11] = {1, 0, 2, 0, 0, 0, 0, 0, 'n', 't', 't'};
    memset(commit, 0, LENGTH);
    *head(commit) = (rota_commit_header){.magic = ROTA_COMMIT_MAGIC, .version = 1, .lsn = 8192, .length = LENGTH,
                                         .op_bytes = OPERATIONS, .message_count = MESSAGES, .op_count = 4 - 1,
                                         .epoch = 3, .durable_lsn = 4096, .base_id = 100, .previous_chain = 5};
    uint8_t *next = commit + sizeof(rota_commit_header);
    add(&next, (rota_op){.kind = ROTA_OP_PUT, .queue = 1, .detail = 2, .a = MESSAGES}, "");
    add(&next, (rota_op){.kind = ROTA_OP_ACK_LIST, .queue = 1, .a = 2, .extra_bytes = 16}, ids);
    add(&next, (rota_op){.kind = ROTA_OP_TAG, .queue = 1, .detail = ROTA_TAG_OWN_PUT, .id = 1, .extra_bytes = 11}, tag);
    CHECK_EQUAL(next - commit, 96 + OPERATIONS);
    uint32_t data = 96 + OPERATIONS + 32 * MESSAGES;
    for (int index = 0; index < MESSAGES; index++)
        *frame_at(commit, index) = (rota_frame){.back = 96 + OPERATIONS + 32 * (uint32_t)index, .queue = 1,
                                                .priority = 2, .offset = data + 16 * (uint32_t)index};
    memcpy(commit + data, "\x03\0\x02\0hhbody", 10);
    frame_at(commit, 0)->attribute_bytes = 6;
    frame_at(commit, 0)->body_length = 4;
    frame_at(commit, 1)->body_length = 16;
    memcpy(commit + data + 32, "\x0d\0\x04\0", 4);
    memcpy(commit + data + 36, &(uint32_t){data + 48}, 4);
    *frame_at(commit, 2) = (rota_frame){.back = 96 + OPERATIONS + 64, .queue = 1, .priority = 2, .offset = data + 32,
                                        .attribute_bytes = 8, .flags = ROTA_FRAME_BLOCK, .id = 3, .body_length = 5};
    *(rota_block *)(commit + data + 48) = (rota_block){.raw_length = 8, .stored_length = 20, .algorithm = 1};
    sum_block(commit, data + 48);
    sum(commit);
}

static int judged(const uint8_t *commit, uint64_t available)
{
    rota_commit_header header;
    uint32_t index;
    int result = rota_commit_check(commit, available, seed, 8192, &header);
    if (result == ROTA_SCAN_OK)
        result = rota_commit_meta_check(commit, &header, seed);
    return result != ROTA_SCAN_OK ? result : rota_commit_bodies_check(commit, &header, seed, &index);
}

static void test_valid(void)
{
    uint8_t commit[LENGTH];
    rota_commit_header header;
    rota_op_cursor cursor;
    rota_op op;
    const uint8_t *extra, *bytes;
    uint32_t length;
    build(commit);
    CHECK_EQUAL(judged(commit, LENGTH), ROTA_SCAN_OK);
    CHECK_EQUAL(rota_commit_check(commit, LENGTH, seed, 0, &header), ROTA_SCAN_OK);
    CHECK_EQUAL(rota_commit_check(commit, LENGTH, seed, 8224, &header), ROTA_SCAN_LSN);
    CHECK_EQUAL(rota_commit_check(commit, LENGTH, seed + 1, 8192, &header), ROTA_SCAN_HEADER_CRC);
    CHECK_EQUAL(rota_commit_check(commit, LENGTH, seed, 8192, &header), ROTA_SCAN_OK);
    static const int kinds[] = {ROTA_OP_PUT, ROTA_OP_ACK_LIST, ROTA_OP_TAG};
    rota_op_begin(&cursor, commit, &header);
    for (int at = 0; at < 3; at++)
        CHECK(rota_op_next(&cursor, &op, &extra) && op.kind == kinds[at]);
    CHECK(!rota_op_next(&cursor, &op, &extra));
    rota_frame *frame = frame_at(commit, 0);
    CHECK(rota_attribute_find(commit + frame->offset, 6, ROTA_ATTRIBUTE_HEADERS, &bytes, &length));
    CHECK(length == 2 && memcmp(bytes, "hh", 2) == 0);
    CHECK(!rota_attribute_find(commit + frame->offset, 6, ROTA_ATTRIBUTE_DUE, &bytes, &length));
    CHECK(!rota_attribute_find(commit + frame->offset, 5, ROTA_ATTRIBUTE_HEADERS, &bytes, &length));
    CHECK_EQUAL(rota_frame_id(&header, frame_at(commit, 2), 2), 102);
}

static void test_every_bit(void)
{
    uint8_t commit[LENGTH];
    build(commit);
    uint32_t data = 96 + OPERATIONS + 32 * MESSAGES;
    for (uint32_t bit = 0; bit < LENGTH * 8; bit++) {
        uint32_t at = bit / 8;
        bool padding = (at >= data + 10 && at < data + 16) || (at >= data + 40 && at < data + 48) || at >= data + 84;
        commit[at] ^= (uint8_t)(1u << bit % 8);
        CHECK_EQUAL(judged(commit, LENGTH) == ROTA_SCAN_OK, padding);
        commit[at] ^= (uint8_t)(1u << bit % 8);
    }
}

static void test_every_truncation(void)
{
    uint8_t commit[LENGTH];
    build(commit);
    for (uint64_t available = 0; available < LENGTH; available++) {
        uint8_t *part = malloc(available + 1);
        memcpy(part, commit, available);
        int result = judged(part, available);
        CHECK_EQUAL(result, available < 96 ? ROTA_SCAN_SHORT : ROTA_SCAN_LENGTH);
        free(part);
    }
}

/* Numbers that an attacker would choose, with checksums that match: no access outside, whatever the verdict. */
static void test_hostile_numbers(void)
{
    static const uint64_t values[] = {0, 1, 31, 32, 95, 96, 97, LENGTH - 1, LENGTH, LENGTH + 1, 65535, 65536,
                                      INT32_MAX, UINT32_MAX - 31, UINT32_MAX, INT64_MAX, UINT64_MAX - 7, UINT64_MAX};
    uint8_t *commit = malloc(LENGTH);
    for (int round = 0; round < 400000; round++) {
        build(commit);
        for (int change = 0; change < 1 + round % 3; change++) {
            uint64_t value = drawn() % 4 ? values[drawn() % 18] : drawn();
            size_t size = (size_t)1 << drawn() % 4;
            size_t at = 4 + drawn() % (LENGTH - 12) / size * size;
            memcpy(commit + at, &value, size);
        }
        sum(commit);
        if (round % 2)
            sum_block(commit, 96 + OPERATIONS + 32 * MESSAGES + 48);
        judged(commit, LENGTH);
    }
    free(commit);
}

static void test_chain(void)
{
    uint8_t commit[LENGTH];
    build(commit);
    rota_commit_header header = *head(commit);
    uint64_t chain = rota_commit_chain(SALT, &header);
    CHECK(chain != 0 && chain == rota_commit_chain(SALT, &header) && chain != rota_commit_chain(SALT + 1, &header));
    header.sub_epoch++;
    CHECK(rota_commit_chain(SALT, &header) != chain);
    header = *head(commit);
    header.previous_chain++;
    CHECK(rota_commit_chain(SALT, &header) != chain);
    header = *head(commit);
    header.header_crc ^= 1;
    CHECK(rota_commit_chain(SALT, &header) != chain);
}

static void test_marks(void)
{
    rota_commit_header mark = {.magic = ROTA_COMMIT_MAGIC, .version = 1, .lsn = 8192, .length = 96, .epoch = 1,
                               .flags = ROTA_COMMIT_MARK | ROTA_COMMIT_CLOSE}, out;
    mark.header_crc = rota_commit_header_crc(seed, &mark);
    CHECK_EQUAL(rota_commit_check((uint8_t *)&mark, 96, seed, 8192, &out), ROTA_SCAN_OK);
    mark.flags = ROTA_COMMIT_CLOSE;
    mark.header_crc = rota_commit_header_crc(seed, &mark);
    CHECK_EQUAL(rota_commit_check((uint8_t *)&mark, 96, seed, 8192, &out), ROTA_SCAN_FIELD);
    mark.version = 2;
    mark.header_crc = rota_commit_header_crc(seed, &mark);
    CHECK_EQUAL(rota_commit_check((uint8_t *)&mark, 96, seed, 8192, &out), ROTA_SCAN_VERSION);
    memset(&mark, 0, sizeof mark);
    CHECK_EQUAL(rota_commit_check((uint8_t *)&mark, 96, seed, 8192, &out), ROTA_SCAN_EMPTY);
}

static void test_segment_headers(void)
{
    static const uint8_t uuid[16] = "sixteen bytes ok", other[16] = "another uuid ok.";
    rota_segment_header header = {.magic = ROTA_SEGMENT_MAGIC, .version = 1, .byte_order = ROTA_BYTE_ORDER,
                                  .first_lsn = 65536 + 4096, .epoch = 1, .segment_size = 65536};
    memcpy(header.uuid, uuid, 16);
    header.crc = rota_segment_header_crc(seed, &header);
    CHECK_EQUAL(rota_segment_header_check(&header, seed, uuid, 65536), ROTA_SCAN_OK);
    CHECK_EQUAL(rota_segment_header_check(&header, seed, other, 65536), ROTA_SCAN_FIELD);
    CHECK_EQUAL(rota_segment_header_check(&header, seed, uuid, 131072), ROTA_SCAN_FIELD);
    for (uint32_t bit = 0; bit < sizeof header * 8; bit++) {
        ((uint8_t *)&header)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(rota_segment_header_check(&header, seed, uuid, 65536) != ROTA_SCAN_OK);
        ((uint8_t *)&header)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    memset(&header, 0, sizeof header);
    CHECK_EQUAL(rota_segment_header_check(&header, seed, uuid, 65536), ROTA_SCAN_EMPTY);
}

int main(void)
{
    seed = rota_salt_seed(SALT);
    test_valid();
    test_every_bit();
    test_every_truncation();
    test_hostile_numbers();
    test_chain();
    test_marks();
    test_segment_headers();
    return 0;
}
