"""Group commit: whoever needs durability leads a sync for everybody, or waits for the one who does.

What holds:

1. The target is read under the main lock before the sync begins; what is published later is not covered by it.
2. Files are synced in the order of their positions, and durable_lsn crosses a border only after the lower file's sync.
3. A sync error is never retried: the word `failed` is set before any waiter is released, then the file `failed`.
4. A leader that cannot open a file gives the leadership up; that is its own failure, not the log's.
5. The word `syncing` stands raised around every sync.  A process that died inside may have been told of an error that
   nobody else hears: the next leader believes its own sync only of files that it had open before; of the others it
   compares what the disk has.  An open that finds the word raised reads the disk, as after a failed sync.
"""

from libc.stdint cimport int64_t
from libc.string cimport memset

from engine.atomics cimport *
from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport *
from engine.lock cimport *
from engine.status cimport *

from rota._core.failed cimport disk_agrees, failed_create
from rota._core.lock cimport lock_enter, lock_leave, lock_slice
from rota._core.segment cimport segment_base, segment_map, segment_sync

cdef enum:
    FILES_PER_SYNC = 16

ctypedef struct Span:
    uint64_t target
    uint64_t commits
    uint32_t count
    uint32_t files[16]
    uint64_t ends[16]


cdef void insert(Span *span, uint32_t file, uint64_t end) noexcept nogil:
    """Keep the lowest positions, ascending."""
    cdef uint32_t i = span.count
    if i == FILES_PER_SYNC:
        if span.ends[i - 1] <= end:
            return
        i -= 1
    else:
        span.count += 1
    while i > 0 and span.ends[i - 1] > end:
        span.ends[i] = span.ends[i - 1]
        span.files[i] = span.files[i - 1]
        i -= 1
    span.ends[i] = end
    span.files[i] = file


cdef void snapshot(rota_handle *h, Span *span) noexcept nogil:
    """What is to be synced, read under the main lock; from here on the next commit starts at a new sync unit."""
    cdef rota_control *control = h.control
    cdef rota_segment *segment
    cdef uint64_t durable = control.durable_lsn
    cdef uint32_t file
    memset(span, 0, sizeof(Span))
    span.target = control.tail_lsn
    span.commits = control.log.commits
    control.sealed_lsn = span.target
    for file in range(control.segment_count if control.segment_count < ROTA_SEGMENT_COUNT_MAX
                      else ROTA_SEGMENT_COUNT_MAX):
        segment = &control.segments[file]
        if segment.state == ROTA_SEGMENT_SEALED and segment.end_lsn > durable:
            insert(span, file, segment.end_lsn)
        elif segment.state == ROTA_SEGMENT_ACTIVE and segment.first_lsn < span.target:
            insert(span, file, span.target)
    if span.count and span.ends[span.count - 1] < span.target:
        span.target = span.ends[span.count - 1]


cdef void publish(rota_handle *h, uint64_t lsn) noexcept nogil:
    rota_raise_u64(&h.control.durable_lsn, lsn)
    rota_failpoint(h.failpoints, ROTA_AT_SYNC_PUBLISHED)


cdef void wake(rota_handle *h) noexcept nogil:
    rota_fetch_add_u32(&h.control.durable_sequence, 1)
    rota_fence()
    if rota_load_relaxed_u32(&h.control.durable_waiters):
        h.os.futex_wake(h.os, &h.control.durable_sequence, 0x7fffffff)


cdef void wake_all(rota_handle *h) noexcept nogil:
    """Everybody who waits for anything looks again."""
    cdef uint32_t number
    cdef rota_queue *queue
    wake(h)
    rota_fetch_add_u32(&h.control.space_sequence, 1)
    h.os.futex_wake(h.os, &h.control.space_sequence, 0x7fffffff)
    for number in range(ROTA_QUEUE_COUNT_MAX):
        if h.control.queues[number] and h.control.queues[number] < h.control.pool_limit:
            queue = <rota_queue *>(h.pool + <uint64_t>h.control.queues[number] * ROTA_SMALL_PAGE)
            rota_fetch_add_u32(&queue.wake_sequence, 1)
            h.os.futex_wake(h.os, &queue.wake_sequence, 0x7fffffff)


cdef int fail_log(rota_handle *h, rota_error *error) noexcept nogil:
    """A sync failed: nothing is acknowledged any more, by any process, until the repository was reopened."""
    cdef int os_errno = error.os_errno if error != NULL else 0
    rota_store_release_u32(&h.control.failed, 1)
    rota_fence()
    rota_failpoint(h.failpoints, ROTA_AT_FAILED_WORD)
    failed_create(h, os_errno, NULL)
    wake_all(h)
    return ROTA_OUTCOME_UNKNOWN


cdef bint on_disk(rota_handle *h, const Span *span, uint32_t i) noexcept nogil:
    """Whether the disk has what is to be called durable of one file, its header included."""
    cdef uint64_t first = h.control.segments[span.files[i]].first_lsn
    cdef uint64_t durable = rota_load_acquire_u64(&h.control.durable_lsn)
    return disk_agrees(h, span.files[i], durable % h.segment_size if durable > first else 0,
                       (span.ends[i] - 1) % h.segment_size + 1)


