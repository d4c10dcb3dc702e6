/* SipHash-1-3 with 128 bits of output: names of keys that nobody can foresee who does not know the two words.
 * (Aumasson, Bernstein: SipHash, a fast short-input PRF, 2012; its 128-bit variant.)
 *
 * What holds:
 *  1. Who feeds in keys cannot make them collide, nor crowd one stripe, without the secret words.
 *  2. Two different keys have one name with a chance of 2^-128; a table of a million keys never sees it.
 *  3. A number and a string of the same bytes have different names: the kind goes into the first word.
 */
#ifndef ROTA_SIP_H
#define ROTA_SIP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "rota/atomics.h"

typedef struct rota_key_name {
    uint64_t low, high;
} rota_key_name;

#define ROTA_KEY_BYTES 0u
#define ROTA_KEY_SIGNED 1u   /* a number that fits into 64 bits with a sign */
#define ROTA_KEY_UNSIGNED 2u /* one from 2^63 up */

#define ROTA_SIP_TURN(word, bits) ((word) << (bits) | (word) >> (64 - (bits)))

ROTA_INLINE void rota_sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = ROTA_SIP_TURN(v[1], 13) ^ v[0];
    v[3] = ROTA_SIP_TURN(v[3], 16) ^ v[2];
    v[0] = ROTA_SIP_TURN(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = ROTA_SIP_TURN(v[1], 17) ^ v[2];
    v[3] = ROTA_SIP_TURN(v[3], 21) ^ v[0];
    v[2] = ROTA_SIP_TURN(v[2], 32);
}

ROTA_INLINE void rota_sip_block(uint64_t v[4], uint64_t block)
{
    v[3] ^= block;
    rota_sip_round(v);
    v[0] ^= block;
}

ROTA_INLINE void rota_sip_begin(uint64_t v[4], const uint64_t secret[2], unsigned kind)
{
    v[0] = secret[0] ^ UINT64_C(0x736f6d6570736575) ^ kind;
    v[1] = secret[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee;
    v[2] = secret[0] ^ UINT64_C(0x6c7967656e657261) ^ kind;
    v[3] = secret[1] ^ UINT64_C(0x7465646279746573);
}

ROTA_INLINE rota_key_name rota_sip_end(uint64_t v[4])
{
    rota_key_name name;
    v[2] ^= 0xee;
    for (int i = 0; i < 3; i++)
        rota_sip_round(v);
    name.low = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    for (int i = 0; i < 3; i++)
        rota_sip_round(v);
    name.high = v[0] ^ v[1] ^ v[2] ^ v[3];
    return name;
}

/* A number has one block and no length: its kind sets it apart. */
ROTA_INLINE rota_key_name rota_name_number(const uint64_t secret[2], uint64_t number, unsigned kind)
{
    uint64_t v[4];
    rota_sip_begin(v, secret, kind);
    rota_sip_block(v, number);
    return rota_sip_end(v);
}

static inline rota_key_name rota_name_bytes(const uint64_t secret[2], const uint8_t *data, size_t length)
{
    uint64_t v[4], block = 0;
    size_t left = length;
    rota_sip_begin(v, secret, ROTA_KEY_BYTES);
    for (; left >= 8; data += 8, left -= 8) {
        memcpy(&block, data, 8);
        rota_sip_block(v, block);
    }
    block = 0;
    memcpy(&block, data, left);
    rota_sip_block(v, block | (uint64_t)length << 56);
    return rota_sip_end(v);
}

#endif
