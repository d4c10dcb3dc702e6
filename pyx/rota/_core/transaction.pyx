"""Transactions in their plain form: claims, puts, acks and tags of any queues, one commit.

What holds:

1. Claims are taken at once and seen by all; puts are private until the commit; ids exist after it.
2. The commit is one record: all or nothing, whoever dies.  LeaseLost or Killed on one operation aborts all.
3. An abort gives the claimed messages back; attempts count unless the abort was asked for (rollback()).
"""

cimport cython
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from engine.atomics cimport *
from engine.control cimport *
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.status cimport *

from rota._core.append cimport SPACE_ANSWER, SPACE_PUT, Placed
from rota._core.batch cimport Batch
from rota._core.draft cimport *
from rota._core.lane cimport queue_at
from rota._core.message cimport Message, fill_settle
from rota._core.put cimport add_message, commit_limit
from rota._core.queue cimport Queue
from rota._core.reap cimport wake_draft
from rota._core.registration cimport registration_find, Registration as NativeRegistration
from rota._core.lock cimport lock_leave, lock_slice
from rota._core.store cimport Store

from rota import errors
from rota._core.codec import encode_attributes, moments

cdef enum:
    CLAIMED = 1
    SETTLED = 2
    IN_TRANSACTION = 3


@cython.final
cdef class PendingReceipt:
    """What a put in a transaction returned: ids and durability exist after the commit; `count` is how many it put."""

    cdef Transaction owner
    cdef uint32_t first
    cdef readonly uint32_t count

    def __init__(self):
        raise TypeError("a pending receipt comes from a put in a transaction")

    @property
    def id(self):
        """The id, or None before the commit."""
        return self.owner.base_id + self.first if self.owner.state == SETTLED else None

    @property
    def ids(self):
        """The ids, a range, or None before the commit."""
        return None if self.id is None else range(self.id, self.id + self.count)

    @property
    def visible(self):
        """Whether it was committed."""
        return self.owner.state == SETTLED

    @property
    def durable(self):
        """Whether it survives power loss by now."""
        return self.visible and self.owner.receipt.durable

    def __repr__(self):
        return f"<rota.PendingReceipt {self.ids if self.visible else 'not committed'}>"


