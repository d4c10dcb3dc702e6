/* CRC32C (Castagnoli) of bytes, of copies and of rows, and a 64-bit mixer.
 *
 * What holds:
 *  1. rota_crc32c(0, data, length) is the standard CRC32C; a sum is continued by giving it as the next seed, so
 *     crc(crc(s, a), b) = crc(s, a || b). Hardware and portable paths give the same sums.
 *  2. The hardware path is a few instructions written as inline assembly, so that it becomes part of the caller
 *     whatever machine the caller is compiled for; one flag, set when the module is loaded, decides the path.
 *  3. rota_crc32c_copy sums the destination, never the source: another thread may change the source meanwhile, and
 *     the sum must be that of the bytes that were kept.
 *  4. Nothing is read beyond [data, data + length). No table is filled on the hot path; the portable path's tables
 *     (8 KiB) are filled at its first use, by whichever thread comes first.
 *
 * ROTA_CRC32C_PORTABLE, defined before inclusion, leaves the hardware path out; rota_crc32c_portable is always there.
 */
#ifndef ROTA_CRC32C_H
#define ROTA_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "rota/atomics.h"

#if defined(__aarch64__) && !defined(ROTA_CRC32C_PORTABLE)
#include <sys/auxv.h>
#endif

#define ROTA_CRC32C_POLYNOMIAL 0x82F63B78u /* reflected */
#define ROTA_CRC32C_SHORT 128u             /* bytes of one of three lanes; the tables below belong to these two */
#define ROTA_CRC32C_LONG 1024u
#define ROTA_CRC32C_PIECE 4096u            /* a copy is summed in pieces of this size, while they are in the cache */

/* A sum after that many zero bytes, by nibbles of the sum before; how the lanes of a long input are joined.
 * tests/c/crc32c_test.c computes both again. */
static const uint32_t rota_crc32c_past_128[8][16] = {
    {0x00000000, 0x6992cea2, 0xd3259d44, 0xbab753e6, 0xa3a74c79, 0xca3582db, 0x7082d13d, 0x19101f9f,
     0x42a2ee03, 0x2b3020a1, 0x91877347, 0xf815bde5, 0xe105a27a, 0x88976cd8, 0x32203f3e, 0x5bb2f19c},
    {0x00000000, 0x8545dc06, 0x0f67cefd, 0x8a2212fb, 0x1ecf9dfa, 0x9b8a41fc, 0x11a85307, 0x94ed8f01,
     0x3d9f3bf4, 0xb8dae7f2, 0x32f8f509, 0xb7bd290f, 0x2350a60e, 0xa6157a08, 0x2c3768f3, 0xa972b4f5},
    {0x00000000, 0x7b3e77e8, 0xf67cefd0, 0x8d429838, 0xe915a951, 0x922bdeb9, 0x1f694681, 0x64573169,
     0xd7c72453, 0xacf953bb, 0x21bbcb83, 0x5a85bc6b, 0x3ed28d02, 0x45ecfaea, 0xc8ae62d2, 0xb390153a},
    {0x00000000, 0xaa623e57, 0x51280a5f, 0xfb4a3408, 0xa25014be, 0x08322ae9, 0xf3781ee1, 0x591a20b6,
     0x414c5f8d, 0xeb2e61da, 0x106455d2, 0xba066b85, 0xe31c4b33, 0x497e7564, 0xb234416c, 0x18567f3b},
    {0x00000000, 0x8298bf1a, 0x00dd08c5, 0x8245b7df, 0x01ba118a, 0x8322ae90, 0x0167194f, 0x83ffa655,
     0x03742314, 0x81ec9c0e, 0x03a92bd1, 0x813194cb, 0x02ce329e, 0x80568d84, 0x02133a5b, 0x808b8541},
    {0x00000000, 0x06e84628, 0x0dd08c50, 0x0b38ca78, 0x1ba118a0, 0x1d495e88, 0x167194f0, 0x1099d2d8,
     0x37423140, 0x31aa7768, 0x3a92bd10, 0x3c7afb38, 0x2ce329e0, 0x2a0b6fc8, 0x2133a5b0, 0x27dbe398},
    {0x00000000, 0x6e846280, 0xdd08c500, 0xb38ca780, 0xbffdfcf1, 0xd1799e71, 0x62f539f1, 0x0c715b71,
     0x7a178f13, 0x1493ed93, 0xa71f4a13, 0xc99b2893, 0xc5ea73e2, 0xab6e1162, 0x18e2b6e2, 0x7666d462},
    {0x00000000, 0xf42f1e26, 0xedb24abd, 0x199d549b, 0xde88e38b, 0x2aa7fdad, 0x333aa936, 0xc715b710,
     0xb8fdb1e7, 0x4cd2afc1, 0x554ffb5a, 0xa160e57c, 0x6675526c, 0x925a4c4a, 0x8bc718d1, 0x7fe806f7},
};

