"""The calls of a coordinator on many keys at once.

What holds: keys are a NumPy array of one dimension, of integers (`i`, `u`), byte strings (`S`, zeros at the end are no
part of a key, as in NumPy) or records (`V`, taken whole); an element is the same key as the Python object of its value.
The interpreter's lock is kept, since records of waiters are given back under it.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from engine.automaton cimport *

from rota._core.coordinator cimport Coordinator
from rota._core.keys cimport name_of


cdef object prepared(object keys):
    """The keys as a contiguous array: 64-bit integers, or strings of a fixed size."""
    import numpy
    array = numpy.asarray(keys)
    if array.ndim != 1:
        raise ValueError(f"keys are an array of one dimension, not of {array.ndim}")
    if array.dtype.kind in "iu":
        return numpy.ascontiguousarray(array, dtype=numpy.uint64 if array.dtype.kind == "u" else numpy.int64)
    if array.dtype.kind not in "SV" or array.dtype.itemsize == 0 or array.dtype.hasobject:
        raise TypeError(f"keys are an array of integers or of bytes of a fixed size, not of {array.dtype}")
    return numpy.ascontiguousarray(array)


@cython.final
cdef class Crowd:
    """A prepared array and the memory of one chunk."""

    def __cinit__(self, keys):
        array = prepared(keys)
        self.count = len(array)
        self.step = array.dtype.itemsize
        self.size = self.step if array.dtype.kind in "SV" else 0
        self.with_sign = array.dtype.kind == "i"
        self.keep_zeros = array.dtype.kind == "V"
        self.chunk = <rota_chunk *>PyMem_RawMalloc(sizeof(rota_chunk))
        if self.chunk is NULL:
            raise MemoryError
        # Bytes, since NumPy hands out no plain buffer of a record.
        import numpy
        PyObject_GetBuffer(array.view(numpy.uint8), &self.buffer, PyBUF_SIMPLE)
        self.is_held = True

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.buffer)
        PyMem_RawFree(self.chunk)

    cdef void load(self, const uint64_t *secret, uint64_t begin) noexcept:
        """Name and sort the keys from there on."""
        self.chunk.count = <uint32_t>min(self.count - begin, <uint64_t>ROTA_CHUNK)
        rota_chunk_name(self.chunk, secret, <const uint8_t *>self.buffer.buf + begin * self.step, self.size,
                        self.with_sign, self.keep_zeros)
        rota_chunk_sort(self.chunk)

    cdef int undo(self, Coordinator coordinator, uint64_t owner, const uint8_t *answers, uint32_t taken) except -1:
        """Take back the first so many of the chunk that is loaded."""
        cdef uint32_t i
        for i in range(taken):
            if answers[self.chunk.order[i]] == ROTA_ACCEPT:
                coordinator.dequeue_as(owner, self.chunk.sorted[i], -1)
            elif answers[self.chunk.order[i]] == ROTA_BLOCK:
                coordinator.leave_wait(owner, self.chunk.sorted[i])
        return 0


def enqueue_crowd(Coordinator coordinator, uint64_t owner, keys):
    import numpy
    cdef Crowd crowd = Crowd(keys)
    answers = numpy.zeros(crowd.count, numpy.uint8)
    cdef uint8_t[::1] view = answers
    cdef uint64_t begin = 0, before
    cdef uint32_t taken
    while begin < crowd.count:
        crowd.load(coordinator.automata.secret, begin)
        taken = rota_enqueue_chunk(&coordinator.automata, crowd.chunk, owner, &view[begin])
        if taken < crowd.chunk.count:
            crowd.undo(coordinator, owner, &view[begin], taken)
            for before in range(0, begin, ROTA_CHUNK):
                crowd.load(coordinator.automata.secret, before)
                crowd.undo(coordinator, owner, &view[before], crowd.chunk.count)
            coordinator.refuse(ROTA_TABLE_FULL, f"number {begin + crowd.chunk.order[taken]} of {crowd.count}")
        begin += crowd.chunk.count
    return answers


def dequeue_crowd(Coordinator coordinator, uint64_t owner, keys):
    import numpy
    cdef Crowd crowd = Crowd(keys)
    answers = numpy.zeros(crowd.count, numpy.bool_)
    cdef uint8_t[::1] view = answers.view(numpy.uint8)
    cdef uint64_t begin = 0
    cdef uint32_t i
    while begin < crowd.count:
        crowd.load(coordinator.automata.secret, begin)
        rota_dequeue_chunk(&coordinator.automata, crowd.chunk, owner, &view[begin])
        for i in range(crowd.chunk.woken_count):
            coordinator.wake(crowd.chunk.woken[i])
        begin += crowd.chunk.count
    return answers


def wait_crowd(Coordinator coordinator, uint64_t owner, keys):
    import numpy
    cdef int64_t deadline = coordinator.deadline()
    cdef uint32_t generation = 0
    array = prepared(keys)
    turns = numpy.zeros(len(array), numpy.uint8)
    for i, key in enumerate([bytes(key) for key in array] if array.dtype.kind == "V" else array.tolist()):
        if rota_waiter_of(&coordinator.automata, name_of(coordinator.automata.secret, key), owner) is not NULL:
            turns[i] = coordinator.wait_as(owner, key, deadline, &generation)
    return turns