cdef int sync_files(rota_handle *h, Span *span, bint doubt, rota_error *error) noexcept nogil:
    """doubt: a leader died inside its sync.  An error that it saw is told again only to who had the file open."""
    cdef uint32_t i
    cdef bint unsure
    cdef int status
    for i in range(span.count):
        unsure = False
        if segment_base(h, span.files[i]) == NULL:
            unsure = doubt
            status = segment_map(h, span.files[i], error)
            if status != ROTA_OK:
                return status
        status = rota_failpoint_status(h.failpoints, ROTA_AT_SYNC_FILE)
        if status == ROTA_OK:
            status = segment_sync(h, span.files[i], error)
        if status != ROTA_OK or (unsure and not on_disk(h, span, i)):
            return fail_log(h, error)
        publish(h, span.ends[i])
    return ROTA_OK


cdef void sync_prepare(rota_handle *h) noexcept nogil:
    """Open the files with unsynced bytes early, so that an error of another's sync is told to this process too.  One
    that cannot be opened now is tried again by whoever leads a sync."""
    cdef rota_segment *segment
    cdef uint32_t file
    for file in range(h.control.segment_count if h.control.segment_count < ROTA_SEGMENT_COUNT_MAX
                      else ROTA_SEGMENT_COUNT_MAX):
        segment = &h.control.segments[file]
        if segment_base(h, file) == NULL and (segment.state == ROTA_SEGMENT_ACTIVE or (
                segment.state == ROTA_SEGMENT_SEALED and segment.end_lsn > h.control.durable_lsn)):
            segment_map(h, file, NULL)


cdef int lead(rota_handle *h, bint doubt, bint patient, rota_error *error) noexcept nogil:
    """Sync all that is published now.  The sync lock is held."""
    cdef rota_control *control = h.control
    cdef Span span
    cdef uint64_t begun
    cdef int status = lock_enter(h, error) if patient else lock_slice(h, error)
    if status == ROTA_RETRY:
        return ROTA_TIMEOUT
    if status != ROTA_OK:
        return status
    snapshot(h, &span)
    lock_leave(h)
    if control.failed:
        return ROTA_OUTCOME_UNKNOWN
    rota_failpoint(h.failpoints, ROTA_AT_SYNC_BEFORE)
    begun = h.os.clock_boot_ns(h.os)
    rota_store_release_u32(&control.syncing, 1)
    rota_fence()
    status = sync_files(h, &span, doubt, error)
    if status != ROTA_OUTCOME_UNKNOWN:
        rota_store_release_u32(&control.syncing, 0)
    if status != ROTA_OK:
        return status
    rota_failpoint(h.failpoints, ROTA_AT_SYNC_AFTER)
    control.syncs += 1
    control.synced_commits = span.commits
    control.sync_last_ns = h.os.clock_boot_ns(h.os)
    control.sync_ns += control.sync_last_ns - begun
    wake(h)
    return ROTA_OK


cdef int unknown(rota_error *error) noexcept nogil:
    return rota_fail(error, ROTA_OUTCOME_UNKNOWN, "failed", 0,
                     "a sync failed: the commit is visible, but whether it is durable is not known")


cdef int sync_step(rota_handle *h, uint64_t lsn, uint64_t wait_ns, bint patient, rota_error *error) noexcept nogil:
    """Lead a sync, or wait for one at most wait_ns.  ROTA_OK once `lsn` is durable, else ROTA_RETRY or a failure.

    Who is not patient is told ROTA_TIMEOUT when the main lock, needed to lead, was busy for a slice.
    """
    cdef rota_control *control = h.control
    cdef uint32_t sequence
    cdef int result
    cdef int status = ROTA_OK
    cdef bint doubt = False
    if rota_load_acquire_u64(&control.durable_lsn) >= lsn:
        return ROTA_OK
    if rota_load_acquire_u32(&control.failed):
        return unknown(error)
    sequence = rota_load_acquire_u32(&control.durable_sequence)
    result = rota_lock_try(&control.sync_lock)
    if result == ROTA_LOCK_DEAD:  # a leader died: whatever it synced, it is synced again
        doubt = rota_load_acquire_u32(&control.syncing) != 0
        rota_lock_repaired(&control.sync_lock)
        result = ROTA_LOCK_TAKEN
    if result == ROTA_LOCK_TAKEN:
        if rota_load_acquire_u64(&control.durable_lsn) < lsn:
            status = lead(h, doubt, patient, error)
        rota_lock_leave(&control.sync_lock)
        if status == ROTA_OUTCOME_UNKNOWN:
            return unknown(error)
        if status != ROTA_OK:
            return status
    elif result == ROTA_LOCK_BUSY:
        rota_fetch_add_u32(&control.durable_waiters, 1)
        rota_fence()
        if rota_load_acquire_u64(&control.durable_lsn) < lsn and not control.failed:
            h.os.futex_wait(h.os, &control.durable_sequence, sequence, <int64_t>wait_ns)
        rota_fetch_sub_u32(&control.durable_waiters, 1)
    else:
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", 0, "the sync lock cannot be repaired")
    return ROTA_OK if rota_load_acquire_u64(&control.durable_lsn) >= lsn else ROTA_RETRY


cdef int sync_to(rota_handle *h, uint64_t lsn, rota_error *error) noexcept nogil:
    """Return when everything below `lsn` is durable."""
    cdef int status = ROTA_RETRY
    while status == ROTA_RETRY:
        status = sync_step(h, lsn, 50000000, True, error)
    return status
