# A prepared array of keys and the memory of one chunk.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.automaton cimport rota_chunk

from rota._core.coordinator cimport Coordinator

@cython.final
cdef class Crowd:
    cdef rota_chunk *chunk
    cdef Py_buffer buffer
    cdef uint64_t count, size, step
    cdef bint with_sign, keep_zeros, is_held

    cdef void load(self, const uint64_t *secret, uint64_t begin) noexcept
    cdef int undo(self, Coordinator coordinator, uint64_t owner, const uint8_t *answers, uint32_t taken) except -1
