/* What the C tests share: a check that names its place and ends the test, children whose end is examined, random bits.
 *
 * A test is a program: it prints nothing and returns 0, or says what failed and returns 1. It works in the directory
 * that it is started in. */
#ifndef ROTA_TESTS_CHECK_H
#define ROTA_TESTS_CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                               \
            _exit(1);                                                                                               \
        }                                                                                                           \
    } while (0)

#define CHECK_EQUAL(left, right)                                                                                    \
    do {                                                                                                            \
        long long left_value = (long long)(left), right_value = (long long)(right);                                 \
        if (left_value != right_value) {                                                                            \
            fprintf(stderr, "%s:%d: %s is %lld, %s is %lld\n", __FILE__, __LINE__, #left, left_value, #right,       \
                    right_value);                                                                                   \
            _exit(1);                                                                                               \
        }                                                                                                           \
    } while (0)

/* Runs a function in a forked child; what waitpid tells about its end. A return of it is an exit with 0. */
static __attribute__((unused)) int ended(void (*body)(void *), void *argument)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        body(argument);
        _exit(0);
    }
    int status = 0;
    CHECK_EQUAL(waitpid(child, &status, WUNTRACED), child);
    return status;
}

static __attribute__((unused)) uint64_t random_state = 88172645463325252u;

static __attribute__((unused)) uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

#endif
