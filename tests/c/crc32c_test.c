/* CRC32C: known values, hardware against portable against bit by bit, copies, rows, and no byte read too many. */
#include "check.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "rota/crc32c.h"

enum { SIZE = 1 << 16 };
static uint8_t bytes[SIZE + 64], copy[SIZE + 64];

static uint32_t bit_by_bit(uint32_t seed, const uint8_t *data, size_t length)
{
    uint32_t sum = ~seed;
    for (size_t at = 0; at < length; at++) {
        sum ^= data[at];
        for (int bit = 0; bit < 8; bit++)
            sum = (sum >> 1) ^ (sum & 1 ? ROTA_CRC32C_POLYNOMIAL : 0);
    }
    return ~sum;
}

static void test_known_values(void)
{
    uint8_t data[32];
    CHECK_EQUAL(rota_crc32c(0, "", 0), 0);
    CHECK_EQUAL(rota_crc32c(0, NULL, 0), 0);
    CHECK_EQUAL(rota_crc32c(0, "a", 1), 0xC1D04330);
    CHECK_EQUAL(rota_crc32c(0, "123456789", 9), 0xE3069283);
    memset(data, 0, sizeof data);
    CHECK_EQUAL(rota_crc32c(0, data, 32), 0x8A9136AA);
    memset(data, 0xff, sizeof data);
    CHECK_EQUAL(rota_crc32c(0, data, 32), 0x62A8AB43);
    for (int at = 0; at < 32; at++)
        data[at] = (uint8_t)at;
    CHECK_EQUAL(rota_crc32c(0, data, 32), 0x46DD794E);
    for (int at = 0; at < 32; at++)
        data[at] = (uint8_t)(31 - at);
    CHECK_EQUAL(rota_crc32c(0, data, 32), 0x113FDB5C);
}

static void test_tables(void)
{
    static const uint8_t zeros[1024];
    for (int nibble = 0; nibble < 8; nibble++) {
        for (uint32_t value = 0; value < 16; value++) {
            uint32_t before = value << (4 * nibble);
            CHECK_EQUAL(rota_crc32c_past_128[nibble][value], (uint32_t)~bit_by_bit(~before, zeros, 128));
            CHECK_EQUAL(rota_crc32c_past_1024[nibble][value], (uint32_t)~bit_by_bit(~before, zeros, 1024));
        }
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (size_t slice = 0; slice < 8; slice++)
            CHECK_EQUAL(rota_crc32c_slices[slice][byte], (uint32_t)~bit_by_bit(~byte, zeros, slice + 1));
    CHECK_EQUAL(ROTA_CRC32C_SHORT, 128);
    CHECK_EQUAL(ROTA_CRC32C_LONG, 1024);
}

static void test_every_length_and_alignment(void)
{
    for (size_t length = 0; length <= 1300; length++) {
        for (size_t start = 0; start < 9; start++) {
            uint32_t seed = start == 0 ? 0 : (uint32_t)random_bits();
            uint32_t expected = rota_crc32c_portable(seed, bytes + start, length);
            CHECK_EQUAL(rota_crc32c(seed, bytes + start, length), expected);
            if (start == length % 9)
                CHECK_EQUAL(bit_by_bit(seed, bytes + start, length), expected);
        }
    }
}

static void test_long_ones(void)
{
    size_t borders[] = {3 * 128, 6 * 128, 3 * 1024, 3 * 1024 + 3 * 128, 6 * 1024, 4096, 8192, 12288, 16384, SIZE - 40};
    for (size_t index = 0; index < sizeof borders / sizeof borders[0]; index++)
        for (size_t length = borders[index] - 33; length <= borders[index] + 33; length++)
            CHECK_EQUAL(rota_crc32c(7, bytes + index, length), rota_crc32c_portable(7, bytes + index, length));
    for (int round = 0; round < 2000; round++) {
        size_t start = random_bits() % 64, length = random_bits() % SIZE;
        uint32_t seed = (uint32_t)random_bits();
        CHECK_EQUAL(rota_crc32c(seed, bytes + start, length), rota_crc32c_portable(seed, bytes + start, length));
    }
}

static void test_sums_continue(void)
{
    for (size_t length = 0; length < 900; length += 7) {
        uint32_t whole = rota_crc32c(0, bytes, length);
        for (size_t split = 0; split <= length; split += 5)
            CHECK_EQUAL(rota_crc32c(rota_crc32c(0, bytes, split), bytes + split, length - split), whole);
    }
    for (int round = 0; round < 1000; round++) {
        uint64_t value = random_bits();
        uint32_t seed = (uint32_t)random_bits();
        CHECK_EQUAL(rota_crc32c_u64(seed, value), rota_crc32c(seed, &value, sizeof value));
    }
}

static void test_copies(void)
{
    for (size_t length = 0; length < SIZE; length += 1 + random_bits() % (1 + length / 8)) {
        size_t from = random_bits() % 16, to = random_bits() % 16;
        memset(copy, 0xa5, sizeof copy);
        uint32_t seed = (uint32_t)random_bits();
        CHECK_EQUAL(rota_crc32c_copy(seed, copy + to, bytes + from, length), rota_crc32c(seed, bytes + from, length));
        CHECK(memcmp(copy + to, bytes + from, length) == 0);
        CHECK_EQUAL(copy[to + length], 0xa5);
        CHECK(to == 0 || copy[to - 1] == 0xa5);
    }
}

static uint8_t restless[8192];
static uint32_t restless_ends;

static void *change_source(void *argument)
{
    (void)argument;
    for (uint8_t value = 0; !rota_load_acquire_u32(&restless_ends); value++)
        for (size_t at = 0; at < sizeof restless; at += 8)
            __atomic_store_n((uint64_t *)(void *)(restless + at), value * 0x0101010101010101u, __ATOMIC_RELAXED);
    return NULL;
}

/* Whatever another thread does to the source, the sum is that of the copy. */
static void test_copy_of_a_changing_source(void)
{
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, change_source, NULL), 0);
    size_t lengths[] = {8, 100, 384, 4096, 8192};
    for (int round = 0; round < 20000; round++) {
        size_t length = lengths[round % 5];
        uint32_t sum = rota_crc32c_copy(1, copy, restless, length);
        CHECK_EQUAL(sum, rota_crc32c_portable(1, copy, length));
    }
    rota_store_release_u32(&restless_ends, 1);
    pthread_join(thread, NULL);
}

