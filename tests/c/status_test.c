/* Statuses, errors, atomics: numbers that do not collide, texts cut and not overrun, words raised by threads. */
#include "check.h"

#include <pthread.h>

#include "rota/status.h"

static const int statuses[] = {
#define ENTRY(name, number, text) ROTA_##name,
    ROTA_STATUSES(ENTRY)
#undef ENTRY
};
enum { STATUSES = sizeof statuses / sizeof statuses[0] };

static void test_numbers(void)
{
    CHECK_EQUAL(ROTA_OK, 0);
    for (int index = 0; index < STATUSES; index++) {
        CHECK_EQUAL(statuses[index], -(ROTA_STATUS_BASE + index + 1));
        CHECK(!rota_is_errno(statuses[index]));
        CHECK_EQUAL(rota_status_by_name(rota_status_name(statuses[index])), statuses[index]);
        CHECK(strlen(rota_status_text(statuses[index])) > 5);
    }
    CHECK(rota_is_errno(-1) && rota_is_errno(-4095) && !rota_is_errno(0) && !rota_is_errno(5));
    CHECK_EQUAL(rota_status_by_name("NO_SUCH"), ROTA_OK);
    CHECK(strcmp(rota_status_name(ROTA_LEASE_LOST), "LEASE_LOST") == 0);
    CHECK(strcmp(rota_status_name(-EIO), "OS") == 0);
    CHECK(strcmp(rota_status_name(-99999), "UNKNOWN") == 0);
    CHECK_EQUAL(rota_status_of_errno(-ENOSPC), ROTA_DISK_FULL);
    CHECK_EQUAL(rota_status_of_errno(EROFS), ROTA_OS);
    CHECK_EQUAL(rota_status_of_errno(EIO), ROTA_OS);
}

static void test_errors(void)
{
    rota_error error;
    char name[200];
    memset(name, 'n', sizeof name);
    name[199] = 0;
    memset(&error, 0xff, sizeof error);
    CHECK_EQUAL(rota_fail(&error, ROTA_CORRUPT, "seg.000001", 4096, "bad %s at %d", "magic", 7), ROTA_CORRUPT);
    CHECK(strcmp(error.file, "seg.000001") == 0 && strcmp(error.detail, "bad magic at 7") == 0);
    CHECK(error.offset == 4096 && error.os_errno == 0 && error.expected == 0 && error.found == 0);
    CHECK_EQUAL(rota_fail(&error, -ENOSPC, NULL, 0, "allocate"), ROTA_DISK_FULL);
    CHECK(error.os_errno == ENOSPC && error.file[0] == 0 && error.status == ROTA_DISK_FULL);
    CHECK_EQUAL(rota_fail(&error, ROTA_OS, name, 0, "%s", name), ROTA_OS);
    CHECK(strlen(error.file) == 63 && strlen(error.detail) == 159);
    CHECK_EQUAL(rota_fail(NULL, -EIO, name, 0, "%s", name), ROTA_OS);
    CHECK_EQUAL(rota_fail_compared(&error, ROTA_CORRUPT, "seg", 8, 1, 2, "checksum"), ROTA_CORRUPT);
    CHECK(error.expected == 1 && error.found == 2 && strcmp(error.detail, "checksum") == 0);
    rota_error_clear(&error);
    CHECK_EQUAL(error.status, ROTA_OK);
}

static uint64_t sum, highest;
static uint32_t raised;

static void *add_and_raise(void *argument)
{
    uint64_t own = (uint64_t)(uintptr_t)argument;
    for (uint64_t step = 0; step < 20000; step++) {
        rota_fetch_add_u64(&sum, 1);
        if (rota_raise_u64(&highest, step * 4 + own))
            rota_fetch_add_relaxed_u32(&raised, 1);
        rota_pause();
    }
    return NULL;
}

static void test_atomics(void)
{
    pthread_t threads[4];
    for (uintptr_t index = 0; index < 4; index++)
        CHECK_EQUAL(pthread_create(&threads[index], NULL, add_and_raise, (void *)index), 0);
    for (int index = 0; index < 4; index++)
        pthread_join(threads[index], NULL);
    CHECK_EQUAL(rota_load_acquire_u64(&sum), 80000);
    CHECK_EQUAL(rota_load_relaxed_u64(&highest), 79999);
    CHECK(raised >= 20000 && raised <= 80000);
    uint32_t word = 5, expected = 4;
    CHECK(!rota_compare_exchange_u32(&word, &expected, 9) && expected == 5 && word == 5);
    CHECK(rota_compare_exchange_u32(&word, &expected, 9) && word == 9);
    CHECK_EQUAL(rota_exchange_u32(&word, 12), 9);
    CHECK_EQUAL(rota_fetch_or_u32(&word, 3), 12);
    CHECK_EQUAL(rota_fetch_and_u32(&word, 5), 15);
    CHECK_EQUAL(rota_fetch_sub_u32(&word, 6), 5);
    CHECK_EQUAL(word, UINT32_MAX);
    CHECK(!rota_raise_u32(&word, 7));
}

int main(void)
{
    test_numbers();
    test_errors();
    test_atomics();
    return 0;
}
