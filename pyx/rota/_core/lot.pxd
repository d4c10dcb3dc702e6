# What a producer commits together, and its receipts.
from libc.stdint cimport uint64_t

from rota._core.store cimport Store

cdef enum:
    HELD = 0
    VISIBLE = 1
    FAILED = 2

cdef class Gate:
    cdef object condition
    cdef Py_ssize_t waiting  # for something to be committed
    cdef Py_ssize_t blocked  # puts without room
    cdef int announce(self) except -1

cdef class Lot:
    cdef Gate gate
    cdef Store store
    cdef list entries
    cdef uint64_t first      # how many were dropped from the front
    cdef uint64_t bytes
    cdef uint64_t base_id
    cdef uint64_t lsn
    cdef uint64_t end        # how many had entered the cache with its last one
    cdef object error
    cdef int state
    cdef bint rich

cdef class CachedReceipt:
    cdef Lot lot
    cdef uint64_t index
    cdef bint dropped_(self) noexcept

cdef Lot new_lot(Gate gate, Store store)
cdef Lot failed_lot(Gate gate, Store store, object error)

cdef inline CachedReceipt receipt_in(Lot lot, uint64_t index):
    cdef CachedReceipt receipt = CachedReceipt.__new__(CachedReceipt)
    receipt.lot = lot
    receipt.index = index
    return receipt
