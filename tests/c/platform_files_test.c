/* The Linux table, files: opening, whole transfers, renames, mappings, range locks, and what is recorded of them. */
#include "check.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "rota/platform_linux.h"

static rota_platform table;
static const rota_platform *platform = &table;

static int created(const char *name)
{
    int fd = platform->open(platform, ROTA_HERE, name, ROTA_OPEN_WRITE | ROTA_OPEN_CREATE | ROTA_OPEN_EXCLUSIVE, 0600);
    CHECK(fd >= 0);
    return fd;
}

static void test_open(void)
{
    rota_facts facts;
    int directory, fd;
    CHECK_EQUAL(platform->make_directory(platform, ROTA_HERE, "folder", 0700), 0);
    CHECK_EQUAL(platform->make_directory(platform, ROTA_HERE, "folder", 0700), -EEXIST);
    directory = platform->open(platform, ROTA_HERE, "folder", ROTA_OPEN_DIRECTORY, 0);
    CHECK(directory >= 0);
    CHECK_EQUAL(platform->facts(platform, directory, &facts), 0);
    CHECK(facts.directory && !facts.regular);
    fd = platform->open(platform, directory, "file", ROTA_OPEN_WRITE | ROTA_OPEN_CREATE, 0640);
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK_EQUAL(platform->truncate(platform, fd, 12345), 0);
    CHECK_EQUAL(platform->facts(platform, fd, &facts), 0);
    CHECK(facts.regular && !facts.directory && facts.size == 12345 && facts.links == 1 && facts.owner == geteuid());
    CHECK_EQUAL(facts.mode & 0700, 0600);
    CHECK_EQUAL(platform->close(platform, fd), 0);
    CHECK_EQUAL(platform->open(platform, directory, "file", ROTA_OPEN_CREATE | ROTA_OPEN_EXCLUSIVE, 0600), -EEXIST);
    CHECK_EQUAL(platform->open(platform, directory, "none", ROTA_OPEN_READ, 0), -ENOENT);
    CHECK_EQUAL(platform->open(platform, directory, "file", ROTA_OPEN_DIRECTORY, 0), -ENOTDIR);
    CHECK_EQUAL(symlinkat("file", directory, "link"), 0);
    CHECK_EQUAL(platform->open(platform, directory, "link", ROTA_OPEN_READ, 0), -ELOOP);
    fd = platform->open(platform, directory, "link", ROTA_OPEN_FOLLOW, 0);
    CHECK(fd >= 0);
    CHECK_EQUAL(platform->close(platform, fd), 0);
    CHECK_EQUAL(mkfifoat(directory, "fifo", 0600), 0);
    fd = platform->open(platform, directory, "fifo", ROTA_OPEN_READ, 0); /* must not wait for a writer */
    CHECK(fd >= 0);
    CHECK_EQUAL(platform->facts(platform, fd, &facts), 0);
    CHECK(!facts.regular);
    CHECK_EQUAL(platform->close(platform, fd), 0);
    CHECK_EQUAL(platform->close(platform, fd), -EBADF);
    CHECK_EQUAL(platform->close(platform, directory), 0);
}

static void test_transfers(void)
{
    static uint8_t out[100000], back[100000];
    int fd = created("transfers");
    for (size_t at = 0; at < sizeof out; at++)
        out[at] = (uint8_t)random_bits();
    CHECK_EQUAL(platform->pwrite(platform, fd, out, sizeof out, 777), 0);
    CHECK_EQUAL(platform->pread(platform, fd, back, sizeof back, 777), 0);
    CHECK(memcmp(out, back, sizeof out) == 0);
    CHECK_EQUAL(platform->pread(platform, fd, back, 2, 777 + sizeof out - 1), -ENODATA);
    CHECK_EQUAL(platform->pread(platform, fd, back, 0, 1 << 30), 0);
    CHECK_EQUAL(platform->zero(platform, fd, 1000, 9001), 0);
    CHECK_EQUAL(platform->pread(platform, fd, back, sizeof back, 777), 0);
    for (size_t at = 0; at < sizeof out; at++)
        CHECK_EQUAL(back[at], at >= 223 && at < 223 + 9001 ? 0 : out[at]);
    CHECK_EQUAL(platform->allocate(platform, fd, 0, 1 << 20), 0);
    rota_facts facts;
    CHECK_EQUAL(platform->facts(platform, fd, &facts), 0);
    CHECK_EQUAL(facts.size, 1 << 20);
    CHECK_EQUAL(platform->sync(platform, fd), 0);
    CHECK_EQUAL(platform->sync_metadata(platform, fd), 0);
    CHECK_EQUAL(platform->drop_cache(platform, fd), 0);
    CHECK_EQUAL(platform->close(platform, fd), 0);
    CHECK_EQUAL(platform->pwrite(platform, fd, out, 1, 0), -EBADF);
    CHECK_EQUAL(platform->sync(platform, fd), -EBADF);
}

