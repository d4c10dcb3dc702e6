/*
 * Forks: a child's handles are dead, and it must not keep its parent's locks alive.
 *
 * What holds:
 *  1. The child raises rota_fork_generation() before anything else runs in it; every call compares.
 *  2. Its copies of the lock descriptors are closed there: an OFD lock lives as long as any copy of its descriptor.
 *  3. Included by one module only (rota._core.opening), since it has state.
 */
#ifndef ROTA_FORK_H
#define ROTA_FORK_H

#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#define ROTA_FORK_HANDLES 1024

static uint32_t rota_fork_word = 1;
static int rota_fork_descriptors[ROTA_FORK_HANDLES]; /* lock descriptor + 1 */

static void rota_fork_in_child(void) {
    rota_fork_word++;
    for (int i = 0; i < ROTA_FORK_HANDLES; i++) {
        if (rota_fork_descriptors[i] > 0)
            close(rota_fork_descriptors[i] - 1);
        rota_fork_descriptors[i] = 0;
    }
}

static __attribute__((unused)) int rota_fork_install(void) { return -pthread_atfork(NULL, NULL, rota_fork_in_child); }
static __attribute__((unused)) uint32_t *rota_fork_generation(void) { return &rota_fork_word; }

static __attribute__((unused)) int rota_fork_remember(int fd) {
    for (int i = 0; i < ROTA_FORK_HANDLES; i++) {
        if (rota_fork_descriptors[i] == 0) {
            rota_fork_descriptors[i] = fd + 1;
            return 0;
        }
    }
    return -1;
}

static __attribute__((unused)) void rota_fork_forget(int fd) {
    for (int i = 0; i < ROTA_FORK_HANDLES; i++)
        if (rota_fork_descriptors[i] == fd + 1)
            rota_fork_descriptors[i] = 0;
}

#endif
