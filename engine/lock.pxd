# What `rota/lock.h` declares, for Cython; the header says what it means.
from libc.stdint cimport uint64_t
from engine.control cimport pthread_mutex_t

cdef extern from "rota/lock.h" nogil:
    enum:
        ROTA_LOCK_TAKEN
        ROTA_LOCK_DEAD
        ROTA_LOCK_BUSY
        ROTA_LOCK_BROKEN
    int rota_lock_init(pthread_mutex_t *mutex) noexcept
    int rota_lock_try(pthread_mutex_t *mutex) noexcept
    int rota_lock_spin(pthread_mutex_t *mutex) noexcept
    int rota_lock_wait(pthread_mutex_t *mutex, uint64_t duration_ns) noexcept
    void rota_lock_leave(pthread_mutex_t *mutex) noexcept
    void rota_lock_repaired(pthread_mutex_t *mutex) noexcept
    void rota_fence_after_unlock() noexcept