@cython.final
cdef class Transaction:
    """Operations of any queues of a repository, committed together; a context manager.

    `repository` and `durability` are what it was made with; `receipt` is that of all its puts, None before the commit.
    """

    cdef Store store
    cdef readonly object repository
    cdef Draft draft
    cdef list claims          # messages and batches of this transaction
    cdef list foreign         # claimed outside, settled by the commit
    cdef list runs            # (queue, priority, first, count, flags) of puts
    cdef list tags
    cdef readonly object durability
    cdef readonly object receipt
    cdef uint64_t base_id
    cdef uint8_t state        # 1 open, 2 committed, 3 rolled back
    cdef uint64_t token_generation
    cdef uint64_t token_number

    def __init__(self, Store store not None, repository, token=None, durability=None):
        store.check_writable()
        store.level_of(durability)
        self.store = store
        self.repository = repository
        self.durability = durability
        self.claims = []
        self.foreign = []
        self.runs = []
        self.tags = []
        self.state = 1
        if token is not None:
            self.token_generation = token >> 64
            self.token_number = token & 0xffffffffffffffff
        draft_begin(&self.draft, store.h)

    def __dealloc__(self):
        draft_end(&self.draft)

    cdef int open(self) except -1:
        if self.store is None:
            raise TypeError("a transaction comes from repo.transaction()")
        self.store.check_writable()
        if self.state != 1:
            raise errors.StateError("the transaction has ended")
        return 0

    def get(self, Queue queue, timeout=0):
        """Claim the next message; the commit settles it, an abort puts it back.  Raises Empty."""
        self.open()
        self.own(queue.store)
        cdef Message message = queue.get(timeout)
        message.state = IN_TRANSACTION
        self.claims.append(message)
        return message

    def get_many(self, Queue queue, count, timeout=0):
        """Claim up to `count` messages as a Batch that the commit settles."""
        self.open()
        self.own(queue.store)
        cdef Batch batch = queue.get_many(count, timeout)
        batch.state = IN_TRANSACTION
        self.claims.append(batch)
        return batch

    def put(self, Queue queue, body, key=None, headers=None, int priority=0, double delay=0.0, ttl=None):
        """Add a message that becomes visible with the commit; returns a PendingReceipt."""
        cdef uint64_t now_ns = self.store.h.os.clock_wall_ns(self.store.h.os), due = 0, expiry = 0
        cdef uint8_t flags = 0
        self.open()
        self.own(queue.store)
        if priority < 0 or priority > 9:
            raise ValueError(f"priority is 0 to 9, not {priority}")
        due, expiry = moments(now_ns, delay, ttl)
        flags = (ROTA_FRAME_DUE if due else 0) | (ROTA_FRAME_EXPIRES if expiry else 0)
        queue.native()
        self.room(len(memoryview(body)))
        add_message(self.store, &self.draft, queue.number, body, encode_attributes(key, headers, due, expiry),
                    priority, flags)
        return self.pending(queue.number, priority, 1, flags)

    def put_many(self, Queue queue, bodies, keys=None, int priority=0):
        """Add many messages; `keys`, when given, has one for each.  Returns a PendingReceipt."""
        self.open()
        self.own(queue.store)
        if priority < 0 or priority > 9:
            raise ValueError(f"priority is 0 to 9, not {priority}")
        queue.native()
        bodies = list(bodies)
        keys = [None] * len(bodies) if keys is None else list(keys)
        if len(keys) != len(bodies):
            raise ValueError(f"{len(bodies)} bodies and {len(keys)} keys")
        self.room(sum(len(body) for body in bodies))
        for body, key in zip(bodies, keys):
            add_message(self.store, &self.draft, queue.number, body,
                        encode_attributes(key) if key is not None else b"", priority, 0)
        return self.pending(queue.number, priority, len(bodies), 0)

    cdef int own(self, Store store) except -1:
        if store is not self.store:
            raise errors.StateError("that belongs to another repository: a transaction is of one")
        return 0

    cdef int room(self, uint64_t more) except -1:
        if self.draft.data_bytes + 32 * self.draft.message_count + self.draft.op_bytes + more + 4096 \
                > commit_limit(self.store):
            self.too_large()
        return 0

    cdef int too_large(self) except -1:
        raise errors.TransactionTooLarge(
            f"the transaction does not fit into one commit of this repository, which takes {commit_limit(self.store)} "
            "bytes: use several", path=self.store.path)

    cdef PendingReceipt pending(self, uint32_t queue, uint32_t priority, uint32_t count, uint8_t flags):
        cdef PendingReceipt receipt = PendingReceipt.__new__(PendingReceipt)
        receipt.owner = self
        receipt.first = self.draft.message_count - count
        receipt.count = count
        last = self.runs[len(self.runs) - 1] if self.runs else None
        if last is not None and last[0] == queue and last[1] == priority:
            self.runs[len(self.runs) - 1] = (queue, priority, last[2], last[3] + count, last[4] | flags)
        elif count:
            self.runs.append((queue, priority, receipt.first, count, flags))
        return receipt

    def ack(self, claimed):
        """Settle a message or a batch that was claimed outside of the transaction, with the commit."""
        cdef Message message
        cdef Batch batch
        self.open()
        if isinstance(claimed, Message):
            message = claimed
            self.own(message.store)
            if not message.claimed():
                raise errors.StateError("the message is settled")
            if message.batch is not None and (<Batch>message.batch).state != CLAIMED:
                raise errors.StateError("the batch of this message is settled, or belongs to a transaction")
            message.state = IN_TRANSACTION
        else:
            batch = <Batch?>claimed
            self.own(batch.store)
            if batch.state != CLAIMED:
                raise errors.StateError("the batch is settled, or belongs to a transaction")
            for message in batch.messages or ():
                if message is not None and message.state == IN_TRANSACTION:
                    raise errors.StateError(f"message {message.id} of the batch belongs to a transaction")
            batch.state = IN_TRANSACTION
        self.foreign.append(claimed)

    def tag(self, registration, bytes tag):
        """Keep `tag` with a registration, atomically with the commit."""
        self.open()
        if len(tag) > ROTA_TAG_LENGTH_MAX:
            raise ValueError(f"a tag has at most {ROTA_TAG_LENGTH_MAX} bytes, not {len(tag)}")
        self.tags.append((registration, tag))

    cdef int add_settlements(self, Draft *draft, bint by_id) except -1:
        cdef Message message
        cdef Settle settle
        for claimed in self.claims + self.foreign:
            if isinstance(claimed, Batch):
                (<Batch>claimed).add_acks(draft, by_id)
                continue
            message = claimed
            draft_op(draft, ROTA_OP_ACK, message.run.level, message.run.queue, message.id, message.id, 1, NULL, 0)
            fill_settle(&settle, &message.run, message.id, message.id, 1, False)
            draft_settle(draft, &settle)
        return 0

    cdef int add_operations(self, bint by_id) except -1:
        cdef Draft *draft = &self.draft
        cdef bytes extra
        draft.op_bytes = 0
        draft.op_count = 0
        draft.growing = 0
        draft.settle_count = 0
        for queue, priority, first, count, flags in self.runs:
            draft_op(draft, ROTA_OP_PUT, priority, queue, first, count, 1 if flags else 0, NULL, 0)
        self.add_settlements(draft, by_id)
        for registration, tag in self.tags:
            extra = registration.encode(tag)
            draft_op(draft, ROTA_OP_TAG, ROTA_TAG_OWN_PUT if draft.message_count else ROTA_TAG_GET,
                     registration.queue_number, draft.message_count - 1 if draft.message_count else 0, 0, 0,
                     <const char *>extra, len(extra))
        draft.token_generation = self.token_generation
        draft.token_number = self.token_number
        return 0

    def commit(self):
        """Write all of it as one commit.  Raises LeaseLost or Killed (then all is aborted), Full, OutcomeUnknown."""
        cdef Placed placed
        cdef bint by_id = False
        cdef int again = 1
        self.open()
        try:
            while again:
                self.add_operations(by_id)
                if self.draft.op_count == 0:
                    self.finish(self.store.h.control.log.next_id, self.store.h.control.tail_lsn)
                    break
                if draft_seal(&self.draft) != ROTA_OK:
                    raise MemoryError
                if self.draft.length > commit_limit(self.store):
                    self.too_large()
                again = self.store.submit(&self.draft, SPACE_ANSWER if self.claims or self.foreign else SPACE_PUT,
                                          &placed, -1.0)
                by_id = True
        except BaseException:
            self.abort(True)
            raise
        if self.state == SETTLED:
            self.store.settle_seen(self.durability)
            return
        wake_draft(self.store.h, &self.draft)
        self.finish(placed.base_id, placed.end_lsn)
        self.store.settle_durability(placed.end_lsn, self.durability)

    cdef int finish(self, uint64_t base_id, uint64_t lsn) except -1:
        from rota._core.put import receipt_of
        self.base_id = base_id
        self.receipt = receipt_of(self.store, base_id, self.draft.message_count, lsn)
        self.state = SETTLED
        for claimed in self.claims + self.foreign:
            if isinstance(claimed, Batch):
                (<Batch>claimed).settled()
            else:
                (<Message>claimed).state = SETTLED
        return 0

    cdef int abort(self, bint excused) except -1:
        """Give the claims back.  One that is lost already is not ours to give."""
        self.state = 3
        for claimed in self.foreign:
            claimed_again(claimed)
        for claimed in self.claims:
            claimed_again(claimed)
            try:
                if excused:
                    claimed.release()
                else:
                    claimed.nack()
            except (errors.LeaseLost, errors.Killed):
                continue
        return 0

    def rollback(self):
        """Give everything back; attempts do not count."""
        self.open()
        self.abort(True)

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, kind, value, traceback):
        if self.state != 1:
            return
        if kind is None:
            self.commit()
        else:
            self.abort(not issubclass(kind, Exception))

    def __reduce__(self):
        raise TypeError("a transaction belongs to its process and is not pickled")

    def __repr__(self):
        return f"<rota.Transaction {('', 'open', 'committed', 'rolled back')[self.state]}: " \
               f"{self.draft.message_count} puts, {len(self.claims) + len(self.foreign)} settlements>"


