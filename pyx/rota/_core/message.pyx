"""Messages in user hands: read from the log, acked, returned.

What holds:

1. A body reaches user code only after its mark was set in the claim record.
2. A message that is corrupt is parked, so that its neighbours are not held up; nothing else is touched.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from engine.atomics cimport *
from engine.control cimport *
from engine.crc32c cimport rota_crc32c
from engine.encode cimport rota_encode_op
from engine.format cimport *
from engine.frame cimport rota_attribute_u64, rota_block_check, rota_frame_block
from engine.handle cimport rota_handle
from engine.pool cimport *
from engine.scan cimport rota_commit_header_crc
from engine.status cimport *

from rota._core.append cimport SPACE_SETTLE, Placed
from rota._core.lease cimport extend, mark_shown
from rota._core.draft cimport *
from rota._core.lane cimport queue_at
from rota._core.lock cimport lock_leave, lock_slice
from rota._core.noting cimport keep_reason
from rota._core.reading cimport Reading, read_slot
from rota._core.reap cimport draft_back, wake_draft, wake_queue
from rota._core.store cimport Store, now

from rota import errors

import logging
from rota._core.codec import error_of, headers_of, key_of, put_at

_log = logging.getLogger("rota")

cdef enum:
    LOOKED_AT = 0
    CLAIMED = 1
    SETTLED = 2
    IN_TRANSACTION = 3


cdef int fill_settle(Settle *settle, const Run *run, uint64_t first_id, uint64_t last_id, uint32_t count,
                     bint whole) noexcept nogil:
    memset(settle, 0, sizeof(Settle))
    settle.claim = run.claim
    settle.generation = run.generation
    settle.first_id = first_id
    settle.last_id = last_id
    settle.count = count
    settle.queue = run.queue
    settle.level = run.level
    settle.whole = whole
    settle.token_generation = run.token_generation
    settle.token_number = run.token_number
    return 0


cdef int submit_settle(Store store, Draft *draft, object durability) except -1:
    """Seal and append a draft that settles; 1: the range must be acked by its ids.  The draft is freed by the caller."""
    cdef Placed placed
    cdef rota_error error
    cdef int status = draft_seal(draft)
    if status != ROTA_OK:
        rota_fail(&error, status, NULL, 0, "the settlement does not fit into one commit")
        store.fail(&error)
    if store.submit(draft, SPACE_SETTLE, &placed, -1.0):
        return 1
    wake_draft(store.h, draft)
    store.settle_durability(placed.end_lsn, durability)
    return 0


cdef int park_corrupt(Store store, const Run *run, uint64_t id) except -1:
    """Keep a message that cannot be read, but hand it out no more."""
    cdef Draft draft
    cdef Settle settle
    draft_begin(&draft, store.h)
    try:
        draft_op(&draft, ROTA_OP_RETURN, 2, run.queue, id, run.handouts | <uint64_t>run.excused << 32, 0, NULL, 0)
        fill_settle(&settle, run, id, id, 1, False)
        draft_settle(&draft, &settle)
        submit_settle(store, &draft, None)
    finally:
        draft_end(&draft)
    return 0


cdef Message new_message(Store store, object queue, const Run *run, uint64_t id, rota_slot_ref ref):
    """A message that was just claimed by itself: its mark is set already."""
    cdef Reading reading
    cdef Message message = Message.__new__(Message)
    message.store = store
    message.queue = queue
    message.id = id
    message.run = run[0]
    message.slot = ref
    message.state = CLAIMED
    reading.commit = NULL
    try:
        message._body = read_slot(store, ref, id, &reading)
        message._attributes = store.attributes
    except errors.Corrupt:
        message.state = SETTLED
        park_corrupt(store, run, id)
        raise
    message._header = reading.header
    return message


@cython.final
@cython.freelist(64)
cdef class Message:
    """A message: body, id, key, headers, and what is to become of it.

    A context manager: acked at the end, returned with a counted attempt on an exception.  `id` is unique in the
    repository and rises with each put; `queue` is where it was claimed or looked at.
    """

    def __init__(self):
        raise TypeError("a message comes from queue.get()")

    @property
    def body(self):
        """The body, bytes."""
        if self._body is None:
            self.load(True)
        return self._body

    cdef int load(self, bint mark) except -1:
        cdef Reading reading
        self.store.check()
        if mark and (self.state == CLAIMED or self.state == IN_TRANSACTION):
            mark_shown(self.store, &self.run, self.id)
        reading.commit = NULL
        try:
            self._body = read_slot(self.store, self.slot, self.id, &reading)
            self._attributes = self.store.attributes
        except errors.Corrupt:
            if self.state == CLAIMED:
                self.state = SETTLED
                park_corrupt(self.store, &self.run, self.id)
            raise
        self._header = reading.header
        return 0

    @property
    def key(self):
        """The key: bytes, str or None."""
        if self._body is None:
            self.load(True)
        return key_of(self._attributes) if self._attributes is not None else None

    @property
    def headers(self):
        """The headers, a new dict."""
        if self._body is None:
            self.load(True)
        return headers_of(self._attributes) if self._attributes is not None else {}

    @property
    def error(self):
        """Why it was returned last, as nack(reason=) said, or what a reply says of its request; None: nobody said."""
        if self._body is None:
            self.load(True)
        return error_of(self._attributes) if self._attributes is not None else None

    @property
    def attempts(self):
        """Hand-outs that count, this one included: 1 at first sight."""
        return self.run.handouts - self.run.excused + (1 if self.state != LOOKED_AT else 0)

    @property
    def enqueued_at(self):
        """Seconds since the epoch when it was first committed.  Raises Corrupt when the stored time is damaged."""
        if self._body is None:
            self.load(True)
        if self._time_ns == 0:
            self.find_time()
        return self._time_ns / 1e9

    cdef int find_time(self) except -1:
        """A copy carries it as an attribute; else it is that of the commit, whose sum is looked at only here."""
        if self._attributes is not None:
            self._time_ns = put_at(self._attributes)
        if self._time_ns == 0:
            if rota_commit_header_crc(self.store.h.salt_crc, &self._header) != self._header.header_crc:
                raise errors.Corrupt(f"message {self.id}: the header of its commit, which has the time of the put, does "
                                     f"not match its checksum; run `rota verify {self.store.path}`",
                                     path=self.store.path)
            self._time_ns = self._header.time_ns
        return 0

    @property
    def priority(self):
        """0 to 9; higher ones are handed out first."""
        return self.run.level

    @property
    def settled(self):
        """Whether it was acked, returned or parked through this object."""
        return self.state == SETTLED

    cdef int claimed(self) except -1:
        """True when there is something to settle."""
        self.store.check_writable()
        if self.state == SETTLED:
            return False
        if self.state == IN_TRANSACTION:
            raise errors.StateError("the message belongs to a transaction: its commit settles it")
        if self.state == LOOKED_AT:
            raise errors.StateError("the message was only looked at; get() claims one")
        return True

    def ack(self, durability=None):
        """Settle it for good.  A second ack does nothing.  Raises LeaseLost, Killed, OutcomeUnknown."""
        cdef Draft draft
        cdef Settle settle
        cdef uint8_t memory[128]
        cdef Placed placed
        cdef rota_handle *h = self.store.h
        if not self.claimed():
            self.store.settle_seen(durability)
            return
        self.store.level_of(durability)
        memset(&draft, 0, sizeof(Draft))
        draft.bytes = memory
        draft.length = 128
        draft.op_bytes = 32
        draft.op_count = 1
        rota_encode_op(memory + 96, ROTA_OP_ACK, self.run.level, self.run.queue, self.id, self.id, 1, 0)
        (<rota_commit_header *>memory).meta_crc = rota_crc32c(h.salt_crc, memory + 96, 32)
        fill_settle(&settle, &self.run, self.id, self.id, 1, False)
        settle.ref = self.slot
        draft.settles = &settle
        draft.settle_count = 1
        draft.token_generation = self.run.token_generation
        draft.token_number = self.run.token_number
        try:
            self.store.submit(&draft, SPACE_SETTLE, &placed, -1.0)
        except errors.Killed:
            self.state = SETTLED
            raise
        self.state = SETTLED
        wake_group(h, self.run.queue)
        if rota_load_relaxed_u32(&h.control.space_waiters):
            wake_draft(h, &draft)
        self.store.settle_durability(placed.end_lsn, durability)

    def nack(self, delay=0.0, reason=None):
        """Give it back, the attempt counts: at its old place, after `delay` seconds, or to the error queue when its
        attempts are used up.

        `reason`, a text, is kept with the message, at most 4096 bytes of it: see `error`.  Raises LeaseLost, Killed."""
        if reason is not None and self.claimed():
            _log.info("message %d of %r returned: %s", self.id, self.queue.name, reason)
            self.note(reason)
        self.back(delay, 0)

    cdef int note(self, str reason) except -1:
        cdef Settle settle
        if self._body is None:
            self.load(False)
        if self._time_ns == 0:
            self.find_time()
        fill_settle(&settle, &self.run, self.id, self.id, 0, False)
        try:
            self._attributes = keep_reason(self.store, &settle, self._body, self._attributes or b"", self._time_ns,
                                           reason)
        except errors.Killed:
            self.state = SETTLED
            raise
        return 0

    def release(self, delay=0.0):
        """Give it back; it was not the message's fault, so the attempt does not count.  Raises LeaseLost, Killed."""
        self.back(delay, 1)

    cdef int back(self, object delay, uint64_t excused) except -1:
        cdef Draft draft
        cdef Settle settle
        cdef rota_handle *h = self.store.h
        cdef double seconds = delay
        cdef uint64_t due = 0
        if not self.claimed():
            return 0
        if not 0 <= seconds < 3e9:
            raise ValueError(f"delay is at least 0 seconds, not {delay!r}")
        if seconds > 0:
            due = h.os.clock_wall_ns(h.os) + <uint64_t>(seconds * 1e9)
        if queue_at(h, self.run.queue) == NULL:
            self.state = SETTLED
            raise errors.Killed(f"message {self.id} was killed with its queue", path=self.store.path)
        while self.state == CLAIMED:
            draft_begin(&draft, h)
            try:
                draft_back(h, &draft, queue_at(h, self.run.queue), self.id, <uint64_t>self.run.handouts + 1,
                           <uint64_t>self.run.excused + excused, due, False)
                fill_settle(&settle, &self.run, self.id, self.id, 1, False)
                draft_settle(&draft, &settle)
                submit_settle(self.store, &draft, None)
                self.state = SETTLED
                if queue_at(h, self.run.queue) != NULL:
                    queue_at(h, self.run.queue).nacks += 1
            except errors.NotFound:
                continue  # the queue of its reply was destroyed meanwhile
            except errors.Killed:
                self.state = SETTLED
                raise
            finally:
                draft_end(&draft)
        return 0

    def extend(self, double seconds):
        """Let the lease end `seconds` from now.  Raises LeaseLost, Killed."""
        cdef rota_error error
        cdef int status
        if not 0 < seconds < 3e9:
            raise ValueError(f"a lease ends after 0 seconds, not {seconds!r}")
        if not self.claimed():
            raise errors.StateError("the message is settled")
        status = extend(self.store, &self.run, self.id, <uint64_t>(seconds * 1e9), &error)
        if status != ROTA_OK:
            self.store.fail(&error)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if self.state != CLAIMED:
            return
        if kind is None:
            self.ack()
        elif issubclass(kind, Exception):
            self.nack()
        else:
            self.release()

    def __reduce__(self):
        raise TypeError("a claimed message belongs to its process and is not pickled: pass its body and id on")

    def __repr__(self):
        state = ("looked at", "claimed", "settled", "in a transaction")[self.state]
        text = f"{self._body[:32]!r}{'…' if len(self._body) > 32 else ''}" if self._body is not None else "not shown"
        return f"<rota.Message {self.id} {state} attempt {self.attempts} {text}>"


cdef void wake_group(rota_handle *h, uint32_t number) noexcept nogil:
    """After an ack the next message of its key may be ready."""
    cdef rota_queue *queue = queue_at(h, number)
    if queue != NULL and queue.options.order == ROTA_ORDER_GROUP:
        wake_queue(h, queue)


def submit_ops(Store store, list ops, durability=None):
    """Append operations (kind, detail, queue, id, a, b, extra) that carry no message."""
    cdef Draft draft
    cdef bytes extra
    store.check_writable()
    draft_begin(&draft, store.h)
    try:
        for kind, detail, queue, id, a, b, extra in ops:
            draft_op(&draft, kind, detail, queue, id, a, b, <const char *>extra, len(extra))
        submit_settle(store, &draft, durability)
    finally:
        draft_end(&draft)