static void test_direct_reads(void)
{
    int fd = created("direct");
    uint8_t *page = platform->memory_allocate(platform, ROTA_DIRECT_ALIGNMENT, ROTA_DIRECT_ALIGNMENT);
    CHECK(page != NULL);
    memset(page, 9, ROTA_DIRECT_ALIGNMENT);
    CHECK_EQUAL(platform->pwrite(platform, fd, page, ROTA_DIRECT_ALIGNMENT, 0), 0);
    CHECK_EQUAL(platform->sync(platform, fd), 0);
    CHECK_EQUAL(platform->close(platform, fd), 0);
    fd = platform->open(platform, ROTA_HERE, "direct", ROTA_OPEN_DIRECT, 0);
    if (fd != -EINVAL) { /* a file system in memory has no such way */
        CHECK(fd >= 0);
        memset(page, 0, ROTA_DIRECT_ALIGNMENT);
        CHECK_EQUAL(platform->pread(platform, fd, page, ROTA_DIRECT_ALIGNMENT, 0), 0);
        CHECK_EQUAL(page[ROTA_DIRECT_ALIGNMENT - 1], 9);
        CHECK_EQUAL(platform->close(platform, fd), 0);
    }
    platform->memory_free(platform, page);
}

static int count_names(void *context, const char *name)
{
    int *count = context;
    CHECK(name[0] != '.');
    return ++*count == 100 ? 77 : 0;
}

static void test_names(void)
{
    char name[16];
    int count = 0, directory;
    CHECK_EQUAL(platform->make_directory(platform, ROTA_HERE, "names", 0700), 0);
    directory = platform->open(platform, ROTA_HERE, "names", ROTA_OPEN_DIRECTORY, 0);
    for (int number = 0; number < 3; number++) {
        snprintf(name, sizeof name, "seg.%06d", number);
        platform->close(platform, platform->open(platform, directory, name, ROTA_OPEN_WRITE | ROTA_OPEN_CREATE, 0600));
    }
    CHECK_EQUAL(platform->list_directory(platform, directory, count_names, &count), 0);
    CHECK_EQUAL(count, 3);
    CHECK_EQUAL(platform->list_directory(platform, directory, count_names, &count), 0); /* from the start again */
    CHECK_EQUAL(count, 6);
    count = 98;
    CHECK_EQUAL(platform->list_directory(platform, directory, count_names, &count), 77);
    CHECK_EQUAL(platform->rename_new(platform, directory, "seg.000000", "seg.000001"), -EEXIST);
    CHECK_EQUAL(platform->rename_new(platform, directory, "seg.000000", "seg.000009"), 0);
    CHECK_EQUAL(platform->rename(platform, directory, "seg.000009", "seg.000001"), 0);
    CHECK_EQUAL(platform->rename(platform, directory, "seg.000009", "seg.000001"), -ENOENT);
    CHECK_EQUAL(platform->unlink(platform, directory, "seg.000001"), 0);
    CHECK_EQUAL(platform->unlink(platform, directory, "seg.000001"), -ENOENT);
    CHECK_EQUAL(platform->sync_directory(platform, directory), 0);
    count = 0;
    CHECK_EQUAL(platform->list_directory(platform, directory, count_names, &count), 0);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(platform->close(platform, directory), 0);
}

