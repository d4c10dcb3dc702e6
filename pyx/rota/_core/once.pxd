# Puts with a key that suppresses duplicates.
from libc.stdint cimport uint64_t

from rota._core.pending cimport PendingReceipt
from rota._core.queue cimport Queue

cdef enum:
    KEY_OPERATIONS = 4    # what a key counts of the operations of a transaction: it changes so many lines

cdef PendingReceipt known_receipt(Queue queue, list journal, object dedup, uint64_t *digest)
cdef PendingReceipt with_key(PendingReceipt receipt, object dedup, const uint64_t *digest)
