# One table of deduplication automata and the calls on it.
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.automaton cimport rota_automata, rota_key_name, rota_waiter

@cython.final
cdef class Coordinator:
    cdef rota_automata automata
    cdef void *tables        # stripes and slots
    cdef uint64_t table_bytes
    cdef int64_t timeout_ns  # -1: for ever
    cdef uint32_t process    # who made the table; a forked child's copy is nobody's
    cdef readonly uint64_t capacity
    cdef dict futures        # address of the waiter -> (loop, future) of the task behind it

    cdef int allocate(self, uint64_t capacity) except -1
    cdef int use(self) except -1
    cdef int enqueue_as(self, uint64_t owner, object key, uint32_t *generation) except -10
    cdef int refuse(self, int action, object key) except -1
    cdef int wake(self, rota_waiter *woken) except -1
    cdef bint dequeue_as(self, uint64_t owner, rota_key_name name, int64_t generation) except -1
    cdef rota_waiter *waiter_as(self, uint64_t owner, rota_key_name name, object key) except NULL
    cdef int sleep(self, rota_waiter *waiter, int64_t deadline) except -1
    cdef int wait_as(self, uint64_t owner, object key, int64_t deadline, uint32_t *generation) except -1
    cdef int leave_wait(self, uint64_t owner, rota_key_name name) except -1
    cdef int64_t now(self) noexcept
    cdef int64_t deadline(self) noexcept
