/* CRC32C (Castagnoli) of bytes, of copies and of rows, and a 64-bit mixer.
 *
 * What holds:
 *  1. rota_crc32c(0, data, length) is the standard CRC32C; a sum is continued by giving it as the next seed, so
 *     crc(crc(s, a), b) = crc(s, a || b). Hardware and portable paths give the same sums.
 *  2. The hardware path is a few instructions written as inline assembly, so that it becomes part of the caller
 *     whatever machine the caller is compiled for; one flag, set when the module is loaded, decides the path.
 *  3. rota_crc32c_copy sums the destination, never the source: another thread may change the source meanwhile, and
 *     the sum must be that of the bytes that were kept.
 *  4. Nothing is read beyond [data, data + length). All tables are constants; nothing is filled at run time.
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
#include "rota/crc32c_tables.h"

#if defined(__aarch64__) && !defined(ROTA_CRC32C_PORTABLE)
#include <sys/auxv.h>
#endif

#define ROTA_CRC32C_POLYNOMIAL 0x82F63B78u /* reflected */
#define ROTA_CRC32C_SHORT 128u /* bytes of one of three lanes; rota_crc32c_past_128 and _1024 belong to these two */
#define ROTA_CRC32C_LONG 1024u
#define ROTA_CRC32C_PIECE 4096u /* a copy is summed in pieces of this size, while they are in the cache */

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

static __attribute__((noinline, unused)) uint32_t rota_crc32c_portable(uint32_t seed, const void *data, size_t length)
{
    const uint32_t(*step)[256] = rota_crc32c_slices;
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

/* The sum of its four bytes, lowest first. */
ROTA_INLINE uint32_t rota_crc32c_u32(uint32_t seed, uint32_t value)
{
#if ROTA_CRC32C_HARDWARE
    if (rota_crc32c_is_hardware())
        return ~(uint32_t)rota_crc32c_step_u32((uint32_t)~seed, value);
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

/* Three stretches of one length side by side, each with its own seed: sums[i] = crc(sums[i], data i). */
ROTA_INLINE void rota_crc32c_three(uint32_t sums[3], const void *first, const void *second, const void *third,
                                   size_t length)
{
    const uint8_t *next0 = first, *next1 = second, *next2 = third;
#if ROTA_CRC32C_HARDWARE
    if (rota_crc32c_is_hardware() && length < 3 * ROTA_CRC32C_SHORT) {
        size_t words = length & ~(size_t)7, rest = length & 7;
        uint64_t sum0 = (uint32_t)~sums[0], sum1 = (uint32_t)~sums[1], sum2 = (uint32_t)~sums[2];
        for (size_t at = 0; at < words; at += 8) {
            sum0 = rota_crc32c_step_u64(sum0, rota_load_unaligned_u64(next0 + at));
            sum1 = rota_crc32c_step_u64(sum1, rota_load_unaligned_u64(next1 + at));
            sum2 = rota_crc32c_step_u64(sum2, rota_load_unaligned_u64(next2 + at));
        }
        sums[0] = ~(uint32_t)rota_crc32c_serial(sum0, next0 + words, rest);
        sums[1] = ~(uint32_t)rota_crc32c_serial(sum1, next1 + words, rest);
        sums[2] = ~(uint32_t)rota_crc32c_serial(sum2, next2 + words, rest);
        return;
    }
#endif
    sums[0] = rota_crc32c(sums[0], next0, length);
    sums[1] = rota_crc32c(sums[1], next1, length);
    sums[2] = rota_crc32c(sums[2], next2, length);
}

/* A bijection of 64 bits in which each input bit moves half of the output (Stafford's variant 13). mix(0) is 0. */
ROTA_INLINE uint64_t rota_mix64(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

#endif
