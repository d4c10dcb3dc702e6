/* The SIGBUS guard: faults in guarded copies become ROTA_BUS, in several threads; others go where they went before. */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "rota/platform_linux.h"

enum { THREADS = 4, ROUNDS = 4000, PAGES = 16 };

static rota_platform table;
static const rota_platform *platform = &table;
static size_t page;

/* A mapping whose second half the file no longer has. */
static uint8_t *half_mapping(const char *name)
{
    void *address = NULL;
    int fd = platform->open(platform, ROTA_HERE, name, ROTA_OPEN_WRITE | ROTA_OPEN_CREATE, 0600);
    CHECK(fd >= 0);
    CHECK_EQUAL(platform->zero(platform, fd, 0, PAGES * page), 0);
    CHECK_EQUAL(platform->map(platform, fd, PAGES * page, true, &address), 0);
    memset(address, 7, PAGES * page);
    CHECK_EQUAL(platform->truncate(platform, fd, PAGES / 2 * page), 0);
    CHECK_EQUAL(platform->close(platform, fd), 0);
    return address;
}

static void test_one_thread(uint8_t *mapping)
{
    uint8_t *private = malloc(PAGES * page);
    uint8_t *border = mapping + PAGES / 2 * page;
    uint32_t crc = 1, expected;
    memset(private, 1, PAGES * page);
    CHECK_EQUAL(platform->copy_guarded(platform, private, mapping, PAGES / 2 * page), ROTA_OK);
    CHECK_EQUAL(private[PAGES / 2 * page - 1], 7);
    CHECK_EQUAL(platform->copy_guarded(platform, private, border, 1), ROTA_BUS);
    CHECK_EQUAL(platform->copy_guarded(platform, private, border - 50, 100), ROTA_BUS);
    CHECK_EQUAL(platform->copy_guarded(platform, private, border - 100, 100), ROTA_OK);
    CHECK_EQUAL(platform->copy_guarded(platform, private, border, 0), ROTA_OK);
    CHECK_EQUAL(platform->copy_guarded(platform, border, private, 100), ROTA_BUS); /* stores fault as well */
    CHECK_EQUAL(platform->copy_guarded(platform, border - 100, private, 100), ROTA_OK);
    expected = rota_crc32c(3, mapping, 1000);
    CHECK_EQUAL(platform->crc_guarded(platform, 3, mapping, 1000, &crc), ROTA_OK);
    CHECK_EQUAL(crc, expected);
    CHECK_EQUAL(platform->crc_guarded(platform, 3, border - 8, 1000, &crc), ROTA_BUS);
    CHECK_EQUAL(platform->crc_guarded(platform, 3, mapping, PAGES * page, &crc), ROTA_BUS);
    CHECK_EQUAL(crc, expected); /* left alone by a fault */
    CHECK_EQUAL(platform->copy_crc_guarded(platform, 3, private, mapping, 1000, &crc), ROTA_OK);
    CHECK_EQUAL(crc, expected);
    CHECK_EQUAL(platform->copy_crc_guarded(platform, 3, private, border - 8, 1000, &crc), ROTA_BUS);
    CHECK_EQUAL(platform->copy_crc_guarded(platform, 3, border - 8, private, 1000, &crc), ROTA_BUS);
    CHECK(rota_guard_current == NULL);
    sigset_t blocked;
    CHECK_EQUAL(pthread_sigmask(SIG_SETMASK, NULL, &blocked), 0);
    CHECK_EQUAL(sigismember(&blocked, SIGBUS), 0);
    free(private);
}

static void test_frames(uint8_t *mapping)
{
    uint8_t *border = mapping + PAGES / 2 * page;
    rota_frame frame = {.back = 200}, found;
    rota_commit_header header = {.lsn = 77}, got;
    uint64_t last = PAGES / 2 * page - sizeof frame;
    memcpy(border - sizeof frame, &frame, sizeof frame);
    memcpy(border - sizeof frame - 200, &header, sizeof header);
    CHECK_EQUAL(platform->frame_guarded(platform, mapping, last, &found, &got), ROTA_OK);
    CHECK(found.back == 200 && got.lsn == 77);
    CHECK_EQUAL(platform->frame_guarded(platform, mapping, last + 32, &found, &got), ROTA_BUS);
    frame.back = (uint32_t)last; /* a commit would start inside the header of the segment */
    memcpy(border - sizeof frame, &frame, sizeof frame);
    CHECK_EQUAL(platform->frame_guarded(platform, mapping, last, &found, &got), ROTA_CORRUPT);
    frame.back = sizeof header - 1;
    memcpy(border - sizeof frame, &frame, sizeof frame);
    CHECK_EQUAL(platform->frame_guarded(platform, mapping, last, &found, &got), ROTA_CORRUPT);
    memset(border - 1000, 7, 1000);
}

static void test_pieces(uint8_t *mapping)
{
    uint8_t *border = mapping + PAGES / 2 * page, to[7][600];
    const uint32_t lengths[7] = {100, 100, 100, 8, 8, 0, 500};
    for (uint32_t count = 0; count <= 7; count++) {
        rota_piece pieces[7];
        for (uint32_t i = 0; i < 7; i++)
            pieces[i] = (rota_piece){.to = to[i], .from = mapping + 700 * i, .length = lengths[i], .sum = i};
        CHECK_EQUAL(platform->gather_guarded(platform, mapping, PAGES * page, pieces, count, true), ROTA_OK);
        for (uint32_t i = 0; i < count; i++)
            CHECK_EQUAL(pieces[i].sum, rota_crc32c_portable(i, mapping + 700 * i, lengths[i]));
        if (count > 0)
            pieces[count - 1].from = border - 1;
        int expected = count > 0 && lengths[count - 1] > 1 ? ROTA_BUS : ROTA_OK;
        CHECK_EQUAL(platform->gather_guarded(platform, mapping, PAGES * page, pieces, count, true), expected);
    }
    CHECK(rota_guard_current == NULL);
}

