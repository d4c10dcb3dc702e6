"""Transactions: claims, puts, acks and tags of any queues of a repository, one commit.

What holds:

1. Claims are taken at once and seen by all; puts are private until the commit; ids exist after it.
2. The commit is one record: all or nothing, whoever dies.  LeaseLost or Killed on one operation aborts all, and a
   message of the transaction that is killed ends it at the next call.
3. The journal has every operation in its order; a savepoint is a place in it and in the draft, and rolling back undoes
   from the end.  Memory of a draft is used again by the next transaction.
4. An abort puts the claimed messages back at their old places, all that were shown in one commit; attempts count unless
   the abort was asked for (rollback()).

Bernstein, Hsu and Mann, "Implementing Recoverable Requests Using Queues", SIGMOD 1990.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.atomics cimport *
from engine.control cimport *
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.status cimport *

from rota._core.append cimport SPACE_ANSWER, SPACE_PUT, SPACE_SETTLE, Placed
from rota._core.batch cimport Batch
from rota._core.draft cimport *
from rota._core.fence cimport join_token, split_token
from rota._core.journal cimport DEREGISTER, DROP, FOREIGN, KILL, OWN, REGISTER, TAG
from rota._core.journal cimport add_keys, add_puts, add_registrations, add_settlements, add_tags, changes, first_killed
from rota._core.journal cimport beside, holds, next_own, own_message, settle_entry, undo
from rota._core.killing cimport MESSAGE_LIVE, MESSAGE_UNKNOWN, locate
from rota._core.message cimport Message
from rota._core.once cimport KEY_OPERATIONS, known_receipt, with_key
from rota._core.pending cimport COMMITTED, PENDING, PendingReceipt, new_pending
from rota._core.put cimport add_message, commit_limit, new_receipt
from rota._core.queue cimport Queue, under_token
from rota._core.reap cimport wake_draft
from rota._core.giving cimport give_back
from rota._core.store cimport Store, deadline_of

from rota import errors
from rota._core.codec import encode_attributes, moments

cdef enum:
    CLAIMED = 1
    SETTLED = 2
    IN_TRANSACTION = 3

cdef enum:
    OPEN = 1
    DONE = 2
    ENDED = 3

cdef enum:
    OPERATIONS_MAX = 1024  # that change lines of shared memory one by one: more would not fit into the undo area

cdef uint64_t last_serial = 0


@cython.final
cdef class Transaction:
    """Operations of any queues of a repository, committed together; a context manager.

    `repository` and `durability` are what it was made with; `receipt` is that of all its puts, None before the commit.
    """

    def __init__(self, Store store not None, repository, token=None, durability=None, timeout=None):
        global last_serial
        store.check_writable()
        if durability is not None:
            store.level_of(durability)
        if timeout is not None:
            deadline_of(timeout)
        if self.state:
            raise TypeError("a transaction begins once")
        self.store = store
        self.repository = repository
        self.durability = durability
        self.timeout = timeout
        self.journal = []
        if token is not None:
            split_token(token, &self.token_generation, &self.token_number)
        last_serial += 1
        self.serial = last_serial
        self.kills_seen = store.h.control.kills
        take_draft(&self.draft, store.h)
        self.state = OPEN

    def __dealloc__(self):
        if self.state:
            give_draft(&self.draft)

    cdef int open(self) except -1:
        if self.state != OPEN:
            if self.store is None:
                raise TypeError("a transaction comes from repo.transaction()")
            self.store.check_writable()
            raise errors.StateError("the transaction was committed" if self.state == DONE else
                                    "the transaction was rolled back")
        self.store.check_writable()
        if self.store.h.control.kills != self.kills_seen:
            self.look()
        return 0

    cdef int look(self) except -1:
        """Somebody killed something since: when this transaction holds it, all is over."""
        cdef uint64_t kills = self.store.h.control.kills
        cdef uint64_t killed = first_killed(self.store.h, self.journal)
        if killed:
            error = errors.Killed(f"message {killed} was killed while this transaction held it; the transaction is "
                                  "rolled back", path=self.store.path, expected=killed)
            self.abort_for(error, True)
            raise error
        self.kills_seen = kills
        return 0

    cdef int own(self, Store store) except -1:
        if store is not self.store:
            raise errors.StateError("that belongs to another repository: a transaction is of one")
        return 0

    cdef Queue under(self, Queue queue):
        """The handle to claim by: what this transaction claims carries its token.  Without one it takes the handle's."""
        self.own(queue.store)
        if queue.token_generation == self.token_generation and queue.token_number == self.token_number:
            return queue
        if (self.token_generation | self.token_number) == 0:
            self.token_generation = queue.token_generation
            self.token_number = queue.token_number
            return queue
        return under_token(queue, join_token(self.token_generation, self.token_number))

    cdef int room(self, uint64_t more, uint32_t operations) except -1:
        """Whether so many bytes and operations more will fit into the commit."""
        if self.draft.data_bytes + 32 * <uint64_t>self.draft.message_count + 64 * <uint64_t>self.operations + more \
                + 512 > commit_limit(self.store):
            raise errors.TransactionTooLarge(
                f"the transaction does not fit into one commit of this repository, which takes "
                f"{commit_limit(self.store)} bytes: use several, "
                "or give the repository a larger capacity when it is made", path=self.store.path)
        if self.operations + operations > OPERATIONS_MAX:
            raise errors.TransactionTooLarge(
                f"a transaction has at most {OPERATIONS_MAX} operations beside plain puts: use several, or take "
                "messages by get_many(), which counts once", path=self.store.path)
        self.operations += operations
        return 0

    def get(self, Queue queue, timeout=0, where=None):
        """Claim the next message; the commit settles it, an abort puts it back.  Raises Empty, QueueStopped.

        `where` as in Queue.get(); it is asked of committed messages only.

        When none is ready it takes one that this transaction itself put there (not one that is delayed or has a dedup key, and not in a queue of
        order "strict" or "group"), the highest priority first.  Such a message has the id 0, since neither it nor the
        get of it will ever be seen by others.
        """
        cdef Message message = None
        self.open()
        queue = self.under(queue)
        self.room(64, 1)
        try:
            if where is not None:
                message = beside(queue, self.journal, &self.counted, &self.records).get(timeout, where)
                self.journal.append(message)
            elif self.own_queues and self.own_queues >> (queue.number & 63) & 1:
                message = self.get_beside_own(queue, timeout)
            else:
                message = beside(queue, self.journal, &self.counted, &self.records).get(timeout)
                self.journal.append(message)
        finally:
            if message is None:
                self.operations -= 1
        message.state = IN_TRANSACTION
        message.queue = queue
        return message

    cdef Message get_beside_own(self, Queue queue, object timeout):
        """What others committed comes first, then what this transaction put."""
        cdef uint8_t order = queue.native().options.order
        cdef PendingReceipt receipt = None
        cdef Message message
        if order == ROTA_ORDER_SKIP or order == ROTA_ORDER_HIGHEST:  # elsewhere it would overtake
            receipt = next_own(self.journal, queue.number)
        try:
            message = beside(queue, self.journal, &self.counted, &self.records).get(timeout if receipt is None else 0)
            self.journal.append(message)
            return message
        except errors.Empty:
            if receipt is None:
                raise
        message = own_message(self.store, &self.draft, queue, receipt)
        receipt.taken += 1
        self.any_taken = True
        self.journal.append((OWN, receipt, message))
        return message

    def get_many(self, Queue queue, count, timeout=0):
        """Claim up to `count` committed messages as a Batch that the commit settles."""
        cdef Batch batch
        self.open()
        queue = self.under(queue)
        self.room(64 * 64, 1)
        batch = beside(queue, self.journal, &self.counted, &self.records).get_many(count, timeout)
        batch.queue, batch.state = queue, IN_TRANSACTION
        self.journal.append(batch)
        return batch

    def put(self, Queue queue, body, key=None, headers=None, int priority=0, double delay=0.0, ttl=None, dedup=None):
        """Add a message that becomes visible with the commit; returns a PendingReceipt.

        Arguments as in Queue.put(); the commit raises Conflict when the key `dedup` came meanwhile.  Raises
        TransactionTooLarge, MessageTooLarge, and then nothing was added.
        """
        cdef uint64_t due = 0, expiry = 0
        cdef uint64_t digest[2]
        cdef uint8_t flags = 0
        cdef bytes attributes = b""
        cdef PendingReceipt known
        self.open()
        self.under(queue)
        if dedup is not None:
            known = known_receipt(queue, self.journal, dedup, digest)
            if known is not None:
                return known
        if delay != 0 or ttl is not None:
            due, expiry = moments(self.store.h.os.clock_wall_ns(self.store.h.os), delay, ttl)
            flags = (ROTA_FRAME_DUE if due else 0) | (ROTA_FRAME_EXPIRES if expiry else 0)
        if key is not None or headers is not None or flags:
            attributes = encode_attributes(key, headers, due, expiry)
        return with_key(self.add(queue, body, attributes, priority, flags,
                                 KEY_OPERATIONS if dedup is not None else 1 if flags else 0), dedup, digest)

    cdef PendingReceipt add(self, Queue queue, object body, bytes attributes, int priority, uint8_t flags,
                            uint32_t operations):
        if priority < 0 or priority > 9:
            raise ValueError(f"priority is 0 to 9, not {priority}")
        if isinstance(body, str):
            raise TypeError("a body is bytes-like: encode text first")
        queue.native()
        self.room((len(body) if type(body) is bytes else memoryview(body).nbytes) + <uint64_t>len(attributes), operations)
        add_message(self.store, &self.draft, queue.number, body, attributes, priority, flags)
        return self.pending(queue, priority, 1, flags)

    def put_encoded(self, Queue queue, body, bytes attributes, int priority=0, int flags=0, bint answer=False):
        """Add a message whose attributes are encoded already, for the package itself; `flags` are those of its frame.

        Neither the bounds of the queue nor its being stopped refuses an `answer` to a request.  Raises as put().
        """
        cdef PendingReceipt receipt
        self.open()
        self.own(queue.store)
        if flags & ~(ROTA_FRAME_DUE | ROTA_FRAME_EXPIRES):
            raise ValueError(f"a frame that is put is due or expires, and nothing else: not {flags}")
        receipt = self.add(queue, body, attributes, priority, <uint8_t>flags, 1)
        receipt.is_answer = answer
        return receipt

    def put_many(self, Queue queue, bodies, keys=None, int priority=0):
        """Add many messages; `keys`, when given, has one for each.  Returns a PendingReceipt."""
        cdef uint32_t before = self.draft.message_count
        cdef uint64_t data_before = self.draft.data_bytes
        self.open()
        self.under(queue)
        if priority < 0 or priority > 9:
            raise ValueError(f"priority is 0 to 9, not {priority}")
        queue.native()
        bodies = [body if type(body) is bytes else bytes(memoryview(body)) for body in bodies]
        attributes = [b""] * len(bodies) if keys is None else \
            [encode_attributes(key) if key is not None else b"" for key in keys]
        if len(attributes) != len(bodies):
            raise ValueError(f"{len(bodies)} bodies and {len(attributes)} keys")
        self.room(sum(len(body) + 40 for body in bodies) + sum(len(attribute) for attribute in attributes), 0)
        try:
            for body, attribute in zip(bodies, attributes):
                add_message(self.store, &self.draft, queue.number, body, attribute, priority, 0)
        except BaseException:
            self.draft.message_count = before
            self.draft.data_bytes = data_before
            raise
        return self.pending(queue, priority, <uint32_t>len(bodies), 0)

    cdef PendingReceipt pending(self, Queue queue, uint32_t priority, uint32_t count, uint8_t flags):
        cdef PendingReceipt receipt = new_pending(self.store, self.serial, queue.number, queue.created_lsn)
        receipt.level = <uint8_t>priority
        receipt.flags = flags
        receipt.first = self.draft.message_count - count
        receipt.made = count
        self.own_queues |= <uint64_t>1 << (queue.number & 63)
        self.journal.append(receipt)
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
            self.room(64, 1)
            message.state = IN_TRANSACTION
        else:
            batch = <Batch?>claimed
            self.own(batch.store)
            if batch.state != CLAIMED:
                raise errors.StateError("the batch is settled, or belongs to a transaction")
            for message in batch.messages or ():
                if message is not None and message.state == IN_TRANSACTION:
                    raise errors.StateError(f"message {message.id} of the batch belongs to a transaction")
            self.room(64 * 64, 1)
            batch.state = IN_TRANSACTION
        self.journal.append((FOREIGN, claimed))

    def kill(self, target, id=None):
        """Kill a message with the commit: `kill(queue, id)`, or `kill(pending)` what a put of this transaction returned.

        True: it lives, and the commit kills it; when it ends or moves before the commit, that raises Conflict and the
        transaction is rolled back.  False: it ended already, in whichever way, and nothing is added.  A pending put is
        undone.  Raises NotFound as Queue.kill(), StateError for a message that this transaction itself holds.
        """
        cdef Queue queue
        cdef PendingReceipt receipt
        cdef uint32_t where = 0
        cdef int found
        self.open()
        if isinstance(target, PendingReceipt):
            receipt = target
            if receipt.serial != self.serial or receipt.state != PENDING:
                raise errors.StateError("that was not put by this transaction, or was rolled back")
            self.journal.append((DROP, receipt, receipt.taken))
            receipt.taken = receipt.made
            self.any_taken = True
            return True
        queue = <Queue?>target
        self.own(queue.store)
        queue.native()
        if holds(self.journal, id):
            raise errors.StateError(f"this transaction holds message {id}: its commit settles it")
        found = locate(self.store, queue.number, id, &where)
        if found == MESSAGE_UNKNOWN:
            raise errors.NotFound(f"the queue {queue.name!r} has no message {id}, or nothing is known of it any more",
                                  path=self.store.path)
        if found != MESSAGE_LIVE:
            return False
        self.room(64, 1)
        self.journal.append((KILL, where, int(id)))
        return True

    def tag(self, registration, bytes tag, of=None, uint64_t expected_lsn=0):
        """Keep `tag` with a registration, atomically with the commit; the last one for a registration counts.

        `of` is the operation that is tagged: a put of this transaction, or a message that it settles; None: its last
        put, else no message; False: no message.  `expected_lsn` lets the commit raise Conflict when somebody changed
        the registration since.  The commit raises StaleClerk, NotFound.
        """
        self.open()
        self.own((<Queue?>registration.queue).store)
        if len(tag) > ROTA_TAG_LENGTH_MAX:
            raise ValueError(f"a tag has at most {ROTA_TAG_LENGTH_MAX} bytes, not {len(tag)}")
        if isinstance(of, Message):
            if not holds(self.journal, of.id):
                raise errors.StateError(f"message {of.id} is not settled by this transaction: get() it here, or ack() it")
        elif of is not None and of is not False and (<PendingReceipt?>of).serial != self.serial:
            raise errors.StateError("that was put by another transaction")
        if changes(self.journal, registration, DEREGISTER):
            raise errors.StateError(f"this transaction deregisters {registration.name!r}")
        self.room(384 + <uint64_t>len(tag), 1)
        registration.enter(self)
        self.journal.append((TAG, registration, tag, of, expected_lsn))

    def register(self, target, name=None, bint stable=True):
        """Register at a queue with the commit, which resets nothing where it is registered: a Registration.

        `target` is a queue, or a Registration, of which queue and name are taken.  The commit raises StaleClerk when
        a younger connection came meanwhile.
        """
        self.open()
        registration = self.repository.prepare(target, name, stable)
        self.own((<Queue?>registration.queue).store)
        if changes(self.journal, registration, DEREGISTER):
            raise errors.StateError(f"this transaction deregisters {registration.name!r}")
        self.room(384, 1)
        registration.enter(self)
        self.journal.append((REGISTER, registration))
        return registration

    def deregister(self, registration):
        """Forget a registration with the commit, which raises StaleClerk, and NotFound when it is gone already."""
        self.open()
        self.own((<Queue?>registration.queue).store)
        if changes(self.journal, registration, REGISTER) or changes(self.journal, registration, DEREGISTER):
            raise errors.StateError(f"this transaction registers {registration.name!r}, or deregisters it already")
        self.room(384, 1)
        registration.enter(self)
        self.journal.append((DEREGISTER, registration))

    @property
    def is_open(self):
        """Whether it was neither committed nor rolled back."""
        return self.state == OPEN

    def savepoint(self):
        """A Savepoint: `with t.savepoint(): ...` undoes what the block did when it raises.  They may be nested."""
        from rota._core.savepoint import mark
        self.open()
        if self.savepoints is None:
            self.savepoints = []
        self.savepoints.append(mark(self))
        return self.savepoints[len(self.savepoints) - 1]

    cdef int undo_to(self, Py_ssize_t entries, uint32_t message_count, uint64_t data_bytes,
                     uint32_t operations) except -1:
        """Undo the journal from its end to that entry, and forget what was put since."""
        cdef list undone = self.journal[entries:]
        del self.journal[entries:]
        self.counted = self.records = 0
        claims = undo(undone)
        self.draft.message_count, self.draft.data_bytes, self.operations = message_count, data_bytes, operations
        give_back(self.store, claims, True, self.durability)
        return 0

    cdef int add_operations(self, bint by_id) except -1:
        cdef Draft *draft = &self.draft
        draft_restart(draft)
        add_puts(draft, self.journal, self.any_taken)
        self.any_taken = False
        add_keys(draft, self.journal)
        add_registrations(draft, self.journal, REGISTER)
        add_tags(draft, self.journal)  # before the settlements: what is taken is still there
        add_settlements(self.store, draft, self.journal, by_id)
        add_registrations(draft, self.journal, DEREGISTER)
        if self.token_generation | self.token_number:  # else that of what it settles
            draft.token_generation = self.token_generation
            draft.token_number = self.token_number
        return 0

    def commit(self):
        """Write all of it as one commit.

        Raises LeaseLost, Killed or Conflict, whose `id` is the message in question, Full (no room within the timeout of
        the transaction), QueueStopped, NotFound (a queue was destroyed): then nothing was written and the transaction is
        rolled back, attempts not counted.  Raises OutcomeUnknown when it is visible and its sync failed.
        """
        cdef Placed placed
        self.open()
        try:
            if not self.submit(&placed):
                self.finish(self.store.h.control.log.next_id,
                            rota_load_acquire_u64(&self.store.h.control.tail_lsn))
                self.store.settle_seen(self.durability)
                return
        except BaseException as error:
            if self.state == OPEN:
                self.abort_for(error, True)
            raise
        wake_draft(self.store.h, &self.draft)
        self.finish(placed.base_id, placed.end_lsn)
        if self.durability is not None or self.store.h.durability:
            self.store.settle_durability(placed.end_lsn, self.durability)

    cdef int submit(self, Placed *placed) except -1:
        """1 when it is in the log, 0 when there is nothing to write."""
        cdef Draft *draft = &self.draft
        cdef double deadline = -1.0 if self.timeout is None else deadline_of(self.timeout)
        cdef bint by_id = False
        cdef int again = 1, space
        while again:
            self.add_operations(by_id)
            if draft.op_count == 0 and draft.failed == 0:
                return 0
            if draft_seal(draft) != ROTA_OK:
                raise MemoryError
            if draft.length > commit_limit(self.store):
                raise errors.TransactionTooLarge(
                    f"the transaction takes {draft.length} bytes, and a commit of this repository at most "
                    f"{commit_limit(self.store)}: use several", path=self.store.path)
            space = SPACE_SETTLE if draft.message_count == 0 else \
                SPACE_ANSWER if draft.settle_count or draft.end_count else SPACE_PUT
            again = self.store.submit(draft, space, placed, deadline)
            by_id = True
        return 1

    cdef int finish(self, uint64_t base_id, uint64_t lsn) except -1:
        cdef PendingReceipt receipt
        self.base_id = base_id
        self.end_lsn = lsn
        self.message_count = self.draft.message_count - self.draft.answer_count
        self.state = DONE
        for entry in self.journal:
            if type(entry) is PendingReceipt:
                receipt = entry
                receipt.state = COMMITTED
                receipt.base_id = base_id + receipt.first
                receipt.lsn = lsn
            else:
                settle_entry(entry)
        self.journal = []
        self.savepoints = None
        return 0

    @property
    def receipt(self):
        """The Receipt of all its puts; None before the commit."""
        if self.state != DONE:
            return None
        if self.made_receipt is None:
            self.made_receipt = new_receipt(self.store, self.base_id, self.message_count, self.end_lsn)
        return self.made_receipt

    cdef int abort(self, bint excused) except -1:
        """Give the claims back.  One that is lost already is not ours to give."""
        cdef list undone = self.journal
        self.state = ENDED
        self.journal = []
        self.savepoints = None
        give_back(self.store, undo(undone), excused, self.durability)
        return 0

    cdef int abort_for(self, object error, bint excused) except -1:
        """The same because of an error, which is what the user must see."""
        try:
            self.abort(excused)
        except errors.RotaError as other:
            error.add_note(f"rota: what the transaction held could not be given back and returns with the end of its "
                           f"leases: {other}")
        return 0

    def rollback(self, bint excused=True):
        """Give everything back, each message at its old place; `excused=False`: the attempts count."""
        self.open()
        self.abort(excused)

    def begin(self):
        """The transaction itself, which is open from the start: for code that says begin, commit, rollback."""
        self.open()
        return self

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, kind, value, traceback):
        if self.state != OPEN:
            return
        if kind is None:
            self.commit()
        else:
            self.abort_for(value, not issubclass(kind, Exception))

    def __reduce__(self):
        raise TypeError("a transaction belongs to its process and is not pickled")

    def __repr__(self):
        return f"<rota.Transaction {('', 'open', 'committed', 'rolled back')[self.state]}: " \
               f"{self.draft.message_count} puts, {len(self.journal)} operations>"
