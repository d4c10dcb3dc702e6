/*
 * Terms: what an index knows of a message, derived from its attributes.
 *
 * What holds:
 *  1. A queue names the fields that are indexed; a field has an ordinal: 0 the key, 1 to 14 headers in the order of
 *     their definition, 15 the number by which the queue is ordered.
 *  2. A term is a hash of field and value, seeded with the salt, its low four bits the ordinal.  Two values with one
 *     hash share a list: whoever hands out what he found compares the value itself.
 *  3. Values are equal where Python says so: 1, 1.0 and True are one value, text and bytes are never equal, a key of
 *     text is another one than the same key of bytes.
 *  4. Nobody has vouched for the bytes: bounds first, and what is malformed has no term.
 *
 *     definitions: kind (1), length (1), then for HEADER the name, for SCORE the age rate (f64) and the name, for
 *                  WINDOW, which is no field, its ns (8) and its count (4) of keys that suppress duplicates, 0: none
 *     headers:     kind (1), zero (1), length of the name (2), length of the value (4), name, value
 */
#ifndef ROTA_TERM_H
#define ROTA_TERM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "rota/crc32c.h"
#include "rota/format.h"
#include "rota/frame.h"

#define ROTA_TERM_SCORE 15u
#define ROTA_TERM_COUNT_MAX 16u

enum rota_value_kind {
    ROTA_VALUE_BYTES = 1,
    ROTA_VALUE_TEXT = 2,
    ROTA_VALUE_INTEGER = 3,  /* decimal text */
    ROTA_VALUE_FLOATING = 4, /* f64 */
    ROTA_VALUE_BOOLEAN = 5,  /* one byte */
    ROTA_VALUE_NUMBER = 6,   /* canonical: an integer of 64 bits */
};

/* The terms of one message, or of one value that is looked for. */
typedef struct rota_terms {
    uint32_t count;
    uint32_t has_score;
    double score;
    uint64_t terms[ROTA_TERM_COUNT_MAX];
} rota_terms;

ROTA_INLINE uint64_t rota_hash64(uint64_t seed, const uint8_t *bytes, uint64_t length)
{
    const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t sum = rota_mix64(seed + length * step), word;
    while (length >= 8) {
        memcpy(&word, bytes, 8);
        sum = rota_mix64((sum ^ word) + step);
        bytes += 8;
        length -= 8;
    }
    if (length) {
        word = 0;
        memcpy(&word, bytes, length);
        sum = rota_mix64((sum ^ word) + step);
    }
    return sum;
}

/* An integer of at most 18 digits; false for all else. */
ROTA_INLINE bool rota_value_integer(const uint8_t *bytes, uint32_t length, int64_t *number)
{
    uint32_t at = length && bytes[0] == '-';
    if (length == at || length - at > 18)
        return false;
    *number = 0;
    for (uint32_t i = at; i < length; i++) {
        if (bytes[i] < '0' || bytes[i] > '9')
            return false;
        *number = *number * 10 + (bytes[i] - '0');
    }
    if (at)
        *number = -*number;
    return true;
}

ROTA_INLINE uint64_t rota_value_number(uint64_t seed, int64_t number)
{
    return rota_hash64(seed + ROTA_VALUE_NUMBER, (const uint8_t *)&number, sizeof number);
}

static __attribute__((unused)) uint64_t rota_value_hash(uint64_t seed, unsigned kind, const uint8_t *bytes,
                                                        uint32_t length)
{
    int64_t number;
    double real;
    char text[400];
    if (kind == ROTA_VALUE_BOOLEAN && length == 1)
        return rota_value_number(seed, bytes[0] != 0);
    if (kind == ROTA_VALUE_INTEGER && rota_value_integer(bytes, length, &number))
        return rota_value_number(seed, number);
    if (kind == ROTA_VALUE_FLOATING && length == sizeof real) {
        memcpy(&real, bytes, sizeof real);
        if (real > -1e18 && real < 1e18 && (double)(int64_t)real == real)
            return rota_value_number(seed, (int64_t)real);
        if (real >= 1e18 || real <= -1e18) { /* integral, or infinite: as the digits of the same integer */
            int digits = snprintf(text, sizeof text, "%.0f", real);
            return rota_hash64(seed + ROTA_VALUE_INTEGER, (const uint8_t *)text, digits > 0 ? (uint64_t)digits : 0);
        }
    }
    return rota_hash64(seed + kind, bytes, length);
}

