"""Lots, which a producer commits together, and the receipts of the messages in them.

What holds:

1. A receipt has a lot and a place; what it tells is looked up there, so a put makes nothing but the receipt.
2. A lot is held, then visible or failed, for good.  A message that was dropped from its front is known by its place.
3. A lot and its receipts outlive the cache: they know the gate, where threads wait, and the store, not the cache.
"""

cimport cython
from libc.stdint cimport uint64_t

from engine.atomics cimport *

from rota._core.store cimport Store, deadline_of, now

import copy
import threading

from rota import errors


@cython.final
cdef class Gate:
    """Where threads wait for something to be committed or for room; outlives the cache in its receipts."""

    def __init__(self):
        self.condition = threading.Condition()

    cdef int announce(self) except -1:
        if self.waiting or self.blocked:
            with self.condition:
                self.condition.notify_all()
        return 0


@cython.final
@cython.no_gc
cdef class Lot:
    """Messages that are committed together.  `entries` are bodies, or tuples of all arguments of a put (`rich`)."""

    @property
    def messages(self):
        """What is to be committed, without what was dropped."""
        return self.entries[self.first:] if self.first else self.entries

    @property
    def is_rich(self):
        """Whether some message has more than a body."""
        return self.rich


cdef Lot new_lot(Gate gate, Store store):
    cdef Lot lot = Lot.__new__(Lot)
    lot.gate = gate
    lot.store = store
    lot.entries = []
    return lot


cdef Lot failed_lot(Gate gate, Store store, object error):
    """For a single message that will never be committed, and why."""
    cdef Lot lot = new_lot(gate, store)
    lot.state = FAILED
    lot.error = error
    return lot


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class CachedReceipt:
    """What producer.put() returned: where the message is by now, in memory, in the log, or on the disk."""

    def __init__(self):
        raise TypeError("a cached receipt comes from a producer's put")

    cdef bint dropped_(self) noexcept:
        return self.index < self.lot.first

    @property
    def cached(self):
        """Whether it is only in the memory of this process: its death takes it."""
        return self.lot.state == HELD and not self.dropped_()

    @property
    def visible(self):
        """Whether it is in the log, where other processes see it and a killed process leaves it."""
        return self.lot.state == VISIBLE and not self.dropped_()

    @property
    def durable(self):
        """Whether it survives power loss by now."""
        if self.lot.state != VISIBLE or self.dropped_():
            return False
        self.lot.store.check()
        return rota_load_acquire_u64(&self.lot.store.h.control.durable_lsn) >= self.lot.lsn

    @property
    def id(self):
        """The id of the message; None before it is visible."""
        return self.lot.base_id + self.index - self.lot.first if self.visible else None

    @property
    def error(self):
        """Why it never comes into the queue: an exception; None while it may, or is there."""
        if self.dropped_():
            return errors.Full("the message was dropped from the cache of its producer to make room for a later one",
                               path=self.lot.store.path)
        return self.lot.error

    def wait(self, timeout=None, visible=False):
        """Wait until it is durable, or only visible: True, or False when `timeout` seconds passed before.

        Raises what `error` tells, when it never will be.
        """
        cdef double deadline = deadline_of(timeout), left
        cdef Gate gate = self.lot.gate
        self.lot.store.check()
        if self.cached:
            with gate.condition:
                gate.waiting += 1
                try:
                    while self.cached:
                        left = 3600.0 if deadline < 0 else deadline - now()
                        if left <= 0:
                            return False
                        gate.condition.wait(left)
                finally:
                    gate.waiting -= 1
        error = self.error
        if error is not None:
            raise copy.copy(error) from None  # its traceback would hold this receipt
        if visible:
            return True
        return bool(self.lot.store.wait_durable(self.lot.lsn, deadline))

    def __repr__(self):
        if self.error is not None:
            return f"<rota.CachedReceipt {type(self.error).__name__}>"
        if self.cached:
            return "<rota.CachedReceipt cached>"
        state = "closed" if self.lot.store.closed or self.lot.store.forked else \
            "durable" if self.durable else "visible"
        return f"<rota.CachedReceipt {self.id} {state}>"
