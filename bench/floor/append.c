/* What one put needs at least: the robust lock, the sums of one commit of 100 bytes, its copy to the end of a mapped log. */
#include "clock.h"
#include "rota/crc32c.h"
#include "rota/lock.h"

#define SIZE ((size_t)256 << 20)
#define COMMIT 272u

static uint8_t commit[512] __attribute__((aligned(64)));

static void sums(uint32_t salt) {
    uint32_t sum = rota_crc32c(rota_crc32c(salt, commit + 132, 28), commit + 160, 100);
    memcpy(commit + 128, &sum, 4);
    sum = rota_crc32c(salt, commit + 96, 64);
    memcpy(commit + 88, &sum, 4);
    sum = rota_crc32c(salt, commit, 92);
    memcpy(commit + 92, &sum, 4);
}

int main(void) {
    int fd;
    size_t at = 0;
    uint8_t *log = map_file("floor-append", SIZE, &fd);
    pthread_mutex_t *lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rota_lock_init(lock);
    MEASURE("robust lock and unlock", 9, 1000000, { rota_lock_try(lock); rota_lock_leave(lock); });
    MEASURE("sums of a commit of one message", 9, 1000000, sums((uint32_t)i));
    MEASURE("copy of it to the moving end of a mapping", 9, 100000, {
        memcpy(log + at, commit, COMMIT);
        at = (at + COMMIT) % (SIZE - 4096);
    });
    MEASURE("the same, its lines fetched one step ahead", 9, 100000, {
        memcpy(log + at, commit, COMMIT);
        at = (at + COMMIT) % (SIZE - 4096);
        for (unsigned line = 0; line <= COMMIT; line += 64)
            __builtin_prefetch(log + at + line, 1);
    });
    MEASURE("all of it", 9, 100000, {
        sums((uint32_t)i);
        rota_lock_try(lock);
        memcpy(log + at, commit, COMMIT);
        at = (at + COMMIT) % (SIZE - 4096);
        rota_lock_leave(lock);
    });
    struct timespec time;
    MEASURE("the coarse clock", 9, 1000000, clock_gettime(CLOCK_REALTIME_COARSE, &time));
    MEASURE("the boot clock", 9, 1000000, clock_gettime(CLOCK_BOOTTIME, &time));
    return 0;
}
