"""Batches: several messages claimed at once, made into objects only when asked for.

What holds:

1. A batch owns its runs (claim records).  collect() finds the slots of their messages; it is checked against the
   claim's generation afterwards, so a claim that ended yields LeaseLost and never another's message.
2. `bodies` and `array` show all messages; iterating shows one at a time.
3. ack() is one commit: a range where nothing of it came back by itself, else ids.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from engine.atomics cimport *
from engine.control cimport *
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.pool cimport *
from engine.status cimport *

from rota._core.holding cimport generation_of
from rota._core.draft cimport *
from rota._core.lane cimport queue_at
from rota._core.gather cimport gather_bodies
from rota._core.lease cimport mark_shown, return_unshown
from rota._core.message cimport Message, fill_settle, park_corrupt, submit_settle
from rota._core.reading cimport Reading, read_slot
from rota._core.reap cimport wake_queue
from rota._core.store cimport Store
from rota._core.tombs cimport killed_between

from rota import errors

cdef enum:
    CLAIMED = 1
    SETTLED = 2
    IN_TRANSACTION = 3


cdef uint32_t walk(rota_handle *h, const Run *run, uint64_t *ids, uint64_t *refs) noexcept nogil:
    """Ids and slots of a range's messages, without the lock: the caller checks the claim afterwards."""
    cdef uint32_t number = rota_ref_page(run.first), index = rota_ref_index(run.first), count = 0, steps = 0
    cdef uint64_t first_id = run.first_id, last_id = run.last_id, id
    cdef uint32_t wanted = run.count, slots
    cdef rota_page *page
    cdef rota_slot *slot
    while number and count < wanted and steps < 1 << 20:
        page = rota_page_at(h, number)
        if page.kind != ROTA_PAGE_CHUNK:
            return count
        slots = rota_page_slots(page)
        slot = rota_page_slot(page, 0)
        while index < slots and count < wanted:
            id = slot[index].id
            if id > last_id:
                return count
            if id >= first_id and rota_slot_state(slot[index].word) == ROTA_SLOT_FRESH:
                ids[count] = id
                refs[count] = rota_ref(number, index)
                count += 1
            index += 1
        number = page.next
        index = 0
        steps += 1
    return count


cdef Batch new_batch(Store store, object queue, Run *runs, uint32_t run_count, uint32_t count):
    """Takes over the memory of `runs`."""
    cdef Batch batch = Batch.__new__(Batch)
    batch.store = store
    batch.queue = queue
    batch.runs = runs
    batch.run_count = run_count
    batch.count = count
    batch.state = CLAIMED
    return batch


