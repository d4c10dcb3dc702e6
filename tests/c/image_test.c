/* A checkpoint's stream and LZ4 blocks: numbers come back, and no byte makes a reader leave its buffer. */
#include "check.h"

#include <string.h>

#include "rota/image.h"
#include "rota/lz4.h"

static void test_numbers(void)
{
    uint8_t bytes[ROTA_IMAGE_NUMBER_BYTES];
    rota_image_cursor cursor;
    for (int shift = 0; shift < 64; shift++) {
        for (int step = -1; step <= 1; step++) {
            uint64_t value = (1ull << shift) + (uint64_t)step;
            uint8_t *end = rota_number_put(bytes, value);
            CHECK(end > bytes && end <= bytes + sizeof bytes);
            rota_image_begin(&cursor, bytes, (uint64_t)(end - bytes));
            CHECK(rota_image_number(&cursor) == value && cursor.left == 0 && !cursor.failed);
            rota_image_begin(&cursor, bytes, (uint64_t)(end - bytes) - 1);
            CHECK(rota_image_number(&cursor) == 0 && cursor.failed);
            CHECK(rota_unzigzag(rota_zigzag((int64_t)value)) == (int64_t)value);
            CHECK(rota_unzigzag(rota_zigzag((int64_t)~value)) == (int64_t)~value);
        }
    }
}

static void test_cursor_stays_inside(void)
{
    uint8_t endless[16];
    rota_image_cursor cursor;
    memset(endless, 0xff, sizeof endless);
    rota_image_begin(&cursor, endless, sizeof endless);
    CHECK(rota_image_number(&cursor) == 0 && cursor.failed && cursor.left == 0);
    CHECK(rota_image_byte(&cursor) == 0 && rota_image_u64(&cursor) == 0 && rota_image_bytes(&cursor, 1) == NULL);
    rota_image_begin(&cursor, endless, sizeof endless);
    CHECK(rota_image_bytes(&cursor, 16) == endless && !cursor.failed && rota_image_bytes(&cursor, UINT64_MAX) == NULL);
}

static void test_block(void)
{
    /* "abcd", then six bytes from four before, then "xyz12" */
    static const uint8_t block[] = {0x42, 'a', 'b', 'c', 'd', 4, 0, 0x50, 'x', 'y', 'z', '1', '2'};
    uint8_t raw[15];
    CHECK_EQUAL(rota_lz4_decode(block, sizeof block, raw, sizeof raw), 15);
    CHECK(memcmp(raw, "abcdabcdabxyz12", 15) == 0);
    CHECK_EQUAL(rota_lz4_decode(block, sizeof block, raw, 14), -1);
    for (size_t length = 0; length < sizeof block; length++)
        CHECK(rota_lz4_decode(block, length, raw, sizeof raw) < 15);
}

static void test_any_bytes(void)
{
    for (int round = 0; round < 200000; round++) {
        size_t length = random_bits() % 40, room = random_bits() % 80;
        uint8_t *source = malloc(length + 1), *to = malloc(room + 1);
        CHECK(source != NULL && to != NULL);
        for (size_t i = 0; i < length; i++)
            source[i] = (uint8_t)(random_bits() >> 32) & (random_bits() & 1 ? 0xff : 0x1f);
        int64_t made = rota_lz4_decode(source, length, to, room);
        CHECK(made >= -1 && made <= (int64_t)room);
        free(source);
        free(to);
    }
}

int main(void)
{
    test_numbers();
    test_cursor_stays_inside();
    test_block();
    test_any_bytes();
    return 0;
}
