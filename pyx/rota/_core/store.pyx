"""An open repository as Python sees it: open, close, submit a commit, wait for durability, raise.

What holds:

1. Whatever may sleep releases the GIL, in slices of at most 50 ms, and looks at signals between them.
2. While the GIL is kept, nothing sleeps: the lock is tried with a bounded spin.
3. `calls` counts the threads that are inside without the GIL; close() waits for them before it unmaps.  It is lowered
   and asked with the GIL held: who comes back may touch shared memory until it lets the GIL go.
4. A failure of the engine becomes an exception in one place, fail(), with the fields of rota_error.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from engine.atomics cimport *
from engine.control cimport *
from engine.format cimport *
from engine.handle cimport *
from engine.lock cimport rota_lock_wait
from engine.platform cimport *
from engine.status cimport *

from rota._core.append cimport NEED_SEGMENT, NEED_SPACE, Placed, SPACE_PUT, append_locked, short_of_segments
from rota._core.attach cimport GATE_PATIENT, detach, messages_live
from rota._core.checkpoint cimport JOB_SLICES, job_refused
from rota._core.clean cimport reclaim
from rota._core.lock cimport LOCK_SLICE_NS, LOCK_SLICES, lock_leave, lock_refused, lock_taken, lock_try
from rota._core.opening cimport attach_by_slices, close_files, detach_by_slices, fill_manifest
from rota._core.opening cimport fork_generation, has_manifest, open_files
from rota._core.platform cimport failpoints, table
from rota._core.provide cimport append_provide, grow_refused
from rota._core.segment cimport segment_map, segment_table_clear
from rota._core.service cimport service_owe
from rota._core.sync cimport sync_step

from rota import errors

cdef enum:
    SLICE_NS = 50000000
    NEED_LOCK = -1

LEVELS = {"none": ROTA_LEVEL_NONE, "interval": ROTA_LEVEL_INTERVAL, "sync": ROTA_LEVEL_SYNC}

cdef const uint32_t *generation = fork_generation()


cdef double now() noexcept nogil:
    """Seconds on the boot clock."""
    return <double>table().clock_boot_ns(table()) / 1e9


cdef double deadline_of(object timeout) except? -2.0:
    """None waits for ever (-1); else a point on the boot clock."""
    if timeout is None:
        return -1.0
    cdef double seconds = timeout
    if seconds != seconds or seconds < 0:
        raise ValueError(f"timeout must be None or at least 0 seconds, not {timeout!r}")
    return now() + seconds


cdef int attempt(rota_handle *h, Draft *draft, int space, Placed *placed, int locked,
                 rota_error *error) noexcept nogil:
    """One append, when the lock was got.  Nothing that needs the GIL happens while it is held."""
    cdef int status
    if locked != ROTA_OK:
        placed.need = NEED_LOCK
        return locked
    status = append_locked(h, draft, space, placed, error)
    lock_leave(h)
    return status


@cython.final
cdef class Store:
    """One attachment of this process to a repository.

    `Store(path, options)` opens it; options: create, read_only, capacity, segment_size, sync_unit, durability,
    sync_interval, sync_bytes, sync_count, compression, insist (accept a refused file system).
    Raises the OpenError family, LogFailed, Corrupt.
    """

    def __cinit__(self, str path, dict options):
        self.h = <rota_handle *>calloc(1, sizeof(rota_handle))
        if self.h == NULL:
            raise MemoryError
        self.h.os = table()
        self.h.fork_current = generation
        self.h.failpoints = failpoints()
        self.h.directory_fd = self.h.lock_fd = self.h.control_fd = self.h.claims_fd = self.h.manifest_fd = -1
        self.h.segments = <rota_segment_map *>calloc(ROTA_SEGMENT_COUNT_MAX, sizeof(rota_segment_map))
        if self.h.segments == NULL:
            raise MemoryError
        segment_table_clear(self.h.segments)
        self.h.closing = 1

    def __init__(self, str path, dict options):
        self.path = path
        self.compression = options["compression"]
        cdef rota_handle *h = self.h
        cdef rota_error error
        cdef bint create
        cdef int status
        rota_error_clear(&error)
        h.os.guard_install(h.os)
        h.fork_generation = generation[0]
        h.durability = LEVELS[options["durability"]]
        h.sync_interval_ns = <uint64_t>(options["sync_interval"] * 1e9)
        h.sync_bytes = options["sync_bytes"]
        h.sync_count = options["sync_count"]
        h.capacity = options["capacity"] or 0
        open_files(h, path, options)
        create = options["create"] and not has_manifest(path)
        if create:
            fill_manifest(h, options)
        status = attach_by_slices(h, create, &error)
        if status != ROTA_OK:
            close_files(self.h)
            self.fail(&error)
        self.refuses = bool(options["read_only"])  # the files stay writable: an open may recover, a close may mark
        h.closing = 0

    cdef int unusable(self) except -1:
        """Say why this handle may not be used: in this process, at all, or for writing."""
        if self.h.fork_generation != generation[0]:
            raise errors.ForkedHandleError(
                "this handle was inherited through fork: open the repository in the child", path=self.path)
        if self.h.closing:
            raise errors.ClosedError("the repository is closed", path=self.path)
        raise errors.ReadOnlyError("the repository was opened for reading only", path=self.path)

    cdef int fail(self, rota_error *error) except -1:
        """Raise what the engine reported."""
        cdef bytes name = error.file
        raise errors.error_for(
            (<bytes>rota_status_name(error.status)).decode(),
            (<bytes>error.detail).decode("utf-8", "replace"),
            path=self.path,
            file=name.decode("utf-8", "replace") or None,
            offset=error.offset or None,
            expected=error.expected if error.expected or error.found else None,
            found=error.found if error.expected or error.found else None,
            errno=error.os_errno or None,
        )

    cdef int map_segment(self, uint32_t file) except -1:
        cdef rota_error error
        cdef int status
        status = segment_map(self.h, file, &error)
        if status != ROTA_OK:
            self.fail(&error)
        return 0

    cdef int submit(self, Draft *draft, int space, Placed *placed, double deadline) except -1:
        """Append a sealed draft.  0 when it is in the log; 1 when a range must be acked by its ids.  Full: waits."""
        cdef rota_handle *h = self.h
        cdef rota_error error
        cdef int status, slices = 0
        placed.waits = 0
        self.check()  # others may have run since the call began
        while True:
            status = attempt(h, draft, space, placed, lock_try(h, &error), &error)
            if status == ROTA_RETRY and placed.need == NEED_LOCK:
                with nogil:
                    rota_fetch_add_u32(&h.calls, 1)
                    status = attempt(h, draft, space, placed,
                                     lock_taken(h, rota_lock_wait(&h.control.lock, LOCK_SLICE_NS), &error), &error)
                rota_fetch_sub_u32(&h.calls, 1)
                slices += 1
                if status == ROTA_RETRY and placed.need == NEED_LOCK and slices >= LOCK_SLICES:
                    status = lock_refused(h, &error)
            if status == ROTA_OK:
                return 0
            if status == ROTA_STATE:
                return 1
            if status == ROTA_RETRY and placed.need != NEED_LOCK:
                status = self.provide(draft, space, placed, deadline, &error)
            if status != ROTA_OK and status != ROTA_RETRY:
                self.fail(&error)
            PyErr_CheckSignals()
            self.check()

    cdef int provide(self, Draft *draft, int space, Placed *placed, double deadline, rota_error *error) except 1:
        """Outside the lock: what the append needs.  Waits for space until the deadline, for others a slice."""
        cdef rota_handle *h = self.h
        cdef rota_error ignored
        cdef int status, made = ROTA_FULL
        with nogil:
            rota_fetch_add_u32(&h.calls, 1)
            status = append_provide(h, draft, space, placed, False, error)
            if (status == ROTA_DISK_FULL and placed.need == NEED_SEGMENT and space != SPACE_PUT) \
                    or (status == ROTA_FULL and placed.need == NEED_SPACE and short_of_segments(h, space)):
                made = reclaim(h, False, &ignored)  # the one who waits does the job
            if made == ROTA_OK or (made == ROTA_RETRY and (deadline < 0 or now() < deadline)):
                status = ROTA_RETRY
            elif status == ROTA_FULL and placed.need == NEED_SPACE and (deadline < 0 or now() < deadline):
                self.wait_for_space(deadline)
                status = ROTA_RETRY
        rota_fetch_sub_u32(&h.calls, 1)
        placed.waits = placed.waits + 1 if status == ROTA_TIMEOUT or made == ROTA_RETRY else 0
        if status == ROTA_TIMEOUT:
            return ROTA_RETRY if placed.waits < LOCK_SLICES else grow_refused(error)
        return job_refused(h, error) if placed.waits >= JOB_SLICES else status

    cdef bint again(self, int *status, int *slices, rota_error *error) except -1:
        """After a slice of waiting for the main lock: whether to go on.  A holder that is stopped is named in the end."""
        if status[0] != ROTA_RETRY:
            return False
        slices[0] += 1
        if slices[0] >= LOCK_SLICES:
            status[0] = lock_refused(self.h, error)
            return False
        PyErr_CheckSignals()
        self.check()
        return True

    cdef void wait_for_space(self, double deadline) noexcept nogil:
        cdef rota_handle *h = self.h
        cdef uint32_t sequence = rota_load_acquire_u32(&h.control.space_sequence)
        cdef double left = deadline - now() if deadline >= 0 else 0.05
        cdef uint64_t slice_ns = SLICE_NS
        if left < 0.05:
            slice_ns = <uint64_t>(left * 1e9) if left > 0 else 0
        rota_fetch_add_u32(&h.control.space_waiters, 1)
        h.os.futex_wait(h.os, &h.control.space_sequence, sequence, <int64_t>slice_ns)
        rota_fetch_sub_u32(&h.control.space_waiters, 1)

    cdef int wait_durable(self, uint64_t lsn, double deadline) except -1:
        """True when everything below lsn is durable, False when the deadline came first.  Raises OutcomeUnknown."""
        cdef rota_handle *h = self.h
        cdef rota_error error
        cdef int status, slices = 0
        if rota_load_acquire_u64(&h.control.durable_lsn) >= lsn:
            return True
        while True:
            with nogil:
                rota_fetch_add_u32(&h.calls, 1)
                status = sync_step(h, lsn, SLICE_NS, False, &error)
            rota_fetch_sub_u32(&h.calls, 1)
            if status == ROTA_OK:
                return True
            if status == ROTA_TIMEOUT:
                slices += 1
                status = ROTA_RETRY if slices < LOCK_SLICES else lock_refused(h, &error)
            if status != ROTA_RETRY:
                self.fail(&error)
            PyErr_CheckSignals()
            self.check()
            if deadline >= 0 and now() >= deadline:
                return False

    cdef int level_of(self, object durability) except -1:
        """The level of a call; None takes the repository's.  Raises ValueError, before anything is written."""
        if durability is None:
            return <int>self.h.durability
        if durability not in LEVELS:
            raise ValueError(f"durability is one of 'none', 'interval', 'sync', not {durability!r}")
        return LEVELS[durability]

    cdef int settle_durability(self, uint64_t lsn, object durability) except -1:
        """Wait as the level of this call, or of the repository, asks, or see to it that a sync follows."""
        cdef int level = self.level_of(durability)
        if level == ROTA_LEVEL_SYNC:
            self.wait_durable(lsn, -1.0)
        elif level == ROTA_LEVEL_INTERVAL:
            service_owe(self.h, lsn)
        return 0

    cdef int settle_seen(self, object durability) except -1:
        """The same for a call that had nothing to append: what it saw may still be lost."""
        return self.settle_durability(rota_load_acquire_u64(&self.h.control.tail_lsn), durability)

    def sync(self):
        """Return when everything that is visible now is durable.  Raises OutcomeUnknown, LogFailed."""
        self.check()
        self.wait_durable(rota_load_acquire_u64(&self.h.control.tail_lsn), -1.0)

    @property
    def closed(self):
        return bool(self.h.closing)

    @property
    def forked(self):
        """Whether this handle was inherited through fork."""
        return self.h.fork_generation != generation[0]

    def close(self, bint orderly=True):
        """Detach.  Waits for the threads inside; a second call does nothing.  Raises what the last sync raised."""
        cdef rota_handle *h = self.h
        cdef rota_error error
        cdef int status
        if h.closing:
            return
        h.closing = 1
        if h.fork_generation != generation[0]:
            close_files(self.h)
            return
        rota_error_clear(&error)
        try:
            status = detach_by_slices(h, orderly, &error)
        except BaseException:
            h.closing = 0  # interrupted while it waited: the next close() goes on
            raise
        close_files(self.h)
        if status != ROTA_OK:
            self.fail(&error)

    def __dealloc__(self):
        if self.h == NULL:
            return
        if not self.h.closing and self.h.fork_generation == generation[0]:
            detach(self.h, False, GATE_PATIENT, NULL)
            close_files(self.h)
        free(self.scratch)
        free(self.h.segments)
        free(self.h)

    def statistics(self):
        """A dict of the figures of the repository; names and units as in rota.RepositoryStatistics."""
        self.check()
        cdef rota_control *c = self.h.control
        cdef uint32_t i
        pids = [c.processes[i].pid for i in range(ROTA_PROCESS_COUNT_MAX) if c.processes[i].state]
        return {
            "path": self.path, "capacity": c.capacity, "segment_size": c.segment_size, "segments": c.segment_count,
            "free_segments": c.free_segment_count, "tail_lsn": c.tail_lsn, "durable_lsn": c.durable_lsn,
            "next_id": c.log.next_id, "epoch": c.epoch, "commits": c.log.commits, "messages": messages_live(self.h),
            "stored_bytes": c.stored_bytes, "raw_bytes": c.raw_bytes, "compressed_bytes": c.compressed_bytes,
            "syncs": c.syncs, "sync_seconds": c.sync_ns / 1e9, "processes": tuple(pids),
            "owner_deaths": c.owner_deaths, "reaped_claims": c.reaped_claims, "checkpoints": c.checkpoints,
            "failed": bool(c.failed), "unreadable": c.unreadable,
        }

    def recovery(self):
        """What this open found: a dict, names as in rota.Recovery."""
        cdef rota_recovery_report *r = &self.h.recovery
        return {
            "performed": bool(r.performed), "clean": bool(r.clean), "begin_lsn": r.begin_lsn, "cut_lsn": r.cut_lsn,
            "proven_lsn": r.proven_lsn, "scanned_bytes": r.scanned_bytes, "commits": r.commits,
            "messages": r.messages, "torn_bytes": r.torn_bytes, "elapsed": r.elapsed_ns / 1e9,
            "reaped_claims": r.reaped_claims, "epoch": r.epoch, "case": r.case_number,
        }