@cython.final
cdef class Batch:
    """A sequence of claimed messages.  `bodies` is a list of bytes, `ids` a list of ints, `ack()` settles all.

    `array` is the NumPy array of get_array(), else None; `queue` is where they were claimed.
    """

    def __init__(self):
        raise TypeError("a batch comes from queue.get_many()")

    def __dealloc__(self):
        free(self.runs)
        free(self.id_list)
        free(self.refs)
        free(self.run_of)

    cdef int collect(self) except -1:
        """Find the slots once.  Raises LeaseLost, and then nothing was found."""
        if self.id_list != NULL or self.count == 0:
            return 0
        self.store.check()
        try:
            self.find_slots()
        except BaseException:
            free(self.id_list)
            free(self.refs)
            free(self.run_of)
            self.id_list = self.refs = NULL
            self.run_of = NULL
            raise
        return 0

    cdef int find_slots(self) except -1:
        cdef uint32_t i, got, at = 0, j
        self.id_list = <uint64_t *>malloc(self.count * sizeof(uint64_t))
        self.refs = <uint64_t *>malloc(self.count * sizeof(uint64_t))
        self.run_of = <uint32_t *>malloc(self.count * sizeof(uint32_t))
        if self.id_list == NULL or self.refs == NULL or self.run_of == NULL:
            raise MemoryError
        for i in range(self.run_count):
            if self.runs[i].kind == ROTA_CLAIM_SINGLE:
                self.id_list[at] = self.runs[i].first_id
                self.refs[at] = self.runs[i].first
                got = 1
            else:
                got = walk(self.store.h, &self.runs[i], self.id_list + at, self.refs + at)
            for j in range(got):
                self.run_of[at + j] = i
            at += got
        if at < self.count:
            if self.state == CLAIMED or self.state == IN_TRANSACTION:
                self.check_claims()
            self.count = at  # some were killed meanwhile
        return 0

    cdef int check_claims(self) except -1:
        """Raise LeaseLost when a record of this batch is another's by now."""
        cdef uint32_t i
        cdef rota_handle *h = self.store.h
        rota_fence_acquire()
        for i in range(self.run_count):
            if generation_of(&h.claims[self.runs[i].claim % ROTA_CLAIM_COUNT]) != self.runs[i].generation:
                killed = killed_between(h, self.runs[i].first_id, self.runs[i].last_id)
                if killed:
                    raise errors.Killed(f"message {killed} was killed before this batch was looked at",
                                        path=self.store.path, expected=killed)
                raise errors.LeaseLost("the claim of this batch ended before it was looked at", path=self.store.path)
        return 0

    cdef int show_all(self) except -1:
        cdef uint32_t i
        self.store.check()
        if self.state == CLAIMED or self.state == IN_TRANSACTION:
            for i in range(self.run_count):
                mark_shown(self.store, &self.runs[i], self.runs[i].last_id)
        return 0

    @property
    def ids(self):
        """Ids of the messages, ascending within a priority."""
        self.collect()
        return [self.id_list[i] for i in range(self.count)]

    @property
    def bodies(self):
        """All bodies as a list of bytes; all of them count as shown.  Raises LeaseLost, Corrupt."""
        cdef Reading reading
        cdef bint gaps = False
        cdef uint32_t i
        cdef list result
        if self.count == 0:
            return []
        self.show_all()
        self.collect()
        reading.commit = NULL
        result = [None] * self.count
        i = 0
        while i < self.count:
            i += gather_bodies(self.store, self.id_list + i, self.refs + i, self.count - i, &reading, result, i, &gaps)
        for i in range(self.count if gaps else 0):
            if result[i] is None:
                reading.commit = NULL
                result[i] = self.read(i, &reading)
        if self.state == CLAIMED:
            self.check_claims()
        return result

    cdef bytes read(self, uint32_t i, Reading *reading):
        try:
            return read_slot(self.store, self.refs[i], self.id_list[i], reading)
        except errors.Corrupt:
            if self.state == CLAIMED:
                park_corrupt(self.store, &self.runs[self.run_of[i]], self.id_list[i])
            raise

    def fill(self, array, octets, Py_ssize_t itemsize):
        """Copy every body into `octets`, the bytes of `array`, which is kept.  Raises ValueError on another size."""
        cdef Py_buffer view
        cdef Reading reading
        cdef uint32_t i
        cdef bytes body
        self.show_all()
        self.collect()
        reading.commit = NULL
        PyObject_GetBuffer(octets, &view, PyBUF_WRITABLE)
        try:
            for i in range(self.count):
                body = self.read(i, &reading)
                if PyBytes_GET_SIZE(body) != itemsize:
                    raise ValueError(f"message {self.id_list[i]} has {len(body)} bytes, the dtype {itemsize}")
                if (i + 1) * itemsize > view.len:
                    raise ValueError("the array is too short")
                memcpy(<uint8_t *>view.buf + i * itemsize, PyBytes_AS_STRING(body), itemsize)
        finally:
            PyBuffer_Release(&view)
        if self.state == CLAIMED:
            self.check_claims()
        self.array = array

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.count))]
        cdef Py_ssize_t i = index
        if i < 0:
            i += self.count
        if i < 0 or i >= self.count:
            raise IndexError("no such message in the batch")
        self.collect()
        if self.messages is None:
            self.messages = [None] * self.count
        if self.messages[i] is None:
            self.messages[i] = self.make(<uint32_t>i)
        return self.messages[i]

    cdef Message make(self, uint32_t i):
        cdef Message message = Message.__new__(Message)
        cdef Run *run = &self.runs[self.run_of[i]]
        message.store = self.store
        message.queue = self.queue
        message.id = self.id_list[i]
        message.run = run[0]
        message.slot = self.refs[i]
        message.state = self.state
        message.batch = self
        return message

    def __iter__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            yield self[i]

    cdef int add_acks(self, Draft *draft, bint by_id) except -1:
        """Operations and settlements for everything that is not settled yet."""
        cdef uint32_t i, j
        cdef Settle settle
        cdef Run *run
        cdef bint touched = by_id or (self.messages is not None and any(
            m is not None and (<Message>m).state == SETTLED for m in self.messages))
        for i in range(self.run_count if not touched else 0):
            run = &self.runs[i]
            draft_op(draft, ROTA_OP_ACK, run.level, run.queue, run.first_id, run.last_id, run.count, NULL, 0)
            fill_settle(&settle, run, run.first_id, run.last_id, run.count, run.kind == ROTA_CLAIM_RANGE)
            draft_settle(draft, &settle)
        if not touched:
            return 0
        self.collect()
        for j in range(self.count):
            if self.messages is not None and self.messages[j] is not None \
                    and (<Message>self.messages[j]).state == SETTLED:
                continue
            run = &self.runs[self.run_of[j]]
            draft_op(draft, ROTA_OP_ACK, run.level, run.queue, self.id_list[j], self.id_list[j], 1, NULL, 0)
            fill_settle(&settle, run, self.id_list[j], self.id_list[j], 1, False)
            draft_settle(draft, &settle)
        return 0

    def ack(self, durability=None):
        """Settle all of them in one commit.  A second ack does nothing.  Raises LeaseLost, Killed."""
        cdef Draft draft
        cdef bint by_id = False
        cdef int again = 1
        self.store.check_writable()
        self.store.level_of(durability)
        if self.state == IN_TRANSACTION:
            raise errors.StateError("the batch belongs to a transaction: its commit settles it")
        if self.state != CLAIMED or self.count == 0:
            if self.count:
                self.store.settle_seen(durability)
            return
        while again:
            draft_begin(&draft, self.store.h)
            try:
                self.add_acks(&draft, by_id)
                if draft.op_count == 0:
                    break
                again = submit_settle(self.store, &draft, durability)
            except errors.Killed as error:
                self.forget(error.expected)
                raise
            finally:
                draft_end(&draft)
            by_id = True
        self.settled()

    cdef int forget(self, id) except -1:
        """A message of this batch was killed: the rest can still be settled."""
        cdef uint32_t i
        self.collect()
        for i in range(self.count):
            if self.id_list[i] == id:
                (<Message>self[i]).state = SETTLED
        return 0

    cdef int settled(self) except -1:
        self.state = SETTLED
        if self.messages is not None:
            for message in self.messages:
                if message is not None:
                    (<Message>message).state = SETTLED
        return 0

    def nack(self, delay=0.0, reason=None):
        """Give back what is not settled yet, each with a counted attempt.  Raises LeaseLost."""
        for message in self:
            message.nack(delay, reason)
        self.settled()

    def release(self, delay=0.0):
        """Give back what is not settled yet; attempts do not count.  What was never shown goes back unlogged."""
        cdef uint32_t i
        cdef rota_error error
        cdef int status
        self.store.check_writable()
        if self.state != CLAIMED:
            return
        if delay or self.messages is not None:
            for message in self:
                message.release(delay)
        else:
            for i in range(self.run_count):
                self.release_run(&self.runs[i])
        self.settled()

    cdef int release_run(self, Run *run) except -1:
        """What was shown goes back by a commit, the rest by a change of its slots."""
        cdef rota_handle *h = self.store.h
        cdef uint32_t shown = <uint32_t>rota_load_acquire_u64(&h.claims[run.claim % ROTA_CLAIM_COUNT].shown)
        if shown:
            for i in range(self.count):
                self[i]
            for i in range(self.count):
                if self.runs[self.run_of[i]].claim == run.claim:
                    self.messages[i].release()
            return 0
        return_unshown(self.store, run)
        wake_queue(h, queue_at(h, run.queue))
        return 0

    def extend(self, double seconds):
        """Let the lease of what is not settled yet end `seconds` from now.  Raises LeaseLost."""
        cdef uint32_t i
        for i in range(self.count):
            message = self[i]
            if not message.settled:
                message.extend(seconds)

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
        raise TypeError("a claimed batch belongs to its process and is not pickled: pass bodies and ids on")

    def __repr__(self):
        return f"<rota.Batch of {self.count} {('', 'claimed', 'settled', 'in a transaction')[self.state]}>"
