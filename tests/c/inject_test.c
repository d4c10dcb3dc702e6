/* The injection layer: the n-th call fails and does nothing, delays delay, clocks shift, the rest passes through. */
#include "check.h"

#include <pthread.h>
#include <string.h>

#include "rota/inject.h"
#include "rota/platform_linux.h"

static rota_platform table, plain;
static const rota_platform *platform = &table;
static rota_injection injection;

static void test_table_is_complete(void)
{
    void *const *entry = (void *const *)(const void *)&table;
    void *const *before = (void *const *)(const void *)&plain;
    for (int call = 0; call < ROTA_CALL_COUNT; call++) {
        CHECK(rota_call_name(call) != NULL);
        CHECK_EQUAL(rota_call_by_name(rota_call_name(call)), call);
        CHECK(before[call] != NULL && entry[call] != NULL && entry[call] != before[call]);
    }
    CHECK_EQUAL(offsetof(rota_platform, record_context), ROTA_CALL_COUNT * sizeof(void *));
    CHECK_EQUAL(rota_call_by_name("none"), -1);
    CHECK(rota_call_name(-1) == NULL && rota_call_name(ROTA_CALL_COUNT) == NULL);
}

static void test_nth_call_fails(void)
{
    uint8_t byte = 1;
    int fd = platform->open(platform, ROTA_HERE, "file", ROTA_OPEN_WRITE | ROTA_OPEN_CREATE, 0600);
    CHECK(fd >= 0);
    rota_injection_arm(&injection, ROTA_CALL_pwrite, 3, ENOSPC, 0);
    CHECK_EQUAL(platform->pwrite(platform, fd, &byte, 1, 0), 0);
    CHECK_EQUAL(platform->pwrite(platform, fd, &byte, 1, 1), 0);
    CHECK_EQUAL(platform->pwrite(platform, fd, &byte, 1, 2), -ENOSPC);
    rota_facts facts;
    CHECK_EQUAL(platform->facts(platform, fd, &facts), 0);
    CHECK_EQUAL(facts.size, 2); /* the failed one wrote nothing */
    CHECK_EQUAL(platform->pwrite(platform, fd, &byte, 1, 2), 0);
    CHECK_EQUAL(injection.points[ROTA_CALL_pwrite].calls, 4);
    CHECK_EQUAL(injection.points[ROTA_CALL_pwrite].fired, 1);

    rota_injection_arm(&injection, ROTA_CALL_sync, ROTA_INJECT_EVERY, EIO, 0);
    for (int round = 0; round < 5; round++)
        CHECK_EQUAL(platform->sync(platform, fd), -EIO);
    rota_injection_arm(&injection, ROTA_CALL_sync, 0, 0, 0);
    CHECK_EQUAL(platform->sync(platform, fd), 0);
    CHECK_EQUAL(platform->close(platform, fd), 0);
}

static void test_failures_of_other_shapes(void)
{
    uint8_t from[8] = {1}, to[8] = {2};
    uint32_t crc;
    void *address = NULL;
    rota_injection_arm(&injection, ROTA_CALL_memory_allocate, 1, ENOMEM, 0);
    CHECK(platform->memory_allocate(platform, 8, 8) == NULL);
    void *memory = platform->memory_allocate(platform, 8, 8);
    CHECK(memory != NULL);
    platform->memory_free(platform, memory);
    rota_injection_arm(&injection, ROTA_CALL_copy_guarded, 1, EIO, 0);
    CHECK_EQUAL(platform->copy_guarded(platform, to, from, 8), ROTA_BUS);
    CHECK_EQUAL(to[0], 2);
    CHECK_EQUAL(platform->copy_guarded(platform, to, from, 8), ROTA_OK);
    rota_injection_arm(&injection, ROTA_CALL_crc_guarded, 1, EIO, 0);
    CHECK_EQUAL(platform->crc_guarded(platform, 0, from, 8, &crc), ROTA_BUS);
    rota_injection_arm(&injection, ROTA_CALL_copy_crc_guarded, 1, EIO, 0);
    CHECK_EQUAL(platform->copy_crc_guarded(platform, 0, to, from, 8, &crc), ROTA_BUS);
    rota_injection_arm(&injection, ROTA_CALL_map, 1, ENOMEM, 0);
    CHECK_EQUAL(platform->map(platform, -1, 4096, true, &address), -ENOMEM);
    CHECK_EQUAL(platform->map(platform, -1, 4096, true, &address), -EBADF);
    uint32_t word = 0;
    rota_injection_arm(&injection, ROTA_CALL_futex_wait, 1, EINTR, 0);
    CHECK_EQUAL(platform->futex_wait(platform, &word, 0, -1), -EINTR);
}

static void test_delays_and_clocks(void)
{
    rota_injection_arm(&injection, ROTA_CALL_futex_wake, 1, 0, 20000000);
    uint32_t word = 0;
    uint64_t before = platform->clock_boot_ns(platform);
    CHECK_EQUAL(platform->futex_wake(platform, &word, 1), 0);
    CHECK(platform->clock_boot_ns(platform) - before >= 20000000);
    uint64_t wall = platform->clock_wall_ns(platform), boot = platform->clock_boot_ns(platform);
    rota_injection_shift(&injection, UINT64_C(3600000000000), (uint64_t)-INT64_C(5));
    CHECK(platform->clock_wall_ns(platform) - wall >= UINT64_C(3600000000000));
    CHECK(platform->clock_wall_coarse_ns(platform) > wall + UINT64_C(3599000000000));
    CHECK(platform->clock_boot_ns(platform) - boot < UINT64_C(60000000000));
    rota_injection_clear(&injection);
    CHECK(platform->clock_wall_ns(platform) - wall < UINT64_C(3600000000000));
}

static void *call_often(void *failures)
{
    uint32_t word = 0;
    for (int round = 0; round < 10000; round++)
        if (platform->futex_wake(platform, &word, 1) != 0)
            rota_fetch_add_u32(failures, 1);
    return NULL;
}

/* Exactly one of the calls of four threads is the 12,345th. */
static void test_threads(void)
{
    pthread_t threads[4];
    uint32_t failures = 0;
    rota_injection_clear(&injection);
    rota_injection_arm(&injection, ROTA_CALL_futex_wake, 12345, EINVAL, 0);
    for (int index = 0; index < 4; index++)
        CHECK_EQUAL(pthread_create(&threads[index], NULL, call_often, &failures), 0);
    for (int index = 0; index < 4; index++)
        pthread_join(threads[index], NULL);
    CHECK_EQUAL(failures, 1);
    CHECK_EQUAL(injection.points[ROTA_CALL_futex_wake].calls, 40000);
    CHECK_EQUAL(injection.points[ROTA_CALL_futex_wake].fired, 1);
}

int main(void)
{
    plain = table = rota_platform_linux();
    rota_injection_install(&table, &injection);
    rota_injection_install(&table, &injection); /* a second time changes nothing */
    CHECK_EQUAL(platform->guard_install(platform), 0);
    test_table_is_complete();
    test_nth_call_fails();
    test_failures_of_other_shapes();
    test_delays_and_clocks();
    test_threads();
    return 0;
}
