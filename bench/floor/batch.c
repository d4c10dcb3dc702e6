/* What a batch of 1000 messages of 100 bytes needs: frames, sums and bodies into memory, then the copy into the log. */
#include "clock.h"
#include "rota/crc32c.h"

#define SIZE ((size_t)256 << 20)
#define COUNT 1000u
#define STEP 104u
#define DATA (128 + COUNT * 32)
#define COMMIT (DATA + COUNT * STEP)

static uint8_t commit[COMMIT + 64] __attribute__((aligned(64)));
static uint8_t bodies[COUNT * 160];

/* Each body starts 160 bytes after the last one, as bytes objects do that were made one after the other. */
static void encode(void) {
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t *frame = (uint32_t *)(commit + 128 + 32 * i);
        uint8_t *to = commit + DATA + STEP * i;
        frame[1] = 100;
        frame[2] = DATA + STEP * i;
        frame[3] = 128 + 32 * i;
        memcpy(to, bodies + 160 * i, 100);
        frame[0] = rota_crc32c(rota_crc32c(7, frame + 1, 28), to, 100);
    }
    *(uint32_t *)(commit + 88) = rota_crc32c(7, commit + 96, 32 + 32 * COUNT);
}

int main(void) {
    int fd;
    size_t at = 0;
    uint8_t *log = map_file("floor-batch", SIZE, &fd);
    MEASURE("frames, sums and bodies of 1000 messages", 9, 200, encode());
    MEASURE("copy of the commit into the mapping", 9, 200, {
        memcpy(log + at, commit, COMMIT);
        at = (at + COMMIT) % (SIZE - COMMIT - 4096);
    });
    MEASURE("pwrite of the commit, pages resident", 9, 200, {
        if (pwrite(fd, commit, COMMIT, (off_t)at) < 0)
            return 1;
        at = (at + COMMIT) % (SIZE - COMMIT - 4096);
    });
    MEASURE("both: encode, then copy into the mapping", 9, 200, {
        encode();
        memcpy(log + at, commit, COMMIT);
        at = (at + COMMIT) % (SIZE - COMMIT - 4096);
    });
    MEASURE("copy of the 100,000 bytes alone into the mapping", 9, 200, {
        memcpy(log + at, bodies, 100000);
        at = (at + 100000) % (SIZE - COMMIT - 4096);
    });
    return 0;
}