static void test_rows(void)
{
    uint32_t sums[14];
    for (size_t size = 0; size < 420; size++) {
        for (size_t rows = 0; rows <= 12; rows++) {
            size_t stride = size + random_bits() % 24, start = random_bits() % 8;
            memset(sums, 0x5a, sizeof sums);
            rota_crc32c_rows(99, bytes + start, size, rows, stride, sums);
            for (size_t row = 0; row < rows; row++)
                CHECK_EQUAL(sums[row], rota_crc32c_portable(99, bytes + start + row * stride, size));
            CHECK_EQUAL(sums[rows], 0x5a5a5a5a);
        }
    }
}

static void test_three(void)
{
    for (size_t size = 0; size < 420; size++) {
        uint32_t seeds[3], sums[3];
        const uint8_t *at[3];
        for (int i = 0; i < 3; i++) {
            seeds[i] = sums[i] = (uint32_t)random_bits();
            at[i] = bytes + random_bits() % 64;
        }
        rota_crc32c_three(sums, at[0], at[1], at[2], size);
        for (int i = 0; i < 3; i++)
            CHECK_EQUAL(sums[i], rota_crc32c_portable(seeds[i], at[i], size));
    }
}

/* The bytes end where the mapping ends: one byte too many is a fault. */
static void test_nothing_is_read_beyond(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    CHECK_EQUAL(mprotect(pages, page, PROT_NONE), 0);
    CHECK_EQUAL(mprotect(pages + 2 * page, page, PROT_NONE), 0);
    uint8_t *first = pages + page, *end = first + page;
    for (size_t length = 0; length < 600; length++) {
        CHECK_EQUAL(rota_crc32c(0, end - length, length), rota_crc32c_portable(0, end - length, length));
        CHECK_EQUAL(rota_crc32c(0, first, length), rota_crc32c_portable(0, first, length));
        CHECK_EQUAL(rota_crc32c_copy(0, copy, end - length, length), rota_crc32c(0, first, length));
        uint32_t sums[5];
        if (length <= 100)
            rota_crc32c_rows(0, end - 5 * length, length, 5, length, sums);
    }
    munmap(pages, 3 * page);
}

static void test_mixer(void)
{
    int flips[64] = {0};
    CHECK_EQUAL(rota_mix64(0), 0);
    for (int round = 0; round < 4096; round++) {
        uint64_t value = random_bits();
        for (int bit = 0; bit < 64; bit++)
            flips[bit] += __builtin_popcountll(rota_mix64(value) ^ rota_mix64(value ^ (UINT64_C(1) << bit)));
    }
    for (int bit = 0; bit < 64; bit++)
        CHECK(flips[bit] > 4096 * 31 && flips[bit] < 4096 * 33);
}

int main(void)
{
    for (size_t at = 0; at < sizeof bytes; at++)
        bytes[at] = (uint8_t)random_bits();
    test_known_values();
    test_tables();
    test_every_length_and_alignment();
    test_long_ones();
    test_sums_continue();
    test_copies();
    test_copy_of_a_changing_source();
    test_rows();
    test_three();
    test_nothing_is_read_beyond();
    test_mixer();
    return 0;
}
