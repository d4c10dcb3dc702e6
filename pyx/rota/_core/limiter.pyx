"""Frequency control for all processes of a repository: token buckets in a mapped file of their own.

What holds:

1. The buckets are those of engine/include/rota/limiter.h.  A check of a bucket is a read of the boot clock and one
   compare-and-swap; only a key without a slot takes the lock, as the main lock is taken: tried with the interpreter's
   lock held, waited for in slices without it.
2. The file is made and brought from boot to boot under a lock of its first byte, before anybody uses it.  It outlives
   all processes; it is not synced, so after a power cut it may be some seconds old, which gives at most one burst.
3. Who waits knows when its turn is, and sleeps until then; it is not woken earlier, and asks nobody.
4. The file is untrusted: size, magic and name are checked at open, numbers at each use.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from engine.atomics cimport *
from engine.failpoint cimport *
from engine.limiter cimport *
from engine.lock cimport *
from engine.platform cimport *

from rota._core.keys cimport name_of
from rota._core.opening cimport fork_generation
from rota._core.platform cimport failpoints, table
from rota._core.store cimport Store

from rota import errors

cdef enum:
    SLICE_NS = 50000000   # after which a signal is seen that came just before the sleep
    SLICES = 100
    ERRNO_AGAIN = 11
    STOPPED = -1
    BROKEN = -2

cdef const uint32_t *forks = fork_generation()


def check_rate(rate, burst):
    """Raise ValueError for a rate or a burst that cannot be."""
    if rate is not None and not 1e-6 <= rate <= 1e9:
        raise ValueError(f"rate is 0.000001 to 1e9 a second, not {rate!r}")
    if burst is not None and not 0 < burst <= 1e9:
        raise ValueError(f"burst is above 0 and at most 1e9, not {burst!r}")


@cython.final
cdef class Limiter:
    """How often something may begin, shared by all processes of a repository; from `repo.limiter(name)`.

    A token bucket: `rate` is cost per second, `burst` how much may come at once after a pause.  Who comes too early
    waits, in the order of the calls; nothing is dropped.  Each key has a bucket of its own, so has no key.
    `name` and `repository` say which limiter it is.
    """

    def __cinit__(self):
        self.file = NULL

    def __init__(self, Store store, repository, str name, bytes file_name, rate, burst, uint64_t capacity):
        cdef bytes plain = name.encode("utf-8", "surrogateescape")
        if not 1 <= len(plain) <= 255:
            raise ValueError(f"the name of a limiter has 1 to 255 bytes, not {len(plain)}")
        if self.file is not NULL:
            raise errors.StateError("a limiter is opened once")
        store.check_writable()
        self.store = store
        self.repository = repository
        self.name = name
        self.file_name = file_name
        self.process = forks[0]
        self.open_file(plain, -1.0 if rate is None else rate, -1.0 if burst is None else burst, capacity)

    # --- the file -------------------------------------------------------------------------------------------------

    cdef int system(self, int status, str what) except -1:
        if status < 0:
            raise errors.error_for("DISK_FULL" if -status == 28 else "OS", what, path=self.store.path,
                                   file=self.file_name.decode(), errno=-status)
        return status

    cdef int damaged(self, str what) except -1:
        raise errors.Corrupt(f"the file of the limiter {self.name!r} {what}: close all users and remove it, its "
                             "buckets start full", path=self.store.path, file=self.file_name.decode())

    cdef int open_file(self, bytes name, double rate, double burst, uint64_t capacity) except -1:
        cdef const rota_platform *os = table()
        cdef rota_facts facts
        cdef int fd, status, slices = 0
        fd = self.system(os.open(os, self.store.h.directory_fd, self.file_name, ROTA_OPEN_WRITE | ROTA_OPEN_CREATE,
                                 0o600), "the file of a limiter cannot be opened")
        try:
            while True:  # held for the time of an open
                status = os.lock_range(os, fd, 0, 1, True)
                if status != -ERRNO_AGAIN:
                    break
                slices += 1
                if slices > 5000:
                    raise errors.LockHeld("a process that opens this limiter does not go on: continue or kill it",
                                          path=self.store.path, file=self.file_name.decode())
                with nogil:
                    os.sleep(os, 1000000)
                PyErr_CheckSignals()
            self.system(status, "the file of a limiter cannot be locked")
            self.system(os.facts(os, fd, &facts), "the file of a limiter cannot be examined")
            if facts.size < sizeof(rota_limit_file) or not self.complete(fd):
                self.create(fd, name, rate, burst, capacity)
            self.map_file(fd, name)
            self.begin_boot()
        finally:
            os.unlock_range(os, fd, 0, 1)  # a mapping keeps the open file, and the lock with it
            os.close(os, fd)
        return 0

    cdef bint complete(self, int fd) except -1:
        """A file without the magic number was not finished by who made it, and nobody has used it."""
        cdef uint64_t magic = 0
        self.system(table().pread(table(), fd, &magic, 8, 0), "the file of a limiter cannot be read")
        return magic != 0

    cdef int create(self, int fd, bytes name, double rate, double burst, uint64_t capacity) except -1:
        cdef const rota_platform *os = table()
        cdef uint32_t slots = <uint32_t>((2 * capacity + ROTA_LIMIT_SET - 1) // ROTA_LIMIT_SET * ROTA_LIMIT_SET)
        cdef uint64_t size = sizeof(rota_limit_file) + slots * <uint64_t>sizeof(rota_limit_slot)
        cdef rota_limit_file head
        cdef uint64_t magic = ROTA_LIMIT_MAGIC
        if rate < 0:
            raise errors.NotFound(f"there is no limiter {self.name!r} yet: give it a rate", path=self.store.path)
        self.system(os.truncate(os, fd, 0), "the file of a limiter cannot be made")
        self.system(os.allocate(os, fd, 0, size), "there is no room for the file of a limiter")
        self.system(os.pread(os, fd, &head, sizeof(head), 0), "the file of a limiter cannot be read")
        head.slot_count = slots
        head.name_length = <uint32_t>len(name)
        memcpy(head.name, <const char *>name, len(name))
        self.system(os.boot_id(os, head.boot_id), "the boot has no id")
        head.noted_boot_ns = os.clock_boot_ns(os)
        head.noted_wall_ns = os.clock_wall_ns(os)
        self.system(os.random(os, head.secret, 16), "the system gives no random bytes")
        head.interval = rota_limit_bits(1e9 / rate)
        head.burst = rota_limit_bits(burst)
        if rota_lock_init(&head.lock) != 0:
            raise OSError("a lock in shared memory cannot be made")
        self.system(os.pwrite(os, fd, &head, sizeof(head), 0), "the file of a limiter cannot be written")
        rota_failpoint(failpoints(), ROTA_AT_LIMIT_CREATED)
        self.system(os.pwrite(os, fd, &magic, 8, 0), "the file of a limiter cannot be written")
        return 0

    cdef int map_file(self, int fd, bytes name) except -1:
        cdef const rota_platform *os = table()
        cdef rota_facts facts
        cdef void *address = NULL
        cdef rota_limit_file *file
        self.system(os.facts(os, fd, &facts), "the file of a limiter cannot be examined")
        self.system(os.map(os, fd, facts.size, True, &address), "the file of a limiter cannot be mapped")
        file = self.file = <rota_limit_file *>address
        self.file_bytes = facts.size
        self.system(os.dont_fork(os, address, facts.size), "the file of a limiter cannot be mapped")
        self.slot_count = file.slot_count
        if file.magic != ROTA_LIMIT_MAGIC:
            self.damaged("is of another kind or version")
        if self.slot_count == 0 or self.slot_count % ROTA_LIMIT_SET or self.slot_count > ROTA_LIMIT_SLOTS_MAX \
                or facts.size != sizeof(rota_limit_file) + self.slot_count * <uint64_t>sizeof(rota_limit_slot):
            self.damaged("has a wrong size")
        if file.name_length != <uint32_t>len(name) or memcmp(file.name, <const char *>name, len(name)) != 0:
            self.damaged("carries another name")
        return 0

    cdef int begin_boot(self) except -1:
        """After a reboot: tell the times by the new clock.  Note both clocks, for the next one."""
        cdef const rota_platform *os = table()
        cdef uint8_t boot[16]
        self.system(os.boot_id(os, boot), "the boot has no id")
        cdef uint64_t boot_ns = os.clock_boot_ns(os), wall_ns = os.clock_wall_ns(os)
        if memcmp(boot, self.file.boot_id, 16) != 0:
            rota_limit_reboot(self.file, self.slot_count, boot_ns, wall_ns)
            if rota_lock_init(&self.file.lock) != 0:
                raise OSError("a lock in shared memory cannot be made")
            rota_failpoint(failpoints(), ROTA_AT_LIMIT_REBOOTED)
            memcpy(self.file.boot_id, boot, 16)
        self.file.noted_wall_ns = wall_ns
        self.file.noted_boot_ns = boot_ns
        return 0

    def __dealloc__(self):
        if self.file is not NULL and self.process == forks[0]:
            table().unmap(table(), self.file, self.file_bytes)

    # --- the check ------------------------------------------------------------------------------------------------

    cdef int ask(self, double cost, object timeout, rota_limit_turn *turn) except -1:
        cdef double patience = 1e18
        cdef uint64_t now_ns
        if timeout is not None:
            patience = <double>timeout * 1e9
            if not patience >= 0:
                raise ValueError(f"timeout must be None or at least 0 seconds, not {timeout!r}")
        now_ns = self.store.h.os.clock_boot_ns(self.store.h.os)
        if not rota_limit_ask(self.file, now_ns, cost, patience, turn):
            if not cost > 0:
                raise ValueError(f"a cost is above 0, not {cost!r}")
            if self.burst > 0 and not cost <= self.burst:
                raise ValueError(f"a cost of {cost!r} is more than the burst of {self.burst!r}: it could never begin")
            self.damaged("has an impossible rate")
        return 0

    cdef bint take(self, double cost, object key, object timeout, rota_limit_turn *turn) except -1:
        cdef int result
        cdef rota_key_name name
        self.store.check_writable()
        self.ask(cost, timeout, turn)
        if key is None:
            result = rota_limit_take(&self.file.due, turn)
        else:
            name = name_of(self.file.secret, key)
            result = rota_limit_take_key(self.file, self.slot_count, name, turn)
            if result == ROTA_LIMIT_NO_SLOT:
                result = self.enter(name, turn, key)
        rota_failpoint(failpoints(), ROTA_AT_LIMIT_TAKEN)
        if result == ROTA_LIMIT_LATER and timeout is None:
            self.damaged("has an impossible time in it")
        return result == ROTA_LIMIT_TAKEN

    cdef int enter(self, rota_key_name name, rota_limit_turn *turn, object key) except -1:
        cdef int result, slices = 0
        result = self.enter_locked(rota_lock_spin(&self.file.lock), name, turn)
        while result == STOPPED and slices < SLICES:
            with nogil:
                result = self.enter_locked(rota_lock_wait(&self.file.lock, SLICE_NS), name, turn)
            PyErr_CheckSignals()
            self.store.check_writable()
            slices += 1
        if result == STOPPED:
            raise errors.LockHeld("a process that holds the lock of this limiter does not go on: continue or kill it",
                                  path=self.store.path, file=self.file_name.decode())
        if result == BROKEN:
            self.damaged("has a lock that cannot be repaired")
        if result == ROTA_LIMIT_NO_ROOM:
            raise errors.Full(f"no room for key {key!r} in the limiter {self.name!r}: it was made for "
                              f"{self.slot_count // 2} keys in use at a time", path=self.store.path)
        return result

    cdef int enter_locked(self, int lock, rota_key_name name, rota_limit_turn *turn) noexcept nogil:
        cdef int result
        if lock == ROTA_LOCK_BUSY:
            return STOPPED
        if lock == ROTA_LOCK_BROKEN:
            return BROKEN
        if lock == ROTA_LOCK_DEAD:
            rota_limit_repair(self.file, self.slot_count)
            rota_lock_repaired(&self.file.lock)
        # What the clock said before the lock may lie before the end of a slot of this key that passed to another.
        turn.now = self.store.h.os.clock_boot_ns(self.store.h.os) << ROTA_LIMIT_TICK_SHIFT
        result = rota_limit_enter(self.file, self.slot_count, name, turn, failpoints())
        rota_lock_leave(&self.file.lock)
        return result

    cdef int sleep(self, uint64_t begins) except -1:
        """Until then, by the boot clock.  The word that it sleeps on is its own: nobody wakes it."""
        cdef const rota_platform *os = table()
        cdef uint32_t word = 0
        cdef uint64_t until = (begins + (1 << ROTA_LIMIT_TICK_SHIFT) - 1) >> ROTA_LIMIT_TICK_SHIFT
        cdef int64_t left
        while True:
            left = <int64_t>(until - os.clock_boot_ns(os))
            if left <= 0:
                return 0
            with nogil:
                os.futex_wait(os, &word, 0, min(left, <int64_t>SLICE_NS))
            PyErr_CheckSignals()

    def acquire(self, double cost=1.0, key=None, timeout=None):
        """Wait for the turn of something of this cost: True when it may begin.

        False, at once and with nothing taken, when its turn is more than `timeout` seconds away (None: any wait is
        fine, 0: none is).  Who is interrupted gives the turn back, unless others came after it.  Raises ValueError for
        a cost above the burst, Full when too many keys are in use, ClosedError.
        """
        cdef rota_limit_turn turn
        if not self.take(cost, key, timeout, &turn):
            return False
        if turn.begins > turn.now:
            try:
                self.sleep(turn.begins)
            except BaseException:
                if not self.store.h.closing:
                    rota_limit_return(&turn)
                raise
        return True

    async def acquire_async(self, double cost=1.0, key=None, timeout=None):
        """`acquire` for asyncio tasks."""
        import asyncio
        cdef rota_limit_turn turn
        cdef const rota_platform *os = table()
        cdef double left
        if not self.take(cost, key, timeout, &turn):
            return False
        try:
            while True:
                left = (<double>turn.begins - <double>(os.clock_boot_ns(os) << ROTA_LIMIT_TICK_SHIFT)) / 16e9
                if left <= 0:
                    return True
                await asyncio.sleep(left)
        except BaseException:
            if not self.store.h.closing:
                rota_limit_return(&turn)
            raise

    def reserve(self, double cost=1.0, key=None):
        """Take the turn, and return at once how many seconds away it is: `queue.put(body, delay=limiter.reserve())`."""
        cdef rota_limit_turn turn
        self.take(cost, key, None, &turn)
        return (turn.begins - turn.now) / 16e9 if turn.begins > turn.now else 0.0

    # --- what it is set to ------------------------------------------------------------------------------------------

    @property
    def rate(self):
        """Cost per second."""
        self.store.check()
        return 1e9 / rota_limit_double(rota_load_relaxed_u64(&self.file.interval))

    @property
    def burst(self):
        """The cost that may come at once after a pause."""
        self.store.check()
        return rota_limit_double(rota_load_relaxed_u64(&self.file.burst))

    @property
    def capacity(self):
        """How many keys may be in use at a time: those that came within the time in which a burst comes again."""
        return self.slot_count // 2

    def level(self, key=None):
        """The cost that could come now without a wait; below 0: what is promised already, for later."""
        cdef uint64_t seen = 0, now
        cdef double ticks
        self.store.check()
        if key is None:
            seen = rota_load_relaxed_u64(&self.file.due)
        else:
            name = name_of(self.file.secret, key)
            if rota_limit_find(rota_limit_set(self.file, self.slot_count, name), name, &seen) is NULL:
                seen = 0
        now = self.store.h.os.clock_boot_ns(self.store.h.os) << ROTA_LIMIT_TICK_SHIFT
        ticks = <double>(seen - now) if seen > now else 0.0
        return self.burst - ticks / 16e9 * self.rate

    def configure(self, rate=None, burst=None):
        """Change the rate or the burst, for all users at once; turns that are promised stay where they are.

        Raises ValueError.
        """
        self.store.check_writable()
        check_rate(rate, burst)
        if rate is not None:
            rota_store_relaxed_u64(&self.file.interval, rota_limit_bits(1e9 / <double>rate))
        if burst is not None:
            rota_store_relaxed_u64(&self.file.burst, rota_limit_bits(burst))