static const uint32_t rota_crc32c_past_1024[8][16] = {
    {0x00000000, 0xfe314258, 0xf98ef241, 0x07bfb019, 0xf6f19273, 0x08c0d02b, 0x0f7f6032, 0xf14e226a,
     0xe80f5217, 0x163e104f, 0x1181a056, 0xefb0e20e, 0x1efec064, 0xe0cf823c, 0xe7703225, 0x1941707d},
    {0x00000000, 0xd5f2d2df, 0xae09d34f, 0x7bfb0190, 0x59ffd06f, 0x8c0d02b0, 0xf7f60320, 0x2204d1ff,
     0xb3ffa0de, 0x660d7201, 0x1df67391, 0xc804a14e, 0xea0070b1, 0x3ff2a26e, 0x4409a3fe, 0x91fb7121},
    {0x00000000, 0x6213374d, 0xc4266e9a, 0xa63559d7, 0x8da0abc5, 0xefb39c88, 0x4986c55f, 0x2b95f212,
     0x1ead217b, 0x7cbe1636, 0xda8b4fe1, 0xb89878ac, 0x930d8abe, 0xf11ebdf3, 0x572be424, 0x3538d369},
    {0x00000000, 0x3d5a42f6, 0x7ab485ec, 0x47eec71a, 0xf5690bd8, 0xc833492e, 0x8fdd8e34, 0xb287ccc2,
     0xef3e6141, 0xd26423b7, 0x958ae4ad, 0xa8d0a65b, 0x1a576a99, 0x270d286f, 0x60e3ef75, 0x5db9ad83},
    {0x00000000, 0xdb90b473, 0xb2cd1e17, 0x695daa64, 0x60764adf, 0xbbe6feac, 0xd2bb54c8, 0x092be0bb,
     0xc0ec95be, 0x1b7c21cd, 0x72218ba9, 0xa9b13fda, 0xa09adf61, 0x7b0a6b12, 0x1257c176, 0xc9c77505},
    {0x00000000, 0x84355d8d, 0x0d86cdeb, 0x89b39066, 0x1b0d9bd6, 0x9f38c65b, 0x168b563d, 0x92be0bb0,
     0x361b37ac, 0xb22e6a21, 0x3b9dfa47, 0xbfa8a7ca, 0x2d16ac7a, 0xa923f1f7, 0x20906191, 0xa4a53c1c},
    {0x00000000, 0x6c366f58, 0xd86cdeb0, 0xb45ab1e8, 0xb535cb91, 0xd903a4c9, 0x6d591521, 0x016f7a79,
     0x6f87e1d3, 0x03b18e8b, 0xb7eb3f63, 0xdbdd503b, 0xdab22a42, 0xb684451a, 0x02def4f2, 0x6ee89baa},
    {0x00000000, 0xdf0fc3a6, 0xbbf3f1bd, 0x64fc321b, 0x720b958b, 0xad04562d, 0xc9f86436, 0x16f7a790,
     0xe4172b16, 0x3b18e8b0, 0x5fe4daab, 0x80eb190d, 0x961cbe9d, 0x49137d3b, 0x2def4f20, 0xf2e08c86},
};

ROTA_INLINE uint64_t rota_load_unaligned_u64(const void *data)
{
    uint64_t value;
    memcpy(&value, data, sizeof value);
    return value;
}

ROTA_INLINE uint32_t rota_load_unaligned_u32(const void *data)
{
    uint32_t value;
    memcpy(&value, data, sizeof value);
    return value;
}

/* --- portable: eight bytes a step, by tables ---------------------------------------------------------------- */

typedef struct rota_crc32c_tables {
    uint32_t ready;
    uint32_t step[8][256];
} rota_crc32c_tables;

static rota_crc32c_tables rota_crc32c_slices __attribute__((unused));

/* Every thread would write the same numbers; relaxed stores keep that from being a race. */
ROTA_COLD void rota_crc32c_fill(void)
{
    rota_crc32c_tables *tables = &rota_crc32c_slices;
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++)
            sum = (sum >> 1) ^ (sum & 1 ? ROTA_CRC32C_POLYNOMIAL : 0);
        rota_store_relaxed_u32(&tables->step[0][byte], sum);
    }
    for (int slice = 1; slice < 8; slice++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t before = rota_load_relaxed_u32(&tables->step[slice - 1][byte]);
            uint32_t low = rota_load_relaxed_u32(&tables->step[0][before & 0xff]);
            rota_store_relaxed_u32(&tables->step[slice][byte], low ^ (before >> 8));
        }
    }
    rota_store_release_u32(&tables->ready, 1);
}

