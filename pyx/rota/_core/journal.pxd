# What a transaction did, entry by entry.
from libc.stdint cimport uint32_t, uint64_t

from engine.handle cimport rota_handle

from rota._core.draft cimport Draft
from rota._core.message cimport Message
from rota._core.pending cimport PendingReceipt
from rota._core.queue cimport Queue
from rota._core.store cimport Store

# First items of the journal's tuples; messages, batches and pending receipts stand in it as they are.
cdef enum:
    FOREIGN = 0    # claimed: settled by the commit, claimed outside
    TAG = 1        # registration, tag, of what, expected LSN
    OWN = 2        # receipt, message: a message that this transaction put and took
    KILL = 3       # number of the queue, id
    DROP = 4       # receipt, taken before: what was put is undone
    REGISTER = 5   # registration
    DEREGISTER = 6 # registration

cdef PendingReceipt next_own(list journal, uint32_t queue)
cdef Message own_message(Store store, Draft *draft, object queue, PendingReceipt receipt)
cdef int add_puts(Draft *draft, list journal, bint any_taken) except -1
cdef int add_keys(Draft *draft, list journal) except -1
cdef int add_settlements(Store store, Draft *draft, list journal, bint by_id) except -1
cdef int add_registrations(Draft *draft, list journal, int wanted) except -1
cdef int add_tags(Draft *draft, list journal) except -1
cdef bint changes(list journal, object registration, int wanted) except -1
cdef int settle_entry(object entry) except -1
cdef uint64_t first_killed(rota_handle *h, list journal) except? 0
cdef bint holds(list journal, object id) except -1
cdef list undo(list undone)
cdef Queue beside(Queue queue, list journal, Py_ssize_t *counted, uint32_t *records)
