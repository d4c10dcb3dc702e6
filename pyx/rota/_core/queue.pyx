"""Queues in user hands: put, get, look, count.

What holds:

1. A Queue is a name for a number; a queue that was destroyed meanwhile is NotFound, never its successor.
2. Waiting releases the GIL, sleeps in slices of at most 50 ms, looks at signals between them, and before each sleep
   takes over from dead owners, so nobody waits for a process that is gone.
3. A message is handed out as the last step: a timeout or a signal in a wait loses nothing.
"""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from engine.atomics cimport *
from engine.control cimport *
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.lock cimport rota_lock_wait
from engine.pool cimport *
from engine.status cimport *

from rota._core.append cimport SPACE_SETTLE, Placed
from rota._core.batch cimport Batch, new_batch
from rota._core.claim cimport claim_locked
from rota._core.draft cimport *
from rota._core.fence cimport join_token, split_token
from rota._core.handover cimport fence_queue
from rota._core.killing cimport kill_message
from rota._core.lane cimport Found, find, queue_at, queue_live, queue_ready
from rota._core.lock cimport LOCK_SLICE_NS, LOCK_SLICES, lock_leave, lock_refused, lock_slice, lock_taken, lock_try
from rota._core.message cimport Message, fill_settle, new_message, submit_settle
from rota._core.reading cimport Reading
from rota._core.reading cimport read_slot
from rota._core.put cimport Receipt, put_full, put_list, put_one, put_rows
from rota._core.reap cimport reap_dead, wake_draft
from rota._core.listing cimport list_ids
from rota._core.store cimport Store, deadline_of, now
from rota._core.waiting cimport claim_attempt, others_hold, wait_ready

from rota import errors
from rota._core.codec import decode_indexes, encode_attributes, moments
from rota._core.message import submit_ops

cdef enum:
    SLICE_NS = 50000000
    RUNS = 64

# The same objects as the defaults of put(): constants of one module are one object.
finding = None  # the module of that name, which needs this one first, puts itself here
cdef object ZERO = 0
cdef object NO_DELAY = 0.0


cdef Queue make_queue(Store store, object repository, uint32_t number, str name):
    cdef Queue queue = Queue.__new__(Queue)
    cdef rota_queue *native = queue_at(store.h, number)
    queue.store = store
    queue.repository = repository
    queue.number = number
    queue.name = name
    queue.created_lsn = native.created_lsn if native != NULL else 0
    return queue


cdef Queue under_token(Queue queue, object token):
    """Another handle of the same queue, which carries a token."""
    cdef Queue other = Queue.__new__(Queue)
    split_token(token, &other.token_generation, &other.token_number)
    other.store = queue.store
    other.repository = queue.repository
    other.number = queue.number
    other.name = queue.name
    other.created_lsn = queue.created_lsn
    other.token_id = token
    return other