static __attribute__((noinline, unused)) uint32_t rota_crc32c_portable(uint32_t seed, const void *data, size_t length)
{
    const rota_crc32c_tables *tables = &rota_crc32c_slices;
    if (ROTA_UNLIKELY(!rota_load_acquire_u32(&tables->ready)))
        rota_crc32c_fill();
    const uint32_t(*step)[256] = tables->step;
    const uint8_t *next = data;
    uint32_t sum = ~seed;
    for (; length >= 8; next += 8, length -= 8) {
        uint64_t word = rota_load_unaligned_u64(next) ^ sum;
        sum = step[7][word & 0xff] ^ step[6][(word >> 8) & 0xff] ^ step[5][(word >> 16) & 0xff] ^
              step[4][(word >> 24) & 0xff] ^ step[3][(word >> 32) & 0xff] ^ step[2][(word >> 40) & 0xff] ^
              step[1][(word >> 48) & 0xff] ^ step[0][word >> 56];
    }
    for (; length > 0; next++, length--)
        sum = step[0][(sum ^ *next) & 0xff] ^ (sum >> 8);
    return ~sum;
}

/* --- hardware ------------------------------------------------------------------------------------------------ */

#if defined(ROTA_CRC32C_PORTABLE)
#define ROTA_CRC32C_HARDWARE 0
ROTA_INLINE bool rota_crc32c_is_hardware(void)
{
    return false;
}
#else
#define ROTA_CRC32C_HARDWARE 1
static bool rota_crc32c_hardware __attribute__((unused));

/* Once per module, at load; never changed afterwards. */
__attribute__((constructor)) static void rota_crc32c_detect(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    rota_crc32c_hardware = __builtin_cpu_supports("sse4.2") != 0;
#else
    rota_crc32c_hardware = (getauxval(AT_HWCAP) & (1ul << 7)) != 0; /* HWCAP_CRC32 */
#endif
}

ROTA_INLINE bool rota_crc32c_is_hardware(void)
{
    return ROTA_LIKELY(rota_crc32c_hardware);
}

/* The register form: no inversion before or after. */
ROTA_INLINE uint64_t rota_crc32c_step_u64(uint64_t sum, uint64_t value)
{
#if defined(__x86_64__)
    __asm__("crc32q %1, %0" : "+r"(sum) : "r"(value));
    return sum;
#else
    uint32_t low = (uint32_t)sum;
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(low) : "r"(value));
    return low;
#endif
}

ROTA_INLINE uint64_t rota_crc32c_step_u32(uint64_t sum, uint32_t value)
{
    uint32_t low = (uint32_t)sum;
#if defined(__x86_64__)
    __asm__("crc32l %1, %0" : "+r"(low) : "r"(value));
#else
    __asm__(".arch_extension crc\n\tcrc32cw %w0, %w0, %w1" : "+r"(low) : "r"(value));
#endif
    return low;
}

ROTA_INLINE uint64_t rota_crc32c_step_u8(uint64_t sum, uint8_t value)
{
    uint32_t low = (uint32_t)sum;
#if defined(__x86_64__)
    __asm__("crc32b %1, %0" : "+r"(low) : "r"(value));
#else
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(low) : "r"((uint32_t)value));
#endif
    return low;
}

ROTA_INLINE uint64_t rota_crc32c_serial(uint64_t sum, const uint8_t *next, size_t length)
{
    for (; length >= 8; next += 8, length -= 8)
        sum = rota_crc32c_step_u64(sum, rota_load_unaligned_u64(next));
    if (length & 4) {
        sum = rota_crc32c_step_u32(sum, rota_load_unaligned_u32(next));
        next += 4;
    }
    for (length &= 3; length > 0; next++, length--)
        sum = rota_crc32c_step_u8(sum, *next);
    return sum;
}

ROTA_INLINE uint64_t rota_crc32c_past(const uint32_t past[8][16], uint64_t sum)
{
    return past[0][sum & 15] ^ past[1][(sum >> 4) & 15] ^ past[2][(sum >> 8) & 15] ^ past[3][(sum >> 12) & 15] ^
           past[4][(sum >> 16) & 15] ^ past[5][(sum >> 20) & 15] ^ past[6][(sum >> 24) & 15] ^
           past[7][(sum >> 28) & 15];
}

/* Three lanes side by side: the instruction has a latency of three cycles and a throughput of one. */
ROTA_INLINE uint64_t rota_crc32c_lanes(uint64_t sum, const uint8_t *next, size_t lane, const uint32_t past[8][16])
{
    uint64_t second = 0, third = 0;
    for (const uint8_t *end = next + lane; next < end; next += 8) {
        sum = rota_crc32c_step_u64(sum, rota_load_unaligned_u64(next));
        second = rota_crc32c_step_u64(second, rota_load_unaligned_u64(next + lane));
        third = rota_crc32c_step_u64(third, rota_load_unaligned_u64(next + 2 * lane));
    }
    return rota_crc32c_past(past, rota_crc32c_past(past, sum) ^ second) ^ third;
}

