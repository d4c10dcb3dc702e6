/* What the disk needs: a write in place with its fdatasync, of one block and of a batch. */
#include "clock.h"

#define SIZE ((size_t)16 << 20)

int main(void) {
    int fd;
    size_t at = 0;
    uint8_t *file = map_file("floor-sync", SIZE, &fd);
    char *data = calloc(1, 1 << 20);
    (void)file;
    fsync(fd);
    MEASURE("pwrite of 4 KiB in place and fdatasync", 5, 20, {
        if (pwrite(fd, data, 4096, (off_t)at) < 0 || fdatasync(fd) != 0)
            return 1;
        at = (at + 4096) % (SIZE - 4096);
    });
    MEASURE("pwrite of 136 KiB in place and fdatasync", 5, 20, {
        if (pwrite(fd, data, 136 << 10, (off_t)at) < 0 || fdatasync(fd) != 0)
            return 1;
        at = (at + (136 << 10)) % (SIZE - (1 << 18));
    });
    return 0;
}