@cython.final
cdef class Queue:
    """A queue of a repository; from `repo.queue(name)`.  Has the habits of queue.Queue.

    `name` is its name, `repository` where it is.
    """

    def __init__(self):
        raise TypeError("a queue comes from repo.queue(name)")

    cdef rota_queue *native(self) except NULL:
        """The queue in shared memory.  Raises NotFound when it was destroyed."""
        cdef rota_queue *queue
        self.store.check()  # in a forked child the control file is not mapped
        queue = queue_at(self.store.h, self.number)
        if queue == NULL or queue.created_lsn != self.created_lsn:
            raise errors.NotFound(f"the queue {self.name!r} was destroyed", path=self.store.path)
        return queue

    def put(self, body, key=None, headers=None, priority=0, delay=0.0, ttl=None, timeout=None, durability=None,
            dedup=None):
        """Add one message and return its Receipt.

        `body` is bytes-like; `key` bytes or str; `headers` a dict; `priority` 0 to 9, higher first; `delay` and `ttl`
        in seconds; `timeout` in seconds is how long to wait for room (None: for ever); `durability` "sync",
        "interval" or "none" overrides the repository's.  `dedup` (bytes or str): where a message with that key was put
        within the window of the queue, nothing is added, and the receipt is that one's, marked as `duplicate`.  Raises
        Full, DiskFull, MessageTooLarge, QueueStopped, LogFailed, OutcomeUnknown.
        """
        cdef double deadline = -1.0
        self.store.check_writable()
        if timeout is not None:
            deadline = deadline_of(timeout)
        if durability is not None:
            self.store.level_of(durability)
        if dedup is not None:
            from rota._core.once import put_once
            return put_once(self, body, (key, headers, priority, delay, ttl), timeout, durability, dedup)
        if self.token_id is not None:
            with self.repository.transaction(None, durability, timeout) as transaction:
                transaction.put(self, body, key, headers, priority, delay, ttl)
            return transaction.receipt
        if PyBytes_CheckExact(body) and key is None and headers is None and ttl is None and priority is ZERO \
                and delay is NO_DELAY:
            return put_one(self.store, self.number, self.created_lsn, <bytes>body, deadline, durability)
        return self.put_with(body, key, headers, priority, delay, ttl, deadline, durability)

    cdef object put_with(self, body, key, headers, int priority, double delay, ttl, double deadline, durability):
        """The general way of put()."""
        cdef uint64_t due = 0, expiry = 0, now_ns
        cdef uint8_t flags = 0
        if priority < 0 or priority > 9:
            raise ValueError(f"priority is 0 to 9, not {priority}")
        if isinstance(body, str):
            raise TypeError("a body is bytes-like: encode text first")
        now_ns = self.store.h.os.clock_wall_ns(self.store.h.os)
        due, expiry = moments(now_ns, delay, ttl)
        flags = (ROTA_FRAME_DUE if due else 0) | (ROTA_FRAME_EXPIRES if expiry else 0)
        return put_full(self.store, self.number, self.created_lsn, body, encode_attributes(key, headers, due, expiry), priority, flags,
                        deadline, durability)

    def forget(self, dedup, durability=None):
        """Let the next put with this `dedup` add a message; whether one would have been a duplicate until now."""
        from rota._core.once import forget_key
        return forget_key(self, dedup, durability)

    def put_nowait(self, body):
        """put(body, timeout=0)."""
        return self.put(body, timeout=0)

    def put_many(self, bodies, int priority=0, timeout=None, durability=None, compression=None):
        """Add many messages in one commit and return their Receipt; an empty list adds none.

        `compression` "lz4" packs them in blocks; "none" does not; None takes the repository's.  Raises as put, and
        TransactionTooLarge when they do not fit into one commit.
        """
        self.store.check_writable()
        if priority < 0 or priority > 9:
            raise ValueError(f"priority is 0 to 9, not {priority}")
        self.store.level_of(durability)
        if compression is None:
            compression = self.store.compression
        elif compression == "none":
            compression = None
        elif compression != "lz4":
            raise ValueError(f"compression is 'lz4' or 'none', not {compression!r}")
        if self.token_id is not None:  # these are not packed
            return self.put_many_under(bodies, priority, timeout, durability)
        return put_list(self.store, self.number, self.created_lsn, bodies, priority, deadline_of(timeout), durability, compression)

    cdef object put_many_under(self, bodies, int priority, timeout, durability):
        """One commit that carries the token of this handle."""
        with self.repository.transaction(None, durability, timeout) as transaction:
            transaction.put_many(self, bodies, None, priority)
        return transaction.receipt

    def put_array(self, array, timeout=None, durability=None):
        """Add each row of a C-contiguous array (any dtype; shape (n, ...)) as one message, in one commit."""
        self.store.check_writable()
        self.store.level_of(durability)
        if self.token_id is not None:
            return self.put_many_under([row.tobytes() for row in array], 0, timeout, durability)
        return put_rows(self.store, self.number, self.created_lsn, array, deadline_of(timeout), durability)

    cdef int claim(self, Wanted *wanted, Run *runs, Claimed *claimed, double deadline, bint raises) except -1:
        """Claim messages, waiting until the deadline: 1, or 0 when there is none (raises: Empty instead)."""
        cdef rota_handle *h = self.store.h
        cdef rota_queue *queue = self.native()
        cdef rota_error error
        cdef int status
        cdef uint32_t sequence
        cdef int slices = 0
        cdef bint looked = False  # for owners that died: at least once, before a queue is called empty
        wanted.lease_ns = queue.options.lease_ns
        wanted.token_generation = self.token_generation
        wanted.token_number = self.token_number
        wanted.held = self.held
        while True:
            sequence = rota_load_acquire_u32(&queue.wake_sequence)
            status = claim_attempt(h, queue, wanted, runs, claimed, lock_try(h, &error), &error)
            if status == ROTA_RETRY:
                with nogil:
                    rota_fetch_add_u32(&h.calls, 1)
                    status = claim_attempt(h, queue, wanted, runs, claimed,
                                           lock_taken(h, rota_lock_wait(&h.control.lock, LOCK_SLICE_NS), &error), &error)
                rota_fetch_sub_u32(&h.calls, 1)
                slices += 1
                if status == ROTA_RETRY and slices >= LOCK_SLICES:
                    status = lock_refused(h, &error)
            if status == ROTA_OK:
                queue.gets += claimed.count
                return 1
            if status == ROTA_EMPTY:
                if not claimed.expired and 0 <= deadline <= now() and (looked or not others_hold(h)):
                    if raises:
                        raise errors.Empty(f"no message of {self.name!r} is ready", path=self.store.path)
                    return 0
                with nogil:
                    rota_fetch_add_u32(&h.calls, 1)
                    status = wait_ready(h, queue, claimed.expired, sequence, claimed.seen, deadline, &error)
                rota_fetch_sub_u32(&h.calls, 1)
                looked = status != ROTA_TIMEOUT  # else another thread is taking over: see what it finds
                status = ROTA_RETRY if status == ROTA_TIMEOUT else status
            if status != ROTA_OK and status != ROTA_RETRY:
                self.store.fail(&error)
            PyErr_CheckSignals()
            queue = self.native()

    def get(self, timeout=None, where=None):
        """Claim the next message, waiting for one (`timeout` seconds; None: for ever).

        `where` is a condition (of rota.key and rota.header()) or a callable(message), run outside the lock.  An == on
        an indexed field takes the first of its list; else at most 1,000 messages are looked at, those that an index
        names or the ready ones at the front.  Raises Empty, QueueStopped, Corrupt, LogFailed; StateError for a condition
        on a queue of order "strict".
        """
        cdef Wanted wanted
        cdef Claimed claimed
        cdef Run run
        self.store.check_writable()
        if where is not None:
            return finding.get_where(self, where, timeout)
        wanted.count = 1
        wanted.run_size = 1
        wanted.durable_only = 0
        wanted.show = 1
        wanted.term = wanted.id = 0
        self.claim(&wanted, &run, &claimed, -1.0 if timeout is None else deadline_of(timeout), True)
        return new_message(self.store, self, &run, run.first_id, run.first)

    def get_nowait(self):
        """get(timeout=0)."""
        return self.get(timeout=0)

    def get_many(self, uint32_t count, timeout=0, bint durable_only=False):
        """Claim up to `count` messages as a Batch, which is empty when none is ready within `timeout` seconds.

        `durable_only` leaves out what power loss could still take.
        """
        cdef Wanted wanted
        cdef Claimed claimed
        cdef Run *runs
        self.store.check_writable()
        if count == 0:
            return new_batch(self.store, self, NULL, 0, 0)
        wanted.count = count
        wanted.run_size = RUNS if count > RUNS else count
        wanted.durable_only = durable_only
        wanted.show = 0
        wanted.term = wanted.id = 0
        runs = <Run *>malloc(wanted.run_size * sizeof(Run))
        if runs == NULL:
            raise MemoryError
        try:
            if not self.claim(&wanted, runs, &claimed, deadline_of(timeout), False):
                free(runs)
                return new_batch(self.store, self, NULL, 0, 0)
        except BaseException:
            free(runs)
            raise
        return new_batch(self.store, self, runs, claimed.run_count, claimed.count)

    def get_array(self, uint32_t count, dtype, timeout=0):
        """Claim up to `count` messages of dtype.itemsize bytes as a Batch whose `array` has shape (n,) and that dtype.

        Raises ValueError when a message has another size; the batch is given back then.
        """
        import numpy
        dtype = numpy.dtype(dtype)
        batch = self.get_many(count, timeout)
        array = numpy.empty(len(batch), dtype)
        if len(batch):
            try:
                batch.fill(array, array.view(numpy.uint8), dtype.itemsize)
            except ValueError:
                batch.release()
                raise
        else:
            batch.fill(array, array.view(numpy.uint8), dtype.itemsize)
        return batch

    def ack(self, messages, durability=None):
        """Settle several messages in one commit.  Raises LeaseLost or Killed, and then none is settled."""
        cdef Draft draft
        cdef Message message
        cdef Settle settle
        self.store.check_writable()
        self.store.level_of(durability)
        if isinstance(messages, (Message, Batch)):
            messages.ack(durability)
            return
        messages = [m for m in dict.fromkeys(messages) if (<Message?>m).claimed()]
        if not messages:
            self.store.settle_seen(durability)
            return
        draft_begin(&draft, self.store.h)
        try:
            for message in messages:
                if message.store is not self.store:
                    raise errors.StateError(f"message {message.id} was claimed through another repository")
                add_ack(&draft, message)
            submit_settle(self.store, &draft, durability)
        finally:
            draft_end(&draft)
        for message in messages:
            message.state = 2

    cdef uint64_t find_ref(self, uint64_t id, uint64_t *level) except? 0:
        """Address of a live message's slot.  Raises NotFound."""
        cdef rota_queue *queue = self.native()
        cdef rota_handle *h = self.store.h
        cdef Found found
        cdef rota_error error
        cdef bint there = False
        cdef int status = ROTA_RETRY, slices = 0
        while self.store.again(&status, &slices, &error):
            with nogil:
                rota_fetch_add_u32(&h.calls, 1)
                status = lock_slice(h, &error)
                if status == ROTA_OK:
                    there = find(h, queue, id, &found) and rota_slot_live(found.slot.word)
                    lock_leave(h)
            rota_fetch_sub_u32(&h.calls, 1)
        if status != ROTA_OK:
            self.store.fail(&error)
        if not there:
            raise errors.NotFound(f"the queue {self.name!r} has no message {id}", path=self.store.path)
        level[0] = found.level
        return rota_ref(found.number, found.index)

    def read(self, uint64_t id):
        """The message of that id, without claiming it, whoever holds it.  Raises NotFound, Corrupt."""
        cdef uint64_t level = 0
        cdef uint64_t ref = self.find_ref(id, &level)
        cdef Message message = Message.__new__(Message)
        cdef Reading reading
        cdef rota_record *record
        message.store = self.store
        message.queue = self
        message.id = id
        message.slot = ref
        message.run.level = <uint8_t>level
        reading.commit = NULL
        try:
            message._body = read_slot(self.store, ref, id, &reading)
        except (errors.LeaseLost, errors.Killed):  # nobody claimed it here: it was settled meanwhile
            raise errors.NotFound(f"the queue {self.name!r} has no message {id}", path=self.store.path) from None
        message._attributes = self.store.attributes
        message._header = reading.header
        record = rota_table_find(self.store.h, &self.store.h.control.tables[ROTA_TABLE_HISTORY], id)
        if record != NULL:
            message.run.handouts = <uint32_t>record.a
            message.run.excused = <uint32_t>(record.a >> 32)
        return message

    def find(self, key=None, header=None, where=None, uint32_t limit=100):
        """Messages that are meant, looked at without a claim, whoever holds them: a list of Message.

        `key`, `header` (a dict of names and values) and `where` (a condition or a callable(message)) must all hold.
        Where an index tells which messages may be meant, at most `limit` of them are looked at, high priorities first,
        each in the order of arrival; else the `limit` oldest messages of the queue.
        """
        return finding.find_messages(self, key, header, where, limit)

    def kill(self, uint64_t id):
        """Delete the message of that id, also one in flight, whose holder's next call raises Killed.

        True when this call or an earlier one killed it; False when it ended otherwise before (processed, or expired): too
        late.  It is found wherever it was moved to.  Durable when this returns, whatever the level.  Raises NotFound
        for an id that is unknown, or ended so long ago that nothing is known of it.
        """
        self.store.check_writable()
        self.native()
        return kill_message(self.store, self.number, self.name, id)

    def drop(self, ids):
        """Settle messages by id whoever holds them, in one commit, without a tombstone: for volatile queues."""
        cdef bytes extra = b"".join(int(id).to_bytes(8, "little") for id in ids)
        submit_ops(self.store, [(ROTA_OP_ACK_LIST, 0, self.number, 0, len(extra) // 8, 0, extra)], "none")

    def redrive(self, ids, target=None):
        """Move messages (of an error queue) to the queue where they were first put, or to `target`, with new counts."""
        from rota._core.redrive import redrive_messages
        return redrive_messages(self, ids, target)

    cdef int change(self, uint8_t action) except -1:
        cdef Draft draft
        self.store.check_writable()
        self.native()
        draft_begin(&draft, self.store.h)
        try:
            draft_op(&draft, ROTA_OP_QUEUE, action, <uint16_t>self.number, 0, 0, 0, NULL, 0)
            submit_settle(self.store, &draft, None)
        finally:
            draft_end(&draft)
        return 0

    def stop(self):
        """Refuse puts and hand-outs with QueueStopped; messages stay, acks go on."""
        self.change(ROTA_QUEUE_STOP)

    def start(self):
        """Let a stopped queue go on."""
        self.change(ROTA_QUEUE_START)

    def fence(self, token):
        """Let only a leader whose token is `token` or higher act on this queue from now on; durable when this returns.

        `token` is an int above 0 and below 2**128 that rises from leader to leader.  A claim, ack, put or transaction
        that carries a lower one raises StaleLeader, under the lock; so does a claim or an ack without one.  What was
        claimed under lower ones is handed out again, in order, without waiting for its leases; what was shown of it
        counts as an attempt.  The fence never goes back: a lower token than the last raises StaleLeader here too.

        Kleppmann, "How to do distributed locking", 2016.
        """
        self.store.check_writable()
        self.native()
        fence_queue(self.store, self.number, self.created_lsn, token)

    @property
    def fencing_token(self):
        """The token of the last fence(), an int; None when there was none."""
        cdef rota_queue *queue = self.native()
        return join_token(queue.fence_generation, queue.fence_number)

    def under(self, token):
        """Another handle of this queue, whose claims, acks and puts carry `token`."""
        return under_token(self, token)

    @property
    def token(self):
        """The token that this handle carries, None for none."""
        return self.token_id

    def purge(self):
        """Settle every message that nobody holds; returns how many there were."""
        cdef uint64_t purged = 0
        while True:
            batch = self.get_many(4096)
            if not len(batch):
                return purged
            purged += len(batch)
            batch.ack()

    def qsize(self):
        """Messages that are ready."""
        return queue_ready(self.native())

    def empty(self):
        """Whether none is ready."""
        return queue_ready(self.native()) == 0

    def full(self):
        """Whether max_messages is reached."""
        cdef rota_queue *queue = self.native()
        return queue.options.max_messages != 0 and queue_live(queue) >= queue.options.max_messages

    def __len__(self):
        """Messages not settled yet: ready, delayed, claimed, parked."""
        return queue_live(self.native())

    def __bool__(self):
        return True

    def figures(self):
        """Figures and options of the queue, a dict; names as in rota.QueueStatistics."""
        cdef rota_queue *q = self.native()
        cdef uint64_t puts = 0, delayed = 0, parked = 0, size = 0
        cdef uint32_t i
        for i in range(10):
            puts += q.lanes[i].appended
            delayed += q.lanes[i].delayed
            size += q.lanes[i].appended_bytes
            parked += q.lanes[i].parked
        return {
            "name": self.name, "state": "stopped" if q.state == ROTA_QUEUE_STOPPED else "open",
            "ready": queue_ready(q), "delayed": delayed, "claimed": q.claimed, "parked": parked,
            "waiting": q.waiting,
            "total": queue_live(q), "puts": puts - q.opened_puts, "gets": q.gets, "acks": q.acks, "nacks": q.nacks,
            "killed": q.killed, "expired": q.expired, "moved": q.moved, "bytes": size - q.opened_bytes,
            "max_messages": q.options.max_messages or None, "max_attempts": q.options.max_attempts or None,
            "lease": q.options.lease_ns / 1e9, "error_queue_number": q.options.error_queue,
            "order": ("skip", "group", "strict", "highest")[q.options.order], "volatile": bool(q.options.is_volatile),
            "is_error_queue": bool(q.options.is_error_queue),
            **decode_indexes(bytes(q.index_text[:q.index_bytes])),
        }

    @property
    def number_(self):
        """The number of the queue in the log: for the package itself."""
        return self.number

    def stats(self):
        """Figures of the queue: rota.QueueStatistics."""
        return self.repository.queue_stats(self)

    def configure(self, **options):
        """Change max_messages, max_attempts, lease or order."""
        self.native()
        self.repository.configure(self, **options)

    def register(self, name, stable=True):
        """Register at this queue: a Registration, whose tag is kept with the operations that carry it."""
        self.native()
        return self.repository.register(self, name, stable)

    def peek(self):
        """The oldest live message, looked at without a claim.  Raises Empty."""
        for id in self.ids(0, 1):
            return self.read(id)
        raise errors.Empty(f"no message in {self.name!r}", path=self.store.path)

    def browse(self):
        """Iterate over the live messages by id, without a claim; what ends meanwhile is passed over."""
        cdef uint64_t after = 0
        while True:
            ids = self.ids(after, 1000)
            if not ids:
                return
            for id in ids:
                try:
                    message = self.read(id)
                except errors.NotFound:
                    continue
                yield message
            after = ids[len(ids) - 1]

    def ids(self, uint64_t after=0, uint32_t limit=1000):
        """Ids of live messages above `after`, ascending, at most `limit`: a look without a claim."""
        return list_ids(self.store, self.native(), after, limit)

    def __reduce__(self):
        return reopen_queue, (self.repository, self.name, self.token_id)

    def __repr__(self):
        if self.store.closed or self.store.forked:
            return f"<rota.Queue {self.name!r} {'closed' if self.store.closed else 'forked'}>"
        f = self.figures()
        return f"<rota.Queue {self.name!r} {f['state']}: {f['ready']} ready, {f['claimed']} claimed, " \
               f"{f['delayed']} delayed>"


cdef int add_ack(Draft *draft, Message message) except -1:
    cdef Settle settle
    fill_settle(&settle, &message.run, message.id, message.id, 1, False)
    draft_op(draft, ROTA_OP_ACK, message.run.level, message.run.queue, message.id, message.id, 1, NULL, 0)
    draft_settle(draft, &settle)
    return 0


def reopen_queue(repository, name, token=None):
    """The queue of that name, where a pickled one arrives."""
    queue = repository.queue(name)
    return queue if token is None else queue.under(token)
