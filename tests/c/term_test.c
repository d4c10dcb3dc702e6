/* Terms of an index: values that are equal share one, others do not, and no byte makes a reader leave its buffer. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "rota/term.h"

static uint64_t text_term(unsigned kind, const char *text)
{
    return rota_value_hash(7, kind, (const uint8_t *)text, (uint32_t)strlen(text));
}

static uint64_t real_term(double value) { return rota_value_hash(7, ROTA_VALUE_FLOATING, (const uint8_t *)&value, 8); }

static void test_equal_values(void)
{
    uint8_t one = 1;
    CHECK(text_term(ROTA_VALUE_INTEGER, "1") == real_term(1.0));
    CHECK(text_term(ROTA_VALUE_INTEGER, "1") == rota_value_hash(7, ROTA_VALUE_BOOLEAN, &one, 1));
    CHECK(text_term(ROTA_VALUE_INTEGER, "0") == real_term(-0.0));
    CHECK(text_term(ROTA_VALUE_INTEGER, "-999999999999999999") == text_term(ROTA_VALUE_INTEGER, "-999999999999999999"));
    CHECK(text_term(ROTA_VALUE_INTEGER, "1000000000000000000") == real_term(1e18));
    CHECK(text_term(ROTA_VALUE_INTEGER, "-1180591620717411303424") == real_term(-1180591620717411303424.0));
    CHECK(text_term(ROTA_VALUE_INTEGER, "1") != text_term(ROTA_VALUE_TEXT, "1"));
    CHECK(text_term(ROTA_VALUE_BYTES, "1") != text_term(ROTA_VALUE_TEXT, "1"));
    CHECK(real_term(0.5) != real_term(0.25) && real_term(1.5) != text_term(ROTA_VALUE_INTEGER, "1"));
    CHECK(text_term(ROTA_VALUE_BYTES, "") != text_term(ROTA_VALUE_TEXT, ""));
}

static void test_places(void)
{
    uint64_t second = 1000000000ull;
    CHECK(rota_score_order(5, 0, 0) < rota_score_order(4, 0, 0));
    CHECK(rota_score_order(-4, 0, 0) < rota_score_order(-5, 0, 0));
    CHECK(rota_score_order(0, 0, 0) == rota_score_order(-0.0, 0, 9 * second));
    CHECK(rota_score_order(0, 1.0, 10 * second) < rota_score_order(9, 1.0, 20 * second));
    CHECK(rota_score_order(0, 1.0, 10 * second) > rota_score_order(11, 1.0, 20 * second));
    CHECK(rota_value_score(ROTA_VALUE_INTEGER, (const uint8_t *)"-12", 3) == -12.0);
    CHECK(rota_value_score(ROTA_VALUE_TEXT, (const uint8_t *)"12", 2) == 0.0);
}

static void test_definitions(void)
{
    static const uint8_t good[] = {ROTA_INDEX_KEY, 0, ROTA_INDEX_HEADER, 1, 'n'};
    static const uint8_t scored[] = {ROTA_INDEX_SCORE, 9, 0, 0, 0, 0, 0, 0, 0, 0, 'n'};
    CHECK_EQUAL(rota_index_mask(good, sizeof good, ROTA_ORDER_SKIP), 3);
    CHECK_EQUAL(rota_index_mask(good, 2, ROTA_ORDER_SKIP), 1);
    CHECK_EQUAL(rota_index_mask(good, 3, ROTA_ORDER_SKIP), -1);
    CHECK_EQUAL(rota_index_mask(good, 0, ROTA_ORDER_GROUP), 1);
    CHECK_EQUAL(rota_index_mask(scored, sizeof scored, ROTA_ORDER_HIGHEST), 1 << 15);
    CHECK_EQUAL(rota_index_mask(scored, sizeof scored, ROTA_ORDER_SKIP), -1);
    CHECK_EQUAL(rota_index_mask(good, sizeof good, ROTA_ORDER_HIGHEST), -1);
}

static void test_any_bytes(void)
{
    for (int round = 0; round < 100000; round++) {
        uint32_t length = (uint32_t)(random_bits() % 80), text_length = (uint32_t)(random_bits() % 40);
        uint8_t *attributes = malloc(length + 1), *text = malloc(text_length + 1);
        rota_terms terms;
        CHECK(attributes != NULL && text != NULL);
        for (uint32_t i = 0; i < length; i++)
            attributes[i] = (uint8_t)(random_bits() >> 32) & (random_bits() & 1 ? 0xff : 0x07);
        for (uint32_t i = 0; i < text_length; i++)
            text[i] = (uint8_t)(random_bits() >> 32) & (random_bits() & 1 ? 0xff : 0x03);
        if (length >= 4 && random_bits() & 1) { /* headers that fill the rest */
            attributes[0] = ROTA_ATTRIBUTE_HEADERS;
            attributes[1] = 0;
            attributes[2] = (uint8_t)(length - 4);
            attributes[3] = 0;
        }
        int32_t mask = rota_index_mask(text, text_length, (unsigned)(random_bits() % 4));
        rota_terms_find(5, text, text_length, mask < 0 ? 0xffff : (uint32_t)mask, attributes, length, &terms);
        CHECK(terms.count < ROTA_TERM_COUNT_MAX);
        free(attributes);
        free(text);
    }
}

int main(void)
{
    test_equal_values();
    test_places();
    test_definitions();
    test_any_bytes();
    return 0;
}
