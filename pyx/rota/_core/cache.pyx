"""The memory between a put and the log: what a producer holds until its writer commits it.

    put -> current lot -> full lots -> the writer's lot -> log
           (drop-oldest takes here)    (lot_written, lot_failed)

What holds:

1. Every field changes with the GIL held, and nothing that may let it go stands between a look and the act on it: what
   can run a garbage collection (a new lot) is made before, and the look is repeated.
2. `count` and `bytes` are of all messages that were accepted and neither committed, failed nor dropped; no put takes
   them over `count_max` and `bytes_max`, but for a message that alone is larger.
3. A lot is committed whole; the place of a message in it, less those dropped from its front, is its id less `base_id`.
4. A lot leaves when it is full, or when `interval_s` have passed since the last one left: at once under light load.
5. The writer is woken once: only when it said that it sleeps, and for what.
"""

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint64_t

from rota._core.lot cimport FAILED, VISIBLE, CachedReceipt, Gate, Lot, failed_lot, new_lot, receipt_in
from rota._core.put cimport Receipt, commit_limit, too_large
from rota._core.queue cimport Queue
from rota._core.store cimport Store, deadline_of, now

import collections
import threading

from rota import errors
from rota._core.codec import encode_attributes, moments

cdef enum:
    AWAKE = 0
    WANTS_ANY = 1   # the writer sleeps until there is a message
    WANTS_FULL = 2  # it sleeps until its time has come, or a lot is full

cdef enum:
    MESSAGE_BYTES = 512     # so many of what a commit takes for each message, beside the bodies
    SHARE = 2               # the bodies of a lot take at most this part of what fits into a commit
    RICH_MAX = 1000         # operations in a transaction

cdef object ZERO = 0
cdef object NO_DELAY = 0.0


