/* The least time of several rounds, in nanoseconds of one step. */
#ifndef FLOOR_CLOCK_H
#define FLOOR_CLOCK_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static inline double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

#define MEASURE(name, rounds, count, step)                                                                            \
    do {                                                                                                              \
        double least = 1e18, sum = 0;                                                                                 \
        for (int round = 0; round < (rounds); round++) {                                                              \
            double begun = now_ns();                                                                                  \
            for (long i = 0; i < (count); i++) {                                                                      \
                step;                                                                                                 \
            }                                                                                                         \
            double each = (now_ns() - begun) / (double)(count);                                                       \
            sum += each;                                                                                              \
            if (each < least)                                                                                         \
                least = each;                                                                                         \
        }                                                                                                             \
        printf("%-58s %10.1f %10.1f\n", name, least, sum / (rounds));                                                 \
    } while (0)

/* A file written once and mapped, each page writable. */
static inline uint8_t *map_file(const char *name, size_t size, int *fd) {
    char *zeros = calloc(1, size);
    *fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (*fd < 0 || zeros == NULL || pwrite(*fd, zeros, size, 0) != (ssize_t)size)
        exit(1);
    free(zeros);
    unlink(name);
    uint8_t *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (base == MAP_FAILED)
        exit(1);
    for (size_t at = 0; at < size; at += 4096)
        base[at] = 1;
    return base;
}

#endif
