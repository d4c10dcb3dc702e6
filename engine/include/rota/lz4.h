/*
 * Decoding of LZ4 blocks, for native code that needs the raw bytes of a compressed block.
 *
 * What holds: nothing outside [source, source + length) is read and nothing outside [to, to + room) is written,
 * whatever the bytes say; a block is decoded whole or refused.
 *
 *     sequence  token (literal length << 4 | match length - 4), [more literal length], literals,
 *               distance (2, low byte first), [more match length]; the last sequence ends after its literals
 */
#ifndef ROTA_LZ4_H
#define ROTA_LZ4_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "rota/atomics.h"

#define ROTA_LZ4_MATCH_MIN 4u

/* A length that filled its four bits goes on in bytes of 255 and one below; SIZE_MAX: the source ended. */
ROTA_INLINE size_t rota_lz4_length(size_t length, const uint8_t *source, size_t end, size_t *at)
{
    if (length < 15)
        return length;
    for (;;) {
        if (*at >= end)
            return SIZE_MAX;
        uint8_t more = source[(*at)++];
        length += more;
        if (more != 255)
            return length;
    }
}

/* The number of raw bytes, or -1 where the block is malformed or longer than `room`. */
ROTA_COLD int64_t rota_lz4_decode(const uint8_t *source, size_t length, uint8_t *to, size_t room)
{
    size_t at = 0, out = 0;
    while (at < length) {
        uint8_t token = source[at++];
        size_t literals = rota_lz4_length(token >> 4, source, length, &at);
        if (literals > length - at || literals > room - out)
            return -1;
        memcpy(to + out, source + at, literals);
        at += literals;
        out += literals;
        if (at == length)
            return (int64_t)out;
        if (length - at < 2)
            return -1;
        size_t distance = source[at] | (size_t)source[at + 1] << 8;
        at += 2;
        size_t match = rota_lz4_length(token & 15u, source, length, &at);
        if (match == SIZE_MAX || distance == 0 || distance > out || match + ROTA_LZ4_MATCH_MIN > room - out)
            return -1;
        for (match += ROTA_LZ4_MATCH_MIN; match > 0; match--, out++) /* they may overlap */
            to[out] = to[out - distance];
    }
    return -1;
}

#endif
