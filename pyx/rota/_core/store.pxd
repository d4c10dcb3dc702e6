# An open repository: attach, detach, raise.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.draft cimport Draft
from rota._core.append cimport Placed

ctypedef uint8_t *uint8_t_pointer

@cython.final
cdef class Store:
    cdef rota_handle *h
    cdef readonly object path
    cdef public object compression    # None or "lz4"
    cdef public object block_cache    # (place, raw bytes) of the last decompressed block
    cdef object attributes            # of the message that was read last
    cdef uint8_t_pointer scratch      # memory of the last large draft
    cdef uint64_t scratch_size
    cdef bint refuses                 # opened for reading only
    cdef int unusable(self) except -1
    cdef inline int check(self) except -1:
        """Raise unless this handle may be used in this process."""
        if self.h.closing or self.h.fork_generation != self.h.fork_current[0]:
            self.unusable()
        return 0
    cdef int level_of(self, object durability) except -1
    cdef inline int check_writable(self) except -1:
        if self.h.closing or self.refuses or self.h.fork_generation != self.h.fork_current[0]:
            self.unusable()
        return 0
    cdef int fail(self, rota_error *error) except -1
    cdef int submit(self, Draft *draft, int space, Placed *placed, double deadline) except -1
    cdef bint again(self, int *status, int *slices, rota_error *error) except -1
    cdef int wait_durable(self, uint64_t lsn, double deadline) except -1
    cdef int settle_seen(self, object durability) except -1
    cdef int settle_durability(self, uint64_t lsn, object durability) except -1
    cdef int map_segment(self, uint32_t file) except -1
    cdef int provide(self, Draft *draft, int space, Placed *placed, double deadline, rota_error *error) except 1
    cdef void wait_for_space(self, double deadline) noexcept nogil

cdef double deadline_of(object timeout) except? -2.0
cdef double now() noexcept nogil