static __attribute__((noinline, unused)) uint32_t rota_crc32c_long(uint32_t seed, const void *data, size_t length)
{
    const uint8_t *next = data;
    uint64_t sum = (uint32_t)~seed;
    for (; length >= 3 * ROTA_CRC32C_LONG; next += 3 * ROTA_CRC32C_LONG, length -= 3 * ROTA_CRC32C_LONG)
        sum = rota_crc32c_lanes(sum, next, ROTA_CRC32C_LONG, rota_crc32c_past_1024);
    for (; length >= 3 * ROTA_CRC32C_SHORT; next += 3 * ROTA_CRC32C_SHORT, length -= 3 * ROTA_CRC32C_SHORT)
        sum = rota_crc32c_lanes(sum, next, ROTA_CRC32C_SHORT, rota_crc32c_past_128);
    return ~(uint32_t)rota_crc32c_serial(sum, next, length);
}
#endif

/* --- what the engine calls ----------------------------------------------------------------------------------- */

ROTA_INLINE uint32_t rota_crc32c(uint32_t seed, const void *data, size_t length)
{
#if ROTA_CRC32C_HARDWARE
    if (rota_crc32c_is_hardware()) {
        if (ROTA_UNLIKELY(length >= 3 * ROTA_CRC32C_SHORT))
            return rota_crc32c_long(seed, data, length);
        return ~(uint32_t)rota_crc32c_serial((uint32_t)~seed, data, length);
    }
#endif
    return rota_crc32c_portable(seed, data, length);
}

/* The sum of the eight bytes of value, lowest first. */
ROTA_INLINE uint32_t rota_crc32c_u64(uint32_t seed, uint64_t value)
{
#if ROTA_CRC32C_HARDWARE
    if (rota_crc32c_is_hardware())
        return ~(uint32_t)rota_crc32c_step_u64((uint32_t)~seed, value);
#endif
    return rota_crc32c_portable(seed, &value, sizeof value);
}

/* Copy, then sum what was written; see 3. */
ROTA_INLINE uint32_t rota_crc32c_copy(uint32_t seed, void *destination, const void *source, size_t length)
{
    uint8_t *to = destination;
    const uint8_t *from = source;
    while (ROTA_UNLIKELY(length > ROTA_CRC32C_PIECE)) {
        memcpy(to, from, ROTA_CRC32C_PIECE);
        rota_compiler_barrier(); /* without it the compiler may read the source a second time and sum that */
        seed = rota_crc32c(seed, to, ROTA_CRC32C_PIECE);
        to += ROTA_CRC32C_PIECE;
        from += ROTA_CRC32C_PIECE;
        length -= ROTA_CRC32C_PIECE;
    }
    memcpy(to, from, length);
    rota_compiler_barrier();
    return rota_crc32c(seed, to, length);
}

/* The sums of rows of one size, stride bytes apart; sums[i] = crc(seed, row i). Rows are summed three at a time. */
static __attribute__((unused)) void rota_crc32c_rows(uint32_t seed, const void *data, size_t row_size, size_t rows,
                                                     size_t stride, uint32_t *sums)
{
    const uint8_t *next = data;
    size_t row = 0;
#if ROTA_CRC32C_HARDWARE
    if (rota_crc32c_is_hardware() && row_size < 3 * ROTA_CRC32C_SHORT) {
        size_t words = row_size & ~(size_t)7, rest = row_size & 7;
        for (; row + 3 <= rows; row += 3, next += 3 * stride) {
            const uint8_t *second = next + stride, *third = second + stride;
            uint64_t sum0 = (uint32_t)~seed, sum1 = sum0, sum2 = sum0;
            for (size_t at = 0; at < words; at += 8) {
                sum0 = rota_crc32c_step_u64(sum0, rota_load_unaligned_u64(next + at));
                sum1 = rota_crc32c_step_u64(sum1, rota_load_unaligned_u64(second + at));
                sum2 = rota_crc32c_step_u64(sum2, rota_load_unaligned_u64(third + at));
            }
            sums[row] = ~(uint32_t)rota_crc32c_serial(sum0, next + words, rest);
            sums[row + 1] = ~(uint32_t)rota_crc32c_serial(sum1, second + words, rest);
            sums[row + 2] = ~(uint32_t)rota_crc32c_serial(sum2, third + words, rest);
        }
    }
#endif
    for (; row < rows; row++, next += stride)
        sums[row] = rota_crc32c(seed, next, row_size);
}

/* A bijection of 64 bits in which each input bit moves half of the output (Stafford's variant 13). mix(0) is 0. */
ROTA_INLINE uint64_t rota_mix64(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

#endif
