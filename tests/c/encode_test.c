/* Encoded words are the structures of the format, with the sums that a scan expects. */
#include "check.h"
#include "rota/encode.h"
#include "rota/frame.h"
#include "rota/scan.h"

static void test_operation(void)
{
    rota_op op = {.kind = (uint8_t)random_bits(), .detail = (uint8_t)random_bits(), .queue = (uint16_t)random_bits()};
    op.extra_bytes = (uint32_t)random_bits();
    op.id = random_bits();
    op.a = random_bits();
    op.b = random_bits();
    rota_op made;
    rota_encode_op(&made, op.kind, op.detail, op.queue, op.id, op.a, op.b, op.extra_bytes);
    CHECK(memcmp(&made, &op, sizeof op) == 0);
}

static void test_frame(void)
{
    uint8_t body[100];
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (uint8_t)random_bits();
    rota_frame frame = {.body_length = sizeof body, .offset = (uint32_t)random_bits(), .back = (uint32_t)random_bits()};
    frame.queue = (uint16_t)random_bits();
    frame.priority = (uint8_t)random_bits();
    uint32_t salt = (uint32_t)random_bits();
    frame.crc = rota_frame_crc(salt, &frame, body);
    uint32_t sum = rota_plain_frame_sum(salt, frame.body_length, frame.offset, frame.back, frame.queue, frame.priority);
    rota_frame made;
    rota_encode_plain_frame(&made, rota_crc32c(sum, body, sizeof body), frame.body_length, frame.offset, frame.back,
                            frame.queue, frame.priority);
    CHECK(memcmp(&made, &frame, sizeof frame) == 0);
}

static void test_header(void)
{
    rota_commit_header header, made;
    uint8_t *bytes = (uint8_t *)&header;
    for (size_t i = 0; i < sizeof header; i++)
        bytes[i] = (uint8_t)random_bits();
    uint32_t salt = (uint32_t)random_bits();
    header.header_crc = rota_commit_header_crc(salt, &header);
    CHECK_EQUAL(rota_encode_header(&made, salt, &header), header.header_crc);
    CHECK(memcmp(&made, &header, sizeof header) == 0);
    made.header_crc = 0;
    rota_encode_header(&made, salt, &made);
    CHECK(memcmp(&made, &header, sizeof header) == 0);
}

int main(void)
{
    for (int round = 0; round < 1000; round++) {
        test_operation();
        test_frame();
        test_header();
    }
    return 0;
}
