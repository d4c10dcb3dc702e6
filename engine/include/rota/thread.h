/*
 * A native thread: no Python in it, no signal delivered to it.
 *
 * What holds:
 *  1. Every signal but SIGBUS is blocked in the new thread, so handlers run in the threads of the program as before;
 *     a blocked SIGBUS of an own access would end the process before the guard sees it.
 *  2. Its stack is small and fixed.
 */
#ifndef ROTA_THREAD_H
#define ROTA_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include "rota/atomics.h"

#define ROTA_THREAD_STACK (512u << 10)

_Static_assert(sizeof(pthread_t) <= sizeof(uint64_t), "a thread's name fits into the handle");

/* Start `run(argument)`; 0 or a negated errno. */
ROTA_COLD int rota_thread_start(uint64_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t made;
    int result = pthread_attr_init(&attributes);
    if (result != 0)
        return -result;
    pthread_attr_setstacksize(&attributes, ROTA_THREAD_STACK);
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    result = pthread_create(&made, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (result == 0) {
        pthread_setname_np(made, "rota");
        *thread = (uint64_t)made;
    }
    return -result;
}

ROTA_COLD void rota_thread_join(uint64_t thread) { pthread_join((pthread_t)thread, NULL); }

#endif