cdef int claimed_again(object claimed) except -1:
    """The transaction does not settle it any more."""
    if isinstance(claimed, Message):
        if (<Message>claimed).state == IN_TRANSACTION:
            (<Message>claimed).state = CLAIMED
        return 0
    if (<Batch>claimed).state == IN_TRANSACTION:
        (<Batch>claimed).state = CLAIMED
    for message in (<Batch>claimed).messages or ():
        if message is not None:
            claimed_again(message)
    return 0


def registration_of(Store store, uint32_t queue, bytes name):
    """(kind, id, tag, epoch, stable) of a registration, or None."""
    cdef NativeRegistration *found
    cdef uint8_t copied[4096]  # a registration is a small page; nothing that needs the GIL happens under the lock
    cdef rota_handle *h = store.h
    cdef const uint8_t *text = <const uint8_t *><const char *>name
    cdef uint32_t length = <uint32_t>len(name)
    cdef rota_error error
    cdef int status = ROTA_RETRY, slices = 0
    while store.again(&status, &slices, &error):
        with nogil:
            rota_fetch_add_u32(&h.calls, 1)
            status = lock_slice(h, &error)
            if status == ROTA_OK:
                found = registration_find(h, queue, text, length)
                if found != NULL:
                    memcpy(copied, found, ROTA_SMALL_PAGE)
                else:
                    status = ROTA_EMPTY
                lock_leave(h)
        rota_fetch_sub_u32(&h.calls, 1)
    if status == ROTA_EMPTY:
        return None
    if status != ROTA_OK:
        store.fail(&error)
    found = <NativeRegistration *>copied
    if found.name_length + found.tag_length + sizeof(NativeRegistration) > ROTA_SMALL_PAGE:
        raise errors.Corrupt("a registration is damaged", path=store.path, file="control")
    tag = (<char *>(found + 1) + found.name_length)[:found.tag_length]
    return found.kind, found.id, tag, found.epoch, bool(found.stable)


def write_registration(Store store, uint32_t queue, bytes extra, bint stable, bint forget):
    """Log a registration, or its end."""
    from rota._core.message import submit_ops
    submit_ops(store, [(ROTA_OP_DEREGISTER if forget else ROTA_OP_REGISTER, 1 if stable else 0, queue, 0, 0, 0, extra)])