static void touch(void *address)
{
    *(volatile uint8_t *)address = 1;
}

static void test_mappings(void)
{
    void *first = NULL, *second = NULL, *readable = NULL;
    int fd = created("mapped");
    uint8_t byte = 0;
    CHECK_EQUAL(platform->zero(platform, fd, 0, 8192), 0);
    CHECK_EQUAL(platform->map(platform, fd, 8192, true, &first), 0);
    CHECK_EQUAL(platform->map(platform, fd, 8192, true, &second), 0);
    CHECK_EQUAL(platform->map(platform, fd, 8192, false, &readable), 0);
    ((uint8_t *)first)[5000] = 42;
    CHECK_EQUAL(((uint8_t *)second)[5000], 42);
    CHECK_EQUAL(((uint8_t *)readable)[5000], 42);
    CHECK_EQUAL(platform->pread(platform, fd, &byte, 1, 5000), 0);
    CHECK_EQUAL(byte, 42);
    CHECK_EQUAL(platform->populate(platform, second, 8192, true), 0);
    CHECK_EQUAL(platform->populate(platform, readable, 8192, false), 0);
    CHECK_EQUAL(platform->dont_fork(platform, first, 8192), 0);
    int status = ended(touch, second);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    status = ended(touch, first);
    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
    CHECK_EQUAL(platform->unmap(platform, first, 8192), 0);
    CHECK_EQUAL(platform->unmap(platform, second, 8192), 0);
    CHECK_EQUAL(platform->unmap(platform, readable, 8192), 0);
    CHECK(platform->map(platform, fd, 0, false, &readable) < 0);
    CHECK_EQUAL(platform->close(platform, fd), 0);
}

static void hold_byte_7(void *ready)
{
    int fd = platform->open(platform, ROTA_HERE, "locks", ROTA_OPEN_WRITE, 0);
    CHECK_EQUAL(platform->lock_range(platform, fd, 7, 1, true), 0);
    CHECK_EQUAL(write(*(int *)ready, "r", 1), 1);
    for (;;)
        pause();
}

static void test_range_locks(void)
{
    int first = created("locks"), ready[2];
    int second = platform->open(platform, ROTA_HERE, "locks", ROTA_OPEN_WRITE, 0);
    char letter;
    CHECK_EQUAL(platform->lock_range(platform, first, 0, 1, true), 0);
    CHECK_EQUAL(platform->lock_range(platform, first, 0, 1, true), 0); /* one's own is no obstacle */
    CHECK_EQUAL(platform->lock_range(platform, second, 0, 1, true), -EAGAIN);
    CHECK_EQUAL(platform->lock_range(platform, second, 0, 1, false), -EAGAIN);
    CHECK_EQUAL(platform->lock_range(platform, second, 1, 1, true), 0);
    CHECK_EQUAL(platform->test_range(platform, first, 0, 1), 0);
    CHECK_EQUAL(platform->test_range(platform, second, 0, 1), 1);
    CHECK_EQUAL(platform->test_range(platform, first, 0, 10), 1);
    CHECK_EQUAL(platform->test_range(platform, first, 2, 10), 0);
    CHECK_EQUAL(platform->unlock_range(platform, first, 0, 1), 0);
    CHECK_EQUAL(platform->lock_range(platform, second, 0, 1, false), 0);
    CHECK_EQUAL(platform->lock_range(platform, first, 0, 1, false), 0); /* shared by two */
    CHECK_EQUAL(platform->lock_range(platform, first, 0, 1, true), -EAGAIN);
    CHECK_EQUAL(platform->close(platform, second), 0);
    CHECK_EQUAL(platform->lock_range(platform, first, 0, 1, true), 0);

    CHECK_EQUAL(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0)
        hold_byte_7(&ready[1]);
    CHECK_EQUAL(read(ready[0], &letter, 1), 1);
    CHECK_EQUAL(platform->test_range(platform, first, 7, 1), 1);
    CHECK_EQUAL(kill(child, SIGKILL), 0);
    CHECK_EQUAL(waitpid(child, NULL, 0), child);
    CHECK_EQUAL(platform->test_range(platform, first, 7, 1), 0);
    CHECK_EQUAL(platform->lock_range(platform, first, 7, 1, true), 0);
    CHECK_EQUAL(platform->close(platform, first), 0);
}

