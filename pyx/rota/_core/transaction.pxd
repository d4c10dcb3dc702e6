# A transaction in user hands.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from rota._core.append cimport Placed
from rota._core.draft cimport Draft
from rota._core.message cimport Message
from rota._core.pending cimport PendingReceipt
from rota._core.queue cimport Queue
from rota._core.store cimport Store

cdef class Transaction:
    cdef object __weakref__
    cdef Store store
    cdef readonly object repository
    cdef Draft draft
    cdef list journal
    cdef list savepoints
    cdef readonly object durability
    cdef object made_receipt
    cdef object timeout
    cdef uint64_t serial
    cdef uint64_t base_id
    cdef uint64_t end_lsn
    cdef uint64_t kills_seen  # of the repository, when it was looked last whether one hit this transaction
    cdef uint64_t own_queues  # bit number % 64 of a queue that this transaction put into
    cdef uint32_t operations
    cdef uint32_t message_count
    cdef uint32_t records      # of claims, in the entries counted so far
    cdef Py_ssize_t counted
    cdef uint8_t state
    cdef bint any_taken
    cdef uint64_t token_generation
    cdef uint64_t token_number
    cdef int open(self) except -1
    cdef int own(self, Store store) except -1
    cdef Queue under(self, Queue queue)
    cdef int look(self) except -1
    cdef int room(self, uint64_t more, uint32_t operations) except -1
    cdef Message get_beside_own(self, Queue queue, object timeout)
    cdef PendingReceipt add(self, Queue queue, object body, bytes attributes, int priority, uint8_t flags,
                            uint32_t operations)
    cdef PendingReceipt pending(self, Queue queue, uint32_t priority, uint32_t count, uint8_t flags)
    cdef int undo_to(self, Py_ssize_t entries, uint32_t message_count, uint64_t data_bytes,
                     uint32_t operations) except -1
    cdef int add_operations(self, bint by_id) except -1
    cdef int submit(self, Placed *placed) except -1
    cdef int finish(self, uint64_t base_id, uint64_t lsn) except -1
    cdef int abort(self, bint excused) except -1
    cdef int abort_for(self, object error, bint excused) except -1
