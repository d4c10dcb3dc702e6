# One limiter of a repository: its mapped file, and the calls on it.
cimport cython
from libc.stdint cimport uint32_t, uint64_t

from engine.limiter cimport rota_key_name, rota_limit_file, rota_limit_turn
from engine.status cimport rota_error

from rota._core.store cimport Store

@cython.final
cdef class Limiter:
    cdef Store store
    cdef rota_limit_file *file
    cdef uint64_t file_bytes
    cdef uint32_t slot_count     # read once and checked; the file may say something else later
    cdef uint32_t process
    cdef readonly object repository
    cdef readonly str name
    cdef bytes file_name

    cdef int open_file(self, bytes name, double rate, double burst, uint64_t capacity) except -1
    cdef bint complete(self, int fd) except -1
    cdef int create(self, int fd, bytes name, double rate, double burst, uint64_t capacity) except -1
    cdef int map_file(self, int fd, bytes name) except -1
    cdef int begin_boot(self) except -1
    cdef int system(self, int status, str what) except -1
    cdef int damaged(self, str what) except -1
    cdef int ask(self, double cost, object timeout, rota_limit_turn *turn) except -1
    cdef bint take(self, double cost, object key, object timeout, rota_limit_turn *turn) except -1
    cdef int enter(self, rota_key_name name, rota_limit_turn *turn, object key) except -1
    cdef int enter_locked(self, int lock, rota_key_name name, rota_limit_turn *turn) noexcept nogil
    cdef int sleep(self, uint64_t begins) except -1
