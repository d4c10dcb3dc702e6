# What `rota/thread.h` declares, for Cython; the header says what it means.
from libc.stdint cimport uint64_t

cdef extern from "rota/thread.h" nogil:
    int rota_thread_start(uint64_t *thread, void *(*run)(void *) noexcept nogil, void *argument) noexcept
    void rota_thread_join(uint64_t thread) noexcept
