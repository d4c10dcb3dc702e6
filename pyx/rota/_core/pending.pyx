"""Puts of a transaction before its commit, and what becomes of them.

What holds:

1. Ids exist after the commit; what is left of a receipt's messages then has ids that follow each other.
2. A transaction takes its own messages from the front of a receipt, so `taken` says which are gone.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memmove

from engine.atomics cimport *
from engine.format cimport rota_frame

from rota._core.draft cimport Draft, message_room
from rota._core.store cimport Store


cdef PendingReceipt new_pending(Store store, uint64_t serial, uint32_t queue, uint64_t created):
    cdef PendingReceipt receipt = PendingReceipt.__new__(PendingReceipt)
    receipt.store = store
    receipt.serial = serial
    receipt.queue = queue
    receipt.created = created
    return receipt


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class PendingReceipt:
    """What a put in a transaction returned: ids and durability exist after the commit.

    `duplicate`: a message with the same dedup key was there, in the queue or among the puts of the transaction: nothing
    was added, and the rest is about that one.
    """

    def __init__(self):
        raise TypeError("a pending receipt comes from a put in a transaction")

    @property
    def count(self):
        """How many messages it stands for, without those that the transaction itself dequeued or killed."""
        if self.twin is not None:
            return self.twin.count
        return self.made - self.taken if self.state != UNDONE else 0

    @property
    def id(self):
        """The first id; None before the commit, and when nothing of it was committed."""
        if self.twin is not None:
            return self.twin.id
        return self.base_id if self.state == COMMITTED and self.made > self.taken else None

    @property
    def ids(self):
        """The ids, a range; None before the commit, and when nothing of it was committed."""
        return None if self.id is None else range(self.id, self.id + self.count)

    @property
    def visible(self):
        """Whether it was committed."""
        return self.twin.visible if self.twin is not None else self.state == COMMITTED

    @property
    def durable(self):
        """Whether it survives power loss by now."""
        if self.twin is not None:
            return self.twin.durable
        if self.state != COMMITTED:
            return False
        self.store.check()
        return rota_load_acquire_u64(&self.store.h.control.durable_lsn) >= self.lsn

    def __repr__(self):
        return f"<rota.PendingReceipt {('not committed', self.ids, 'rolled back')[self.state]}>"


cdef void drop_taken(Draft *draft, list journal) noexcept:
    """Close the gaps that taken messages leave: what is committed has only the others."""
    cdef rota_frame *frames = <rota_frame *>draft.frames
    cdef rota_frame *frame
    cdef PendingReceipt receipt
    cdef uint64_t room, data = 0
    cdef uint32_t count = 0, i
    for entry in journal:
        if type(entry) is not PendingReceipt:
            continue
        receipt = entry
        for i in range(receipt.first + receipt.taken, receipt.first + receipt.made):
            frame = &frames[i]
            room = message_room(frame.attribute_bytes, frame.body_length)
            memmove(draft.data + data, draft.data + frame.offset, room)
            frames[count] = frame[0]
            frames[count].offset = <uint32_t>data
            data += room
            count += 1
        receipt.first = count - (receipt.made - receipt.taken)
    draft.message_count = count
    draft.data_bytes = data