static void nothing(int number)
{
    (void)number;
}

/* Signals in the midst of everything change no result. */
static void test_signals(void)
{
    static uint8_t data[1 << 16], back[1 << 16];
    struct sigaction action = {.sa_handler = nothing};
    struct itimerval often = {.it_interval = {.tv_usec = 50}, .it_value = {.tv_usec = 50}}, never = {.it_value = {0}};
    int fd = created("signals");
    memset(data, 3, sizeof data);
    CHECK_EQUAL(sigaction(SIGALRM, &action, NULL), 0);
    CHECK_EQUAL(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (int round = 0; round < 200; round++) {
        CHECK_EQUAL(platform->pwrite(platform, fd, data, sizeof data, 0), 0);
        CHECK_EQUAL(platform->pread(platform, fd, back, sizeof back, 0), 0);
        CHECK_EQUAL(round % 20 == 0 ? platform->sync(platform, fd) : 0, 0);
        CHECK_EQUAL(platform->allocate(platform, fd, 0, sizeof data * 2), 0);
    }
    CHECK_EQUAL(platform->sleep(platform, 5000000), 0);
    CHECK_EQUAL(setitimer(ITIMER_REAL, &never, NULL), 0);
    CHECK_EQUAL(platform->close(platform, fd), 0);
}

/* --- the recorder --------------------------------------------------------------------------------------------- */

static char told[1024];

static void tell(const char *text, long long first, long long second)
{
    size_t used = strlen(told);
    snprintf(told + used, sizeof told - used, "%s %lld %lld\n", text, first, second);
}

static void tell_store(void *context, int file, uint64_t offset, const void *data, uint64_t length)
{
    CHECK(context == told && file >= 0);
    tell(data == NULL ? "zero" : "store", (long long)offset, (long long)length);
}

static void tell_sync(void *context, int file, int stage)
{
    CHECK(context == told);
    tell("sync", stage, file < 0);
}

static void tell_change(void *context, int change, int file, const char *name, const char *other, uint64_t value)
{
    CHECK(context == told && (file >= 0 || file == ROTA_HERE));
    char text[64];
    snprintf(text, sizeof text, "change %s %s", name ? name : "-", other ? other : "-");
    tell(text, change, (long long)value);
}

static void test_recorder(void)
{
    uint8_t byte = 1;
    table.record_context = told;
    table.record_store = tell_store;
    table.record_sync = tell_sync;
    table.record_change = tell_change;
    int fd = created("recorded");
    platform->allocate(platform, fd, 0, 4096);
    platform->zero(platform, fd, 0, 4096);
    platform->pwrite(platform, fd, &byte, 1, 17);
    rota_record_store(platform, fd, 99, &byte, 1);
    platform->sync(platform, fd);
    platform->truncate(platform, fd, 10);
    platform->rename(platform, ROTA_HERE, "recorded", "renamed");
    platform->unlink(platform, ROTA_HERE, "renamed");
    platform->close(platform, fd);
    platform->sync(platform, -1);
    table.record_store = NULL;
    table.record_sync = NULL;
    table.record_change = NULL;
    CHECK(strcmp(told, "change recorded - 1 7\nchange - - 4 4096\nzero 0 4096\nstore 17 1\nstore 99 1\nsync 0 0\n"
                       "sync 1 0\nchange - - 3 10\nchange recorded renamed 5 0\nchange renamed - 6 0\n"
                       "change - - 2 0\nsync 0 1\nsync 2 1\n") == 0);
}

int main(void)
{
    table = rota_platform_linux();
    test_open();
    test_transfers();
    test_direct_reads();
    test_names();
    test_mappings();
    test_range_locks();
    test_signals();
    test_recorder();
    return 0;
}
