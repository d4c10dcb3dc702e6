# What a put in a transaction returned.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from rota._core.draft cimport Draft
from rota._core.store cimport Store

cdef enum:
    PENDING = 0
    COMMITTED = 1
    UNDONE = 2

cdef class PendingReceipt:
    cdef Store store
    cdef uint64_t serial     # of its transaction
    cdef uint64_t created    # the LSN of the queue's making: a number may be given to another
    cdef uint64_t base_id    # after the commit: of its first message that is left
    cdef uint64_t lsn
    cdef uint32_t queue
    cdef uint32_t first      # index of its first message in the draft
    cdef uint32_t made       # messages put
    cdef uint32_t taken      # of these, from the first on: dequeued or killed by the transaction itself
    cdef uint8_t level
    cdef uint8_t flags       # of the frames
    cdef uint8_t is_answer   # to a request: never refused
    cdef uint8_t state
    cdef uint8_t has_key     # with the digest of a dedup key
    cdef uint64_t key[2]
    cdef readonly bint duplicate
    cdef PendingReceipt twin # of a duplicate: the put of this transaction with the same key

cdef PendingReceipt new_pending(Store store, uint64_t serial, uint32_t queue, uint64_t created)
cdef void drop_taken(Draft *draft, list journal) noexcept
