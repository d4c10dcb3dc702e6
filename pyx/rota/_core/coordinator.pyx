"""Deduplication automata for the threads and the asyncio tasks of one process.

What holds:

1. The automata are those of engine/include/rota/automaton.h, in memory of this object; a key costs 24 bytes there.
2. Owners are numbers that are never used again (rota._core.owner); so an evicted head can do no harm.
3. A thread sleeps on the word of its waiter, without the interpreter's lock; a task has a future, which whoever
   promotes it sets through the task's loop.  Records of waiters are given back under the interpreter's lock only.
4. A wait that ends by an exception gives up the turn: whoever never came to wait is not waited for.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t

from engine.atomics cimport rota_fence, rota_load_acquire_u32, rota_store_relaxed_u32
from engine.automaton cimport *

from rota._core.keys cimport name_of
from rota._core.opening cimport fork_generation
from rota._core.owner cimport in_task, owner_now
from rota._core.platform cimport table as platform_table

from rota import errors
from rota.coordination import Action, Turn
from rota.statistics import CoordinatorStatistics

cdef enum:
    STRIPE_SLOTS = 4096
    CAPACITY_MAX = 1 << 30
    SLICE_NS = 50000000       # after which a signal is seen that came just before the sleep
    SLEEPS_THREAD = 1
    SLEEPS_TASK = 2
    TURN_COUNT = 4

cdef const uint32_t *forks = fork_generation()
cdef tuple ACTIONS = (Action.DECLINE, Action.ACCEPT, Action.BLOCK)
cdef tuple TURNS = (None, Turn.ENDED, Turn.EVICTED, Turn.DIED)


@cython.final
cdef class Coordinator:
    """Of all who want to do the same thing, one does it, one waits, and the others are told that it is being done.

    Each key has an automaton (state machine of the queue-programming article, Meituan): the first to `enqueue` it is
    the head and works; the second waits, and becomes head when the first calls `dequeue`; a third is declined, since
    the one that waits will see all that it could see.  `timeout` is seconds after which one who waits evicts the head
    (None: never); `capacity` is how many keys can be in use at a time, at 60 bytes for each two of them.  Keys are
    bytes, str (the same as its UTF-8) or integers from -2**63 to 2**64 - 1.  For the threads and asyncio tasks of one
    process; nothing outlives the object.
    """

    def __cinit__(self):
        self.tables = NULL
        self.automata.waiters = NULL

    def __init__(self, timeout: float | None = 1.0, capacity: int = 65536):
        if self.tables is not NULL:
            raise errors.StateError("a coordinator is made once")
        if timeout is not None and not 0 <= timeout < 9e9:
            raise ValueError(f"timeout is {timeout}; it is seconds from 0, or None for no eviction")
        if not 1 <= capacity <= CAPACITY_MAX:
            raise ValueError(f"capacity is {capacity}; it is a number of keys from 1 to {CAPACITY_MAX}")
        self.timeout_ns = -1 if timeout is None else <int64_t>(<double>timeout * 1e9)
        self.capacity = capacity
        self.futures = {}
        self.process = forks[0]
        self.allocate(capacity)

    cdef int allocate(self, uint64_t capacity) except -1:
        """Slots for 5/4 of the capacity, so that no stripe is full before it; waiters are touched when they are used."""
        cdef rota_automata *a = &self.automata
        cdef uint64_t slots = capacity + capacity // 4 + 1
        a.platform = platform_table()
        a.stripe_count = <uint32_t>((slots + STRIPE_SLOTS - 1) // STRIPE_SLOTS)
        a.slots_each = <uint32_t>((slots + a.stripe_count - 1) // a.stripe_count + 3)
        a.slots_most = a.slots_each - a.slots_each // 16 - 1
        a.waiters_each = a.slots_each
        self.table_bytes = a.stripe_count * (sizeof(rota_stripe) + a.slots_each * <uint64_t>sizeof(rota_automaton))
        self.tables = PyMem_RawCalloc(1, self.table_bytes + 64)
        a.waiters = <rota_waiter *>PyMem_RawCalloc(<size_t>a.stripe_count * a.waiters_each, sizeof(rota_waiter))
        if self.tables is NULL or a.waiters is NULL:
            raise MemoryError
        a.stripes = <rota_stripe *>((<uintptr_t>self.tables + 63) & ~<uintptr_t>63)
        a.slots = <rota_automaton *>(a.stripes + a.stripe_count)
        if a.platform.random(a.platform, a.secret, 16) != 0:
            raise OSError("the system gives no random bytes for the names of keys")
        return 0

    def __dealloc__(self):
        PyMem_RawFree(self.tables)
        PyMem_RawFree(self.automata.waiters)

    cdef int use(self) except -1:
        if self.process != forks[0] or self.tables is NULL:
            raise errors.ForkedHandleError("a coordinator belongs to the process that made it: make one in the child")
        return 0

    # --- the calls ------------------------------------------------------------------------------------------------

    cdef int enqueue_as(self, uint64_t owner, object key, uint32_t *generation) except -10:
        self.use()
        cdef int action = rota_enqueue(&self.automata, name_of(self.automata.secret, key), owner, generation)
        if action < 0:
            self.refuse(action, key)
        return action

    cdef int refuse(self, int action, object key) except -1:
        if action == ROTA_OWN_HEAD:
            raise errors.StateError(f"key {key!r} is in the hands of this thread or task already: dequeue it first")
        raise errors.Full(f"no room for key {key!r} in a coordinator of capacity {self.capacity}: dequeue finished "
                          "keys, or make it with a larger capacity")

    def enqueue(self, key, /):
        """Ask to work on a key: `Action.ACCEPT` (work, then dequeue), `BLOCK` (wait, work, dequeue) or `DECLINE`.

        Returns at once.  Raises StateError when the caller is the head already, Full when the table is full.
        """
        cdef uint32_t generation = 0
        return ACTIONS[self.enqueue_as(owner_now(), key, &generation)]

    cdef int wake(self, rota_waiter *woken) except -1:
        if woken.sleeping == SLEEPS_THREAD:
            rota_wake(&self.automata, woken)
            return 0
        entry = self.futures.get(<uintptr_t>woken)
        if entry is not None:
            loop, future = entry
            try:
                loop.call_soon_threadsafe(_settle, future)
            except RuntimeError:
                pass  # its loop was closed: the task is never resumed, and a later waiter evicts it
        return 0

    cdef bint dequeue_as(self, uint64_t owner, rota_key_name name, int64_t generation) except -1:
        cdef rota_waiter *woken = NULL
        cdef uint32_t index = rota_stripe_index(&self.automata, name)
        cdef rota_stripe *stripe = rota_stripe_enter(&self.automata, index)
        cdef bint was = rota_dequeue_locked(&self.automata, index, stripe, name, owner, generation, &woken)
        rota_stripe_leave(stripe)
        if woken is not NULL:
            self.wake(woken)
        return was

    def dequeue(self, key, /):
        """End the work on a key; the one that waits becomes head.

        True when the caller was the head.  False, and nothing happens, when it was evicted or never was.
        """
        self.use()
        return self.dequeue_as(owner_now(), name_of(self.automata.secret, key), -1)

    def enqueue_many(self, keys, /):
        """`enqueue` for each key of a NumPy array: an array of Actions as numbers (uint8), `answers == Action.ACCEPT`.

        Keys are integers or bytes of a fixed size.  A key that the caller has already, a repeat in the array too, is
        declined.  Raises Full when there is no room for all; then nothing was enqueued.
        """
        from rota._core import crowd
        self.use()
        return crowd.enqueue_crowd(self, owner_now(), keys)

    def dequeue_many(self, keys, /):
        """`dequeue` for each key of a NumPy array: an array of bool."""
        from rota._core import crowd
        self.use()
        return crowd.dequeue_crowd(self, owner_now(), keys)

    # --- waiting --------------------------------------------------------------------------------------------------

    cdef rota_waiter *waiter_as(self, uint64_t owner, rota_key_name name, object key) except NULL:
        cdef rota_waiter *waiter = rota_waiter_of(&self.automata, name, owner)
        if waiter is NULL:
            raise errors.StateError(f"nobody waits here for key {key!r}: wait follows an enqueue that returned BLOCK")
        return waiter

    cdef int sleep(self, rota_waiter *waiter, int64_t deadline) except -1:
        """Until the turn comes or the time is over."""
        cdef int64_t left = SLICE_NS
        rota_store_relaxed_u32(&waiter.sleeping, SLEEPS_THREAD)
        rota_fence()
        while rota_load_acquire_u32(&waiter.turn) == ROTA_TURN_NONE:
            if deadline >= 0:
                left = deadline - self.now()
                if left <= 0:
                    break
            with nogil:
                self.automata.platform.futex_wait(self.automata.platform, &waiter.turn, ROTA_TURN_NONE,
                                                  min(left, <int64_t>SLICE_NS))
            PyErr_CheckSignals()
        return 0

    cdef int leave_wait(self, uint64_t owner, rota_key_name name) except -1:
        """Give up: the head stays; but when the turn came meanwhile it is passed on."""
        cdef uint32_t generation = 0
        if rota_wait_end(&self.automata, name, owner, False, &generation) != ROTA_TURN_NONE:
            self.dequeue_as(owner, name, generation)
        return 0

    cdef int wait_as(self, uint64_t owner, object key, int64_t deadline, uint32_t *generation) except -1:
        cdef rota_key_name name = name_of(self.automata.secret, key)
        cdef rota_waiter *waiter = self.waiter_as(owner, name, key)
        try:
            self.sleep(waiter, deadline)
        except BaseException:
            self.leave_wait(owner, name)
            raise
        return <int>rota_wait_end(&self.automata, name, owner, True, generation)

    cdef int64_t now(self) noexcept:
        return <int64_t>self.automata.platform.clock_boot_ns(self.automata.platform)

    cdef int64_t deadline(self) noexcept:
        return -1 if self.timeout_ns < 0 else self.now() + self.timeout_ns

    def wait(self, key, /):
        """After BLOCK: sleep until the caller is the head.  Says how: `Turn.ENDED`, `EVICTED` or `DIED`, all true.

        The clock of the timeout starts here.  Raises StateError without a BLOCK before, and inside of a task, where it
        would stop the loop: `await wait_async(key)` there.
        """
        cdef uint32_t generation = 0
        self.use()
        if in_task():
            raise errors.StateError("wait() would stop the event loop: await wait_async() in a task")
        return TURNS[self.wait_as(owner_now(), key, self.deadline(), &generation)]

    def wait_many(self, keys, /):
        """`wait` for each key of a NumPy array, one after the other: an array of Turns as numbers (uint8).

        0 where the caller does not wait.  The clock of all waits starts here, so all of them are over after one
        timeout.  When it is interrupted, those that were not waited for can be waited for again.
        """
        from rota._core import crowd
        self.use()
        if in_task():
            raise errors.StateError("wait_many() would stop the event loop: await wait_async() in a task")
        return crowd.wait_crowd(self, owner_now(), keys)

    async def wait_async(self, key, /):
        """`wait` for asyncio tasks.  A cancelled wait gives up: the next one can wait instead."""
        turn, _ = await self._wait_task(key)
        return turn

    async def _wait_task(self, key):
        import asyncio
        self.use()
        cdef uint64_t owner = owner_now()
        cdef rota_key_name name = name_of(self.automata.secret, key)
        cdef rota_waiter *waiter = self.waiter_as(owner, name, key)
        cdef uint32_t generation = 0
        future = (loop := asyncio.get_running_loop()).create_future()
        self.futures[<uintptr_t>waiter] = loop, future
        rota_store_relaxed_u32(&waiter.sleeping, SLEEPS_TASK)
        rota_fence()
        try:
            if rota_load_acquire_u32(&waiter.turn) == ROTA_TURN_NONE:
                await asyncio.wait([future], timeout=None if self.timeout_ns < 0 else self.timeout_ns / 1e9)
        except BaseException:
            del self.futures[<uintptr_t>waiter]
            self.leave_wait(owner, name)
            raise
        del self.futures[<uintptr_t>waiter]
        return TURNS[rota_wait_end(&self.automata, name, owner, True, &generation)], generation

    def give_up(self, key, /):
        """After BLOCK, instead of wait: the place of the one that waits is free again.

        False when the caller does not wait; when its turn came meanwhile it is passed on.
        """
        self.use()
        cdef rota_key_name name = name_of(self.automata.secret, key)
        cdef uint64_t owner = owner_now()
        if rota_waiter_of(&self.automata, name, owner) is NULL:
            return False
        self.leave_wait(owner, name)
        return True

    def guard(self, key, /):
        """A context manager, for `with` and `async with`: enqueue, wait when told to, dequeue at the end.

        It yields the Action: test it, DECLINE is false and nothing is to be done.
        """
        return Guard(self, key)

    def stats(self):
        """`CoordinatorStatistics`: what was accepted, blocked, declined, evicted, and how many keys are in use."""
        cdef uint64_t i, live = 0, accepted = 0, blocked = 0, declined = 0, evicted = 0, died = 0
        cdef rota_stripe *stripe
        self.use()
        for i in range(self.automata.stripe_count):
            stripe = &self.automata.stripes[i]
            live += stripe.count
            accepted += stripe.accepted
            blocked += stripe.blocked
            declined += stripe.declined
            evicted += stripe.evicted
            died += stripe.died
        return CoordinatorStatistics(live, self.capacity, accepted, blocked, declined, evicted, died, self.table_bytes)

    # --- for tests: the same calls in the name of a numbered owner --------------------------------------------------

    def _enqueue_as(self, owner, key):
        cdef uint32_t generation = 0
        return ACTIONS[self.enqueue_as(owner, key, &generation)], generation

    def _dequeue_as(self, owner, key, generation=-1):
        return self.dequeue_as(owner, name_of(self.automata.secret, key), generation)

    def _turn_as(self, owner, key):
        """The turn of a waiter that looks once: None when it did not come."""
        cdef rota_waiter *waiter = rota_waiter_of(&self.automata, name_of(self.automata.secret, key), owner)
        return None if waiter is NULL else TURNS[waiter.turn]

    def _sleepers(self):
        """Whether a thread sleeps, or is about to."""
        cdef uint64_t i
        for i in range(<uint64_t>self.automata.stripe_count * self.automata.waiters_each):
            if self.automata.waiters[i].owner and self.automata.waiters[i].sleeping == SLEEPS_THREAD:
                return True
        return False

    def _wait_end_as(self, owner, key, evict):
        cdef uint32_t generation = 0
        return TURNS[rota_wait_end(&self.automata, name_of(self.automata.secret, key), owner, evict, &generation)]


def _settle(future):
    if not future.done():
        future.set_result(None)


@cython.final
cdef class Guard:
    """One turn at a key, from `Coordinator.guard(key)`.

    `key` is the key, `action` what the enqueue said (None outside of the block), `turn` how the wait ended (None when
    there was none), `generation` a number that tells this turn from a later one at the same key.
    """

    cdef Coordinator coordinator
    cdef readonly object key
    cdef readonly object action       # Action; None before it was entered
    cdef readonly object turn         # Turn; None when there was no wait
    cdef uint32_t turn_generation
    cdef uint64_t owner

    def __cinit__(self):
        self.action = self.turn = None

    def __init__(self, Coordinator coordinator, key):
        self.coordinator = coordinator
        self.key = key

    @property
    def generation(self):
        """The number of this turn at the key, 0 to 65535; it tells the head from one that was evicted."""
        return self.turn_generation

    def __enter__(self):
        cdef int action
        if self.action is None and in_task():
            raise errors.StateError("a guard in a task is entered by `async with`")
        self.begin()
        if self.action is Action.BLOCK:
            try:
                self.turn = TURNS[self.coordinator.wait_as(self.owner, self.key, self.coordinator.deadline(),
                                                           &self.turn_generation)]
            except BaseException:
                self.action = None
                raise
        return self.action

    cdef int begin(self) except -1:
        if self.action:
            raise errors.StateError(f"the guard of key {self.key!r} is inside already")
        self.owner = owner_now()
        self.turn = None
        self.action = ACTIONS[self.coordinator.enqueue_as(self.owner, self.key, &self.turn_generation)]
        return 0

    def __exit__(self, kind, value, traceback):
        action, self.action = self.action, None
        if action:
            self.coordinator.use()
            self.coordinator.dequeue_as(self.owner, name_of(self.coordinator.automata.secret, self.key), self.turn_generation)

    async def __aenter__(self):
        self.begin()
        if self.action is Action.BLOCK:
            try:
                self.turn, self.turn_generation = await self.coordinator._wait_task(self.key)
            except BaseException:
                self.action = None
                raise
        return self.action

    async def __aexit__(self, kind, value, traceback):
        self.__exit__(kind, value, traceback)