static void *copy_often(void *mapping)
{
    uint8_t private[512], *border = (uint8_t *)mapping + PAGES / 2 * page;
    for (int round = 0; round < ROUNDS; round++) {
        bool faults = round % 2 == 1;
        size_t away = (size_t)(round * 37) % 2048;
        uint8_t *source = faults ? border + away : border - 512 - away;
        memset(private, 1, sizeof private);
        CHECK_EQUAL(platform->copy_guarded(platform, private, source, sizeof private), faults ? ROTA_BUS : ROTA_OK);
        CHECK(faults || (private[0] == 7 && private[511] == 7));
    }
    return NULL;
}

static void test_threads(uint8_t *mapping)
{
    pthread_t threads[THREADS];
    for (int index = 0; index < THREADS; index++)
        CHECK_EQUAL(pthread_create(&threads[index], NULL, copy_often, mapping), 0);
    for (int index = 0; index < THREADS; index++)
        pthread_join(threads[index], NULL);
}

/* --- faults that are not ours; each in a child that is expected to end ---------------------------------------- */

static void leave_with_42(int number, siginfo_t *information, void *context)
{
    (void)number;
    (void)context;
    _exit(information->si_code > 0 ? 42 : 43);
}

static void leave_with_44(int number)
{
    (void)number;
    _exit(44);
}

/* As a crash reporter does: report, put the one before it back, raise again. */
static struct sigaction before_reporter;
static void report_and_raise(int number)
{
    sigaction(number, &before_reporter, NULL);
    raise(number);
}

static void set_former(void (*simple)(int), void (*full)(int, siginfo_t *, void *))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    if (full != NULL) {
        action.sa_sigaction = full;
        action.sa_flags = SA_SIGINFO;
    } else {
        action.sa_handler = simple;
    }
    action.sa_flags |= SA_NODEFER;
    CHECK_EQUAL(sigaction(SIGBUS, &action, &before_reporter), 0);
    CHECK_EQUAL(platform->guard_install(platform), 0);
}

static void touch(const void *address)
{
    (void)*(const volatile uint8_t *)address;
}

static void fault_to_full_handler(void *mapping)
{
    set_former(NULL, leave_with_42);
    touch((uint8_t *)mapping + PAGES / 2 * page);
}

static void fault_to_simple_handler(void *mapping)
{
    set_former(leave_with_44, NULL);
    touch((uint8_t *)mapping + PAGES / 2 * page);
}

static void fault_to_default(void *mapping)
{
    set_former(SIG_DFL, NULL);
    touch((uint8_t *)mapping + PAGES / 2 * page);
}

static void fault_to_reporter(void *mapping)
{
    set_former(report_and_raise, NULL);
    touch((uint8_t *)mapping + PAGES / 2 * page);
}

static void fault_outside_the_guarded_range(void *mapping)
{
    rota_guard guard;
    set_former(NULL, leave_with_42);
    rota_guard_range(&guard, 0, mapping, page);
    rota_guard_range(&guard, 1, mapping, 0);
    if (sigsetjmp(guard.jump, 0) != 0)
        _exit(9);
    rota_guard_enter(&guard);
    touch((uint8_t *)mapping + PAGES / 2 * page);
}

static void sent_signal(void *mapping)
{
    (void)mapping;
    set_former(NULL, leave_with_42);
    raise(SIGBUS);
}

static void sent_signal_to_default(void *mapping)
{
    (void)mapping;
    set_former(SIG_DFL, NULL);
    raise(SIGBUS);
}

static void sent_signal_ignored(void *mapping)
{
    (void)mapping;
    set_former(SIG_IGN, NULL);
    raise(SIGBUS);
    _exit(45);
}

/* Someone else's handler came on top; installing again puts ours back, once, and keeps theirs as the former one. */
static void installed_twice(void *mapping)
{
    uint8_t byte;
    set_former(NULL, leave_with_42);
    CHECK_EQUAL(platform->guard_install(platform), 0);
    CHECK_EQUAL(platform->copy_guarded(platform, &byte, (uint8_t *)mapping + PAGES / 2 * page, 1), ROTA_BUS);
    touch((uint8_t *)mapping + PAGES / 2 * page);
}

static void test_other_faults(uint8_t *mapping)
{
    int status = ended(fault_to_full_handler, mapping);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    status = ended(fault_to_simple_handler, mapping);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 44);
    status = ended(fault_to_default, mapping);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    status = ended(fault_to_reporter, mapping);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    status = ended(fault_outside_the_guarded_range, mapping);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    status = ended(sent_signal, mapping);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 43);
    status = ended(sent_signal_to_default, mapping);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    status = ended(sent_signal_ignored, mapping);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 45);
    status = ended(installed_twice, mapping);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

int main(void)
{
    table = rota_platform_linux();
    page = (size_t)sysconf(_SC_PAGESIZE);
    signal(SIGBUS, SIG_DFL); /* a sanitizer's own handler would stand before ours */
    CHECK_EQUAL(platform->guard_install(platform), 0);
    uint8_t *mapping = half_mapping("half");
    test_one_thread(mapping);
    test_frames(mapping);
    test_pieces(mapping);
    test_threads(mapping);
    test_other_faults(mapping);
    CHECK_EQUAL(platform->unmap(platform, mapping, PAGES * page), 0);
    return 0;
}
