/* What a batch of 1000 messages of 100 bytes needs: frames, sums and bodies into memory, then the copy into the log. */
#include "clock.h"
#include "rota/crc32c.h"
#include "rota/encode.h"

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

/* The same with the sums of three bodies side by side, and each header stored once. */
static void encode_threes(void) {
    for (uint32_t i = 0; i + 3 <= COUNT; i += 3) {
        uint32_t sums[3];
        uint8_t *to = commit + DATA + STEP * i;
        for (uint32_t k = 0; k < 3; k++) {
            sums[k] = rota_plain_frame_sum(7, 100, DATA + STEP * (i + k), 128 + 32 * (i + k), 1, 0);
            memcpy(to + STEP * k, bodies + 160 * (i + k), 100);
        }
        rota_crc32c_three(sums, to, to + STEP, to + 2 * STEP, 100);
        for (uint32_t k = 0; k < 3; k++)
            rota_encode_plain_frame(commit + 128 + 32 * (i + k), sums[k], 100, DATA + STEP * (i + k), 128 + 32 * (i + k),
                                    1, 0);
    }
    uint32_t sum = rota_crc32c(7, commit + 96, 32 + 32 * COUNT);
    memcpy(commit + 88, &sum, 4);
}

int main(void) {
    int fd;
    size_t at = 0;
    uint8_t *log = map_file("floor-batch", SIZE, &fd);
    MEASURE("frames, sums and bodies of 1000 messages", 9, 200, encode());
    MEASURE("the same, three side by side", 9, 200, encode_threes());
    MEASURE("copy of the commit into the mapping", 9, 200, {
        memcpy(log + at, commit, COMMIT);
        at = (at + COMMIT) % (SIZE - COMMIT - 4096);
    });
    MEASURE("pwrite of the commit, pages resident", 9, 200, {
        if (pwrite(fd, commit, COMMIT, (off_t)at) < 0)
            return 1;
        at = (at + COMMIT) % (SIZE - COMMIT - 4096);
    });
    MEASURE("both: encode by threes, then pwrite", 9, 200, {
        encode_threes();
        if (pwrite(fd, commit, COMMIT, (off_t)at) < 0)
            return 1;
        at = (at + COMMIT) % (SIZE - COMMIT - 4096);
    });
    MEASURE("both: encode by threes, then copy into the mapping", 9, 200, {
        encode_threes();
        memcpy(log + at, commit, COMMIT);
        at = (at + COMMIT) % (SIZE - COMMIT - 4096);
    });
    MEASURE("copy of the 100,000 bytes alone into the mapping", 9, 200, {
        memcpy(log + at, bodies, 100000);
        at = (at + 100000) % (SIZE - COMMIT - 4096);
    });
    return 0;
}