/* What a value counts in an order: numbers themselves, all else 0. */
static __attribute__((unused)) double rota_value_score(unsigned kind, const uint8_t *bytes, uint32_t length)
{
    double score = 0;
    if (kind == ROTA_VALUE_BOOLEAN && length == 1)
        return bytes[0] != 0;
    if (kind == ROTA_VALUE_FLOATING && length == sizeof score) {
        memcpy(&score, bytes, sizeof score);
        return score == score ? score : 0;
    }
    if (kind == ROTA_VALUE_INTEGER) {
        for (uint32_t i = length && bytes[0] == '-'; i < length; i++)
            score = score * 10 + (bytes[i] - '0');
        return length && bytes[0] == '-' ? -score : score;
    }
    return 0;
}

/* The value of that header among encoded headers; false when there is none. */
static __attribute__((unused)) bool rota_header_find(const uint8_t *headers, uint32_t left, const uint8_t *name,
                                                     uint32_t name_length, unsigned *kind, const uint8_t **value,
                                                     uint32_t *length)
{
    while (left >= 8) {
        uint16_t label;
        uint32_t size;
        memcpy(&label, headers + 2, sizeof label);
        memcpy(&size, headers + 4, sizeof size);
        rota_compiler_barrier();
        if ((uint64_t)label + size > left - 8)
            return false;
        if (label == name_length && memcmp(headers + 8, name, label) == 0) {
            *kind = headers[0];
            *value = headers + 8 + label;
            *length = size;
            return true;
        }
        headers += 8 + label + size;
        left -= 8 + label + size;
    }
    return false;
}

/* --- definitions ---------------------------------------------------------------------------------------------- */

typedef struct rota_index_cursor {
    const uint8_t *next;
    uint32_t left;
    uint32_t headers; /* seen so far */
} rota_index_cursor;

typedef struct rota_index_field {
    unsigned kind;
    unsigned ordinal;
    double age_rate;
    const uint8_t *name;
    uint32_t name_length;
} rota_index_field;

ROTA_INLINE void rota_index_begin(rota_index_cursor *cursor, const uint8_t *text, uint32_t bytes)
{
    cursor->next = text;
    cursor->left = bytes <= ROTA_INDEX_BYTES_MAX ? bytes : 0;
    cursor->headers = 0;
}

/* The next definition; false at the end (left == 0) or where one cannot be (left != 0). */
static __attribute__((unused)) bool rota_index_next(rota_index_cursor *cursor, rota_index_field *field)
{
    if (cursor->left < 2 || cursor->next[1] > cursor->left - 2)
        return false;
    uint32_t length = cursor->next[1];
    field->kind = cursor->next[0];
    field->name = cursor->next + 2;
    field->name_length = length;
    field->age_rate = 0;
    if (field->kind == ROTA_INDEX_KEY && length == 0) {
        field->ordinal = 0;
    } else if (field->kind == ROTA_INDEX_HEADER && cursor->headers < ROTA_INDEX_HEADERS_MAX) {
        field->ordinal = ++cursor->headers;
    } else if (field->kind == ROTA_INDEX_SCORE && length >= 8) {
        field->ordinal = ROTA_TERM_SCORE;
        memcpy(&field->age_rate, field->name, 8);
        field->name += 8;
        field->name_length -= 8;
    } else if (field->kind == ROTA_INDEX_WINDOW && length == 12) {
        field->ordinal = 0;
    } else {
        return false;
    }
    cursor->next += 2 + length;
    cursor->left -= 2 + length;
    return true;
}

/* One bit for each field of these definitions, or -1 when they cannot be. */
static __attribute__((unused)) int32_t rota_index_mask(const uint8_t *text, uint32_t bytes, unsigned order)
{
    rota_index_cursor cursor;
    rota_index_field field;
    int32_t mask = order == ROTA_ORDER_GROUP ? 1 : 0;
    double age_rate = 0;
    if (bytes > ROTA_INDEX_BYTES_MAX)
        return -1;
    rota_index_begin(&cursor, text, bytes);
    while (rota_index_next(&cursor, &field)) {
        mask |= field.kind == ROTA_INDEX_WINDOW ? 0 : 1 << field.ordinal;
        age_rate += field.age_rate;
    }
    bool scored = (mask >> ROTA_TERM_SCORE & 1) != 0;
    if (cursor.left || scored != (order == ROTA_ORDER_HIGHEST) || !(age_rate >= 0 && age_rate < 1e15))
        return -1;
    return mask;
}

