/* The Linux table, the rest: futexes across processes, clocks, who we are, memory, which file systems are allowed. */
#include "check.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "rota/platform_linux.h"

enum { ROUNDS = 2000 };
static rota_platform table;
static const rota_platform *platform = &table;

static uint32_t *mapped_words(void)
{
    void *address = NULL;
    int fd = platform->open(platform, ROTA_HERE, "words", ROTA_OPEN_WRITE | ROTA_OPEN_CREATE, 0600);
    CHECK(fd >= 0);
    CHECK_EQUAL(platform->allocate(platform, fd, 0, 4096), 0);
    CHECK_EQUAL(platform->map(platform, fd, 4096, true, &address), 0);
    CHECK_EQUAL(platform->close(platform, fd), 0);
    return address;
}

static void wait_for(uint32_t *word, uint32_t wanted)
{
    uint32_t seen;
    while ((seen = rota_load_acquire_u32(word)) != wanted) {
        int result = platform->futex_wait(platform, word, seen, 5000000000);
        CHECK(result == 0 || result == -EAGAIN || result == -EINTR); /* never the five seconds */
    }
}

/* Ball and answer, each process through a mapping of its own. */
static void answer(void *unused)
{
    uint32_t *words = mapped_words();
    (void)unused;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        wait_for(&words[0], round);
        rota_store_release_u32(&words[16], round);
        CHECK(platform->futex_wake(platform, &words[16], 1) >= 0);
    }
}

static void test_futex_between_processes(void)
{
    uint32_t *words = mapped_words();
    pid_t child = fork();
    if (child == 0) {
        answer(NULL);
        _exit(0);
    }
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        rota_store_release_u32(&words[0], round);
        CHECK(platform->futex_wake(platform, &words[0], 1) >= 0);
        wait_for(&words[16], round);
    }
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_EQUAL(platform->unmap(platform, words, 4096), 0);
}

static void nothing(int number)
{
    (void)number;
}

static void test_futex_ends(void)
{
    uint32_t word = 1;
    CHECK_EQUAL(platform->futex_wait(platform, &word, 2, -1), -EAGAIN);
    uint64_t before = platform->clock_boot_ns(platform);
    CHECK_EQUAL(platform->futex_wait(platform, &word, 1, 20000000), -ETIMEDOUT);
    CHECK(platform->clock_boot_ns(platform) - before >= 20000000);
    CHECK_EQUAL(platform->futex_wait(platform, &word, 1, 0), -ETIMEDOUT);
    CHECK_EQUAL(platform->futex_wake(platform, &word, 1), 0);
    struct sigaction action = {.sa_handler = nothing};
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    CHECK_EQUAL(sigaction(SIGALRM, &action, NULL), 0);
    CHECK_EQUAL(setitimer(ITIMER_REAL, &soon, NULL), 0);
    CHECK_EQUAL(platform->futex_wait(platform, &word, 1, -1), -EINTR);
}

static void test_clocks(void)
{
    uint64_t wall = platform->clock_wall_ns(platform), coarse = platform->clock_wall_coarse_ns(platform);
    CHECK(wall > UINT64_C(1700000000000000000));
    CHECK(coarse <= platform->clock_wall_ns(platform) && wall - coarse + 1000000000 < 2000000000);
    uint64_t before = platform->clock_boot_ns(platform);
    CHECK_EQUAL(platform->sleep(platform, 3000000), 0);
    CHECK(platform->clock_boot_ns(platform) - before >= 3000000);
    CHECK_EQUAL(platform->yield_processor(platform), 0);
    for (int round = 0; round < 1000; round++) {
        int64_t behind = (int64_t)(platform->clock_boot_ns(platform) - platform->clock_boot_coarse_ns(platform));
        CHECK(behind > -40000000 && behind < 40000000 + 1000000000); /* a second for a machine that stalls in between */
    }
}

static void test_identity(void)
{
    uint8_t boot[16] = {0}, again[16], random[2][32];
    uint64_t pids = 0, times = 1, start = 0, same = 0;
    CHECK_EQUAL(platform->boot_id(platform, boot), 0);
    CHECK_EQUAL(platform->boot_id(platform, again), 0);
    CHECK(memcmp(boot, again, sizeof boot) == 0);
    CHECK_EQUAL(boot[6] >> 4, 4); /* a random uuid says so */
    CHECK_EQUAL(platform->pid_namespace(platform, &pids), 0);
    CHECK(pids != 0);
    CHECK_EQUAL(platform->time_namespace(platform, &times), 0);
    CHECK_EQUAL(platform->process_id(platform), getpid());
    CHECK_EQUAL(platform->process_start(platform, getpid(), &start), 0);
    CHECK_EQUAL(platform->process_start(platform, getpid(), &same), 0);
    CHECK(start > 0 && start == same);
    CHECK_EQUAL(platform->process_start(platform, 1 << 30, &start), -ENOENT);
    CHECK_EQUAL(platform->random(platform, random[0], 32), 0);
    CHECK_EQUAL(platform->random(platform, random[1], 32), 0);
    CHECK(memcmp(random[0], random[1], 32) != 0);
}

