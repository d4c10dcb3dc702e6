# The memory of a producer.
from libc.stdint cimport uint64_t

from rota._core.lot cimport CachedReceipt, Gate, Lot
from rota._core.put cimport Receipt
from rota._core.queue cimport Queue
from rota._core.store cimport Store

cdef class Cache:
    cdef Queue queue_
    cdef Store store
    cdef Gate gate
    cdef Lot current
    cdef Lot unprocessed
    cdef object full_lots
    cdef object signal
    cdef object timeout
    cdef str overflow
    cdef Py_ssize_t count
    cdef Py_ssize_t count_max
    cdef Py_ssize_t batch_size
    cdef uint64_t bytes
    cdef uint64_t bytes_max
    cdef uint64_t batch_bytes
    cdef double interval_s
    cdef double left_at
    cdef Py_ssize_t hurry      # how many wait for all to be written: no pacing
    cdef int asleep
    cdef public bint staged    # messages go through a process callable first
    cdef bint closing
    cdef bint finished
    cdef uint64_t accepted, entered, settled_end, written, batches, dropped, rejected, failed, spilled
    cdef CachedReceipt put_rich(self, bytes body, tuple entry, object timeout)
    cdef CachedReceipt enter(self, CachedReceipt receipt, object entry, uint64_t size, bint rich)
    cdef CachedReceipt make_room(self, uint64_t size, tuple entry, object timeout)
    cdef CachedReceipt spilled_receipt(self, Receipt put)
    cdef int end_staged(self, CachedReceipt receipt, uint64_t size, object error) except -1
    cdef int wake(self) except -1
    cdef int wait_for_room(self, uint64_t size, object timeout) except -1
    cdef int leave(self, Lot lot) except -1
    cdef bint has_room(self, uint64_t size) noexcept
    cdef bint drop_oldest(self) except -1