cdef class Cache:
    """The bounded memory of a producer.  One thread, the writer, takes lots; any may put."""

    def __init__(self, Queue queue not None, Py_ssize_t count_max, uint64_t bytes_max, Py_ssize_t batch_size,
                 uint64_t batch_bytes, double interval_s, str overflow, timeout):
        self.queue_ = queue
        self.store = queue.store
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.batch_size = max(1, min(batch_size, count_max // 2, <Py_ssize_t>(commit_limit(self.store) // MESSAGE_BYTES)))
        self.batch_bytes = min(batch_bytes, commit_limit(self.store) // SHARE)
        self.interval_s = interval_s
        self.overflow = overflow
        self.timeout = timeout
        self.gate = Gate()
        self.full_lots = collections.deque()
        self.signal = threading.Lock()
        self.signal.acquire()
        self.unprocessed = new_lot(self.gate, self.store)
        self.current = new_lot(self.gate, self.store)

    def put(self, body, key=None, headers=None, priority=0, delay=0.0, ttl=None, timeout=None):
        """Take one message into the cache and return its CachedReceipt; arguments as in Queue.put().

        `timeout` is how many seconds to wait for room (None: that of the producer), with the overflow "block".  Raises
        Full when there is no room, MessageTooLarge, ClosedError after close(), ForkedHandleError in a forked child.
        """
        cdef CachedReceipt receipt
        cdef bytes taken
        self.store.check_writable()
        if self.closing:
            raise errors.ClosedError("the producer is closed", path=self.store.path)
        if PyBytes_CheckExact(body) and key is None and headers is None and ttl is None and priority is ZERO \
                and delay is NO_DELAY and not self.staged:
            if self.count >= self.count_max or self.bytes + PyBytes_GET_SIZE(body) > self.bytes_max \
                    or PyBytes_GET_SIZE(body) > <Py_ssize_t>self.batch_bytes:
                receipt = self.make_room(PyBytes_GET_SIZE(body), (body,), timeout)
                if receipt is not None:
                    return receipt
            self.count += 1
            self.bytes += PyBytes_GET_SIZE(body)
            self.accepted += 1
            return self.enter(None, body, PyBytes_GET_SIZE(body), False)
        if isinstance(body, str):
            raise TypeError("a body is bytes-like: encode text first")
        if not 0 <= priority <= 9:
            raise ValueError(f"priority is 0 to 9, not {priority}")
        taken = body if type(body) is bytes else bytes(memoryview(body))
        return self.put_rich(taken, (taken, key, headers, priority, delay, ttl), timeout)

    cdef CachedReceipt put_rich(self, bytes body, tuple entry, object timeout):
        """With a key and the like, or on its way through a process callable."""
        cdef CachedReceipt receipt
        cdef uint64_t size = PyBytes_GET_SIZE(body)
        moments(0, entry[4], entry[5])  # what is wrong is told here, not to the messages beside it
        if entry[1] is not None or entry[2] is not None:
            size += len(encode_attributes(entry[1], entry[2], 0, 0))
        receipt = self.make_room(size, entry, timeout)
        if receipt is not None:
            return receipt
        self.count += 1
        self.bytes += size
        self.accepted += 1
        if not self.staged:
            return self.enter(None, entry, size, True)
        receipt = receipt_in(self.unprocessed, 0)
        self._stage(receipt, entry, size)
        return receipt

    def _stage(self, receipt, entry, size):
        """Hand a message to the threads that process: a producer with a process callable does."""
        raise NotImplementedError

    def _unstage(self):
        """Drop the oldest message that waits to be processed, and tell whether there was one."""
        return False

    def _spill(self, entry):
        """Keep a message in the log, unprocessed; returns what its put returned."""
        raise NotImplementedError

    def process_done(self, CachedReceipt receipt not None, entry, uint64_t before, uint64_t size):
        """What became of a staged message: it enters the cache; an entry of None ends it."""
        if entry is None:
            self.end_staged(receipt, before, None)
            return
        if size > commit_limit(self.store) - 512:
            too_large(self.store, size, True)
        self.bytes += size - before
        self.enter(receipt, entry, size, True)

    def process_failed(self, CachedReceipt receipt not None, uint64_t size, error):
        """A staged message ends with an error, which its receipt tells."""
        self.end_staged(receipt, size, error)
        self.failed += 1

    cdef int end_staged(self, CachedReceipt receipt, uint64_t size, object error) except -1:
        receipt.lot = failed_lot(self.gate, self.store, error if error is not None else errors.NotFound(
            "the process callable returned None: the message ended there", path=self.store.path))
        self.count -= 1
        self.bytes -= size
        return self.gate.announce()

    def drop_staged(self, CachedReceipt receipt not None, uint64_t size):
        """A staged message goes to make room."""
        self.end_staged(receipt, size, errors.Full("the message was dropped from the cache of its producer to make "
                                                   "room for a later one", path=self.store.path))
        self.dropped += 1

    cdef CachedReceipt enter(self, CachedReceipt receipt, object entry, uint64_t size, bint rich):
        """Put a message that is counted already at the end of the current lot."""
        cdef Lot lot = self.current, fresh
        while PyList_GET_SIZE(lot.entries) and (PyList_GET_SIZE(lot.entries) >= self.batch_size
                                                or lot.bytes + size > self.batch_bytes or lot.rich != rich
                                                or (rich and PyList_GET_SIZE(lot.entries) >= RICH_MAX)):
            fresh = new_lot(self.gate, self.store)
            if self.current is lot:  # else somebody was faster while it was made
                self.full_lots.append(lot)
                self.current = fresh
            lot = self.current
        if receipt is None:
            receipt = receipt_in(lot, PyList_GET_SIZE(lot.entries))
        else:
            receipt.index = PyList_GET_SIZE(lot.entries)
            receipt.lot = lot
        lot.entries.append(entry)
        lot.bytes += size
        lot.rich = rich
        self.entered += 1
        lot.end = self.entered
        if self.asleep and (self.asleep == WANTS_ANY or PyList_GET_SIZE(lot.entries) >= self.batch_size
                            or self.full_lots):
            self.wake()
        return receipt

    cdef int wake(self) except -1:
        self.asleep = AWAKE
        if self.signal.locked():
            self.signal.release()
        return 0

    cdef bint has_room(self, uint64_t size) noexcept:
        return self.count < self.count_max and (self.bytes + size <= self.bytes_max or self.count == 0)

    cdef CachedReceipt make_room(self, uint64_t size, tuple entry, object timeout):
        """Room for a message: None; or the receipt of one that goes another way.  Raises Full, MessageTooLarge."""
        if size > commit_limit(self.store) - 512:
            too_large(self.store, size, True)
        while not self.has_room(size):
            if self.overflow == "block":
                self.wait_for_room(size, self.timeout if timeout is None else timeout)
            elif self.overflow == "drop-oldest" and self.drop_oldest():
                continue
            elif self.overflow == "spill":
                return self.spilled_receipt(self._spill(entry))
            elif self.overflow == "reject":
                self.rejected += 1
                raise errors.Full(f"the cache of this producer holds {self.count} messages of {self.bytes} bytes, "
                                  f"its bounds are {self.count_max} and {self.bytes_max}", path=self.store.path)
            else:
                self.accepted += 1
                self.dropped += 1
                return receipt_in(failed_lot(self.gate, self.store, errors.Full(
                    "the message was dropped, since the cache of its producer was full", path=self.store.path)), 0)
        return None

    cdef CachedReceipt spilled_receipt(self, Receipt put):
        """That of a message which stands in the log already, in the queue for what spills."""
        cdef Lot lot = new_lot(self.gate, self.store)
        lot.state = VISIBLE
        lot.base_id = put.id
        lot.lsn = put.lsn
        self.spilled += 1
        return receipt_in(lot, 0)

    cdef bint drop_oldest(self) except -1:
        """Drop one message that the writer has not taken; False: there is none."""
        cdef Lot lot
        if self._unstage():
            return True
        while self.full_lots and <Py_ssize_t>(<Lot>self.full_lots[0]).first == len((<Lot>self.full_lots[0]).entries):
            self.full_lots.popleft()
        lot = self.full_lots[0] if self.full_lots else self.current
        if <Py_ssize_t>lot.first == PyList_GET_SIZE(lot.entries):
            return False
        entry = lot.entries[lot.first]
        lot.entries[lot.first] = None
        size = len(entry) if not lot.rich else len(entry[0])
        lot.first += 1
        self.count -= 1
        self.bytes -= <uint64_t>size
        lot.bytes -= <uint64_t>size
        self.dropped += 1
        if self.gate.waiting:
            self.gate.announce()
        return True

    cdef int wait_for_room(self, uint64_t size, object timeout) except -1:
        cdef double deadline = deadline_of(timeout), left
        cdef Gate gate = self.gate
        with gate.condition:
            gate.blocked += 1
            try:
                while not self.has_room(size) and not self.closing:
                    left = 3600.0 if deadline < 0 else deadline - now()
                    if left <= 0:
                        self.rejected += 1
                        raise errors.Full(f"no room in the cache of this producer within {timeout} seconds",
                                          path=self.store.path)
                    gate.condition.wait(left)
                if self.closing:
                    raise errors.ClosedError("the producer was closed while a put waited for room",
                                             path=self.store.path)
            finally:
                gate.blocked -= 1
        return 0

    def next_lot(self):
        """For the writer: the next lot that is due, after a sleep; None when no more will come."""
        cdef Lot lot, fresh
        cdef double wait
        while True:
            fresh = new_lot(self.gate, self.store)
            lot = self.current
            if self.full_lots:
                lot = self.full_lots.popleft()
                break
            if <Py_ssize_t>lot.first < PyList_GET_SIZE(lot.entries):
                wait = self.left_at + self.interval_s - now()
                if wait <= 0 or self.hurry or PyList_GET_SIZE(lot.entries) >= self.batch_size:
                    self.current = fresh
                    break
                self.asleep = WANTS_FULL
                self.signal.acquire(True, wait)
            elif self.finished:
                return None
            else:
                self.asleep = WANTS_ANY
                self.signal.acquire()
            self.asleep = AWAKE
        self.left_at = now()
        return lot

    cdef int leave(self, Lot lot) except -1:
        """A lot is out of the cache, in whichever way."""
        cdef uint64_t count = PyList_GET_SIZE(lot.entries) - lot.first
        lot.entries = None
        self.count -= count
        self.bytes -= lot.bytes
        self.settled_end = lot.end
        if self.gate.waiting or (self.gate.blocked and self.count * 2 <= self.count_max):
            self.gate.announce()
        elif self.gate.blocked and self.bytes * 2 <= self.bytes_max and self.count < self.count_max:
            self.gate.announce()
        return 0

    def lot_written(self, Lot lot not None, uint64_t base_id, uint64_t lsn):
        """For the writer: the lot is in the log."""
        lot.base_id = base_id
        lot.lsn = lsn
        lot.state = VISIBLE
        self.written += PyList_GET_SIZE(lot.entries) - lot.first
        self.batches += 1
        self.leave(lot)

    def lot_failed(self, Lot lot not None, error):
        """For the writer: the lot will never be in the log."""
        lot.error = error
        lot.state = FAILED
        self.failed += PyList_GET_SIZE(lot.entries) - lot.first
        self.leave(lot)

    def wait_settled(self, double deadline):
        """Wait until everything that is in the cache now was written or failed: False when the deadline came first."""
        cdef uint64_t until = self.entered
        cdef double left
        cdef Gate gate = self.gate
        cdef bint done
        with gate.condition:
            gate.waiting += 1
            self.hurry += 1
            self.wake()
            try:
                while self.settled_end < until:
                    left = 3600.0 if deadline < 0 else deadline - now()
                    if left <= 0:
                        return False
                    gate.condition.wait(left)
            finally:
                gate.waiting -= 1
                self.hurry -= 1
        return True

    def stop_taking(self):
        """From now on puts are refused, and those that wait for room end."""
        self.closing = True
        with self.gate.condition:
            self.gate.condition.notify_all()

    def finish(self):
        """Nothing more will enter: the writer ends when it has written what is there."""
        self.finished = True
        self.hurry += 1
        self.wake()

    def fail_rest(self, error):
        """After the writer ended: what is still there will never be in the log."""
        cdef Lot lot = self.current
        self.current = new_lot(self.gate, self.store)
        self.full_lots.append(lot)
        while self.full_lots:
            self.lot_failed(self.full_lots.popleft(), error)

    def counts(self):
        """The figures, by name."""
        return {"accepted": self.accepted, "cached": self.count, "cached_bytes": self.bytes, "written": self.written,
                "batches": self.batches, "dropped": self.dropped, "rejected": self.rejected, "failed": self.failed,
                "spilled": self.spilled}


def deadline_from(timeout):
    """The point on the clock of the engine that is `timeout` seconds away; -1 for None."""
    return deadline_of(timeout)