/* How long a queue remembers the keys of puts (0: no bound), and how many (0: no bound); false: it does not. */
static __attribute__((unused)) bool rota_index_window(const uint8_t *text, uint32_t bytes, uint64_t *ns, uint32_t *count)
{
    rota_index_cursor cursor;
    rota_index_field field;
    rota_index_begin(&cursor, text, bytes);
    while (rota_index_next(&cursor, &field)) {
        if (field.kind != ROTA_INDEX_WINDOW)
            continue;
        memcpy(ns, field.name, sizeof *ns);
        memcpy(count, field.name + sizeof *ns, sizeof *count);
        rota_compiler_barrier();
        return *ns != 0 || *count != 0;
    }
    return false;
}

/* --- terms ---------------------------------------------------------------------------------------------------- */

ROTA_INLINE uint64_t rota_term(uint64_t salt, unsigned ordinal, const uint8_t *name, uint32_t name_length,
                               unsigned kind, const uint8_t *value, uint32_t length)
{
    uint64_t seed = ordinal ? rota_hash64(salt, name, name_length) : salt;
    return (rota_value_hash(seed, kind, value, length) & ~UINT64_C(15)) | ordinal;
}

ROTA_INLINE void rota_terms_key(uint64_t salt, const uint8_t *attributes, uint32_t attribute_bytes, rota_terms *out)
{
    const uint8_t *value;
    uint32_t length;
    if (rota_attribute_find(attributes, attribute_bytes, ROTA_ATTRIBUTE_KEY_TEXT, &value, &length))
        out->terms[out->count++] = rota_term(salt, 0, NULL, 0, ROTA_VALUE_TEXT, value, length);
    else if (rota_attribute_find(attributes, attribute_bytes, ROTA_ATTRIBUTE_KEY_BYTES, &value, &length))
        out->terms[out->count++] = rota_term(salt, 0, NULL, 0, ROTA_VALUE_BYTES, value, length);
}

/* The terms of a message with these attributes, in a queue with these definitions. */
static __attribute__((unused)) void rota_terms_find(uint64_t salt, const uint8_t *text, uint32_t bytes, uint32_t mask,
                                                    const uint8_t *attributes, uint32_t attribute_bytes,
                                                    rota_terms *out)
{
    rota_index_cursor cursor;
    rota_index_field field;
    const uint8_t *headers = NULL, *value;
    uint32_t headers_length = 0, length;
    unsigned kind;
    out->count = 0;
    out->has_score = mask >> ROTA_TERM_SCORE & 1;
    out->score = 0;
    if (mask & 1)
        rota_terms_key(salt, attributes, attribute_bytes, out);
    if (!(mask & ~1u) ||
        !rota_attribute_find(attributes, attribute_bytes, ROTA_ATTRIBUTE_HEADERS, &headers, &headers_length))
        return;
    rota_index_begin(&cursor, text, bytes);
    while (rota_index_next(&cursor, &field)) {
        if (field.ordinal == 0 || !rota_header_find(headers, headers_length, field.name, field.name_length, &kind,
                                                    &value, &length))
            continue;
        if (field.ordinal == ROTA_TERM_SCORE)
            out->score = rota_value_score(kind, value, length);
        else
            out->terms[out->count++] =
                rota_term(salt, field.ordinal, field.name, field.name_length, kind, value, length);
    }
}

/* The place of a message in an order by value: the lower is served first.  It stays true while time passes, since
 * all scores rise alike: age_rate * (now - arrival) + value is highest where age_rate * arrival - value is lowest. */
ROTA_INLINE uint64_t rota_score_order(double score, double age_rate, uint64_t arrival_ns)
{
    double place = age_rate * ((double)arrival_ns / 1e9) - score + 0.0;
    uint64_t bits;
    memcpy(&bits, &place, sizeof bits);
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

#endif