static void test_memory(void)
{
    for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
        uint8_t *memory = platform->memory_allocate(platform, alignment, 1000);
        CHECK(memory != NULL && (uintptr_t)memory % alignment == 0);
        for (int at = 0; at < 1000; at++)
            CHECK_EQUAL(memory[at], 0);
        memset(memory, 1, 1000);
        platform->memory_free(platform, memory);
    }
    platform->memory_free(platform, platform->memory_allocate(platform, 64, 0));
    platform->memory_free(platform, NULL);
}

static int kind_of(const char *path, char name[32])
{
    int fd = platform->open(platform, ROTA_HERE, path, ROTA_OPEN_FOLLOW, 0);
    if (fd < 0)
        return fd;
    int kind = platform->filesystem_kind(platform, fd, name);
    CHECK_EQUAL(platform->close(platform, fd), 0);
    return kind;
}

static void test_file_systems(void)
{
    char name[32];
    CHECK_EQUAL(kind_of("/proc/self", name), ROTA_FILESYSTEM_REFUSED);
    CHECK(strcmp(name, "proc") == 0);
    int kind = kind_of("/dev/shm", name);
    CHECK(kind < 0 || (kind == ROTA_FILESYSTEM_VOLATILE) == (strcmp(name, "tmpfs") == 0));
    CHECK(kind_of(".", name) >= 0 && name[0] != 0);
    CHECK_EQUAL(platform->filesystem_kind(platform, -1, name), -EBADF);

    CHECK_EQUAL(rota_filesystem_verdict(0xef53, "ext4", name), ROTA_FILESYSTEM_ALLOWED);
    CHECK_EQUAL(rota_filesystem_verdict(0xef53, "ext2", name), ROTA_FILESYSTEM_ALLOWED);
    CHECK(strcmp(name, "ext2") == 0);
    CHECK_EQUAL(rota_filesystem_verdict(0x58465342, "xfs", name), ROTA_FILESYSTEM_ALLOWED);
    CHECK_EQUAL(rota_filesystem_verdict(0x01021994, "tmpfs", name), ROTA_FILESYSTEM_VOLATILE);
    CHECK_EQUAL(rota_filesystem_verdict(0x58465342, NULL, name), ROTA_FILESYSTEM_ALLOWED);
    CHECK(strcmp(name, "xfs") == 0);
    /* the two witnesses disagree, or nobody knows */
    CHECK_EQUAL(rota_filesystem_verdict(0xef53, "overlay", name), ROTA_FILESYSTEM_REFUSED);
    CHECK_EQUAL(rota_filesystem_verdict(0x794c7630, "ext4", name), ROTA_FILESYSTEM_REFUSED);
    CHECK_EQUAL(rota_filesystem_verdict(0x65735546, "virtiofs", name), ROTA_FILESYSTEM_REFUSED);
    CHECK(strcmp(name, "virtiofs") == 0);
    CHECK_EQUAL(rota_filesystem_verdict(0x65735546, "fuse.a-name-that-is-longer-than-the-room-for-it", name), 2);
    CHECK_EQUAL(strlen(name), 31);
    CHECK_EQUAL(rota_filesystem_verdict(0x12345678, NULL, name), ROTA_FILESYSTEM_REFUSED);
    CHECK(strcmp(name, "0x12345678") == 0);
    const char *refused[] = {"btrfs", "zfs", "overlay", "fuse", "9p", "nfs", "cifs", "smb2", "ceph"};
    for (size_t index = 0; index < sizeof refused / sizeof refused[0]; index++) {
        for (size_t entry = 0; entry < sizeof rota_filesystems / sizeof rota_filesystems[0]; entry++) {
            uint32_t magic = rota_filesystems[entry].magic;
            CHECK_EQUAL(rota_filesystem_verdict(magic, refused[index], name), ROTA_FILESYSTEM_REFUSED);
        }
    }
}

int main(void)
{
    table = rota_platform_linux();
    test_futex_between_processes();
    test_futex_ends();
    test_clocks();
    test_identity();
    test_memory();
    test_file_systems();
    return 0;
}
