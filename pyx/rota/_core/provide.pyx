"""What an append needs from outside the lock, and appending where nobody waits for a signal.

What holds:

1. Files are made, mapped and grown without the main lock; it is taken only to enter what was made.
2. The grow lock guards only files that nobody sees yet, so a death in it needs no repair.
3. A call from Python is not patient: it waits for others by slices and looks at signals between them.
"""

from libc.string cimport memset

from engine.control cimport *
from engine.format cimport *
from engine.lock cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.append cimport *
from rota._core.control cimport pool_extend
from rota._core.lock cimport LOCK_SLICE_NS, LOCK_SLICES, lock_enter, lock_leave
from rota._core.segment cimport segment_create, segment_map
from rota._core.sync cimport sync_step, sync_to


cdef int grow_refused(rota_error *error) noexcept nogil:
    return rota_fail(error, ROTA_LOCK_HELD, "control", 0, "another process has been growing the files for too long; "
                     "continue or kill the one that is stopped")


cdef int enter_grow(rota_handle *h, bint patient, rota_error *error) noexcept nogil:
    """ROTA_TIMEOUT: another one is growing the files, and the caller looks at signals before it asks again."""
    cdef int slices, result
    for slices in range(LOCK_SLICES if patient else 1):
        result = rota_lock_wait(&h.control.grow_lock, LOCK_SLICE_NS)
        if result == ROTA_LOCK_DEAD:
            rota_lock_repaired(&h.control.grow_lock)
            result = ROTA_LOCK_TAKEN
        if result == ROTA_LOCK_TAKEN:
            return ROTA_OK
    return grow_refused(error) if patient else ROTA_TIMEOUT


cdef int append_pages(rota_handle *h, uint32_t need, bint patient, rota_error *error) noexcept nogil:
    """Let the pool have room for so many large pages.  ROTA_TIMEOUT: another one is growing it."""
    cdef int status = enter_grow(h, patient, error)
    cdef uint64_t length = rota_round_up(<uint64_t>need * ROTA_LARGE_PAGE, ROTA_EXTENT_BYTES)
    if status != ROTA_OK:
        return status
    if rota_pool_room(h) < need:
        status = pool_extend(h, need, error)
        if status == ROTA_OK:
            status = lock_enter(h, error)
            if status == ROTA_OK:
                rota_save(h, &h.control.pool_limit)
                h.control.pool_limit += <uint32_t>(length // ROTA_SMALL_PAGE)
                rota_settle_undo(h)
                lock_leave(h)
    rota_lock_leave(&h.control.grow_lock)
    return status


cdef uint32_t unused_segment(rota_handle *h) noexcept nogil:
    """The lowest number that no file has: there are holes where files were set aside or a stray one lies."""
    cdef uint32_t file
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        if h.control.segments[file].state == ROTA_SEGMENT_ABSENT:
            break
    return file if h.control.segments[file].state == ROTA_SEGMENT_ABSENT else ROTA_SEGMENT_COUNT_MAX


cdef int provide_segment(rota_handle *h, bint patient, rota_error *error) noexcept nogil:
    """Make one more segment file and put it on the free list."""
    cdef rota_control *control = h.control
    cdef int status = enter_grow(h, patient, error)
    cdef uint32_t file
    if status != ROTA_OK:
        return status
    file = unused_segment(h)
    if control.free_segment_count <= KEPT_FILES and segments_made(h) < control.segment_count_max \
            and file < ROTA_SEGMENT_COUNT_MAX:
        status = segment_create(h, file, True, error)
        if status == ROTA_OK:
            status = segment_map(h, file, error)
        if status == ROTA_OK:
            status = lock_enter(h, error)
        if status == ROTA_OK:
            rota_save(h, &control.pool_limit)
            rota_save(h, &control.segments[file])
            control.segments[file].state = ROTA_SEGMENT_FREE
            control.segments[file].next_free = control.free_segments
            control.free_segments = file + 1
            control.free_segment_count += 1
            if control.segment_count <= file:
                control.segment_count = file + 1
            rota_settle_undo(h)
            lock_leave(h)
    rota_lock_leave(&control.grow_lock)
    return status


cdef int append_provide(rota_handle *h, const Draft *draft, int space, Placed *placed, bint patient,
                        rota_error *error) noexcept nogil:
    """Do what the append asked for, outside the lock.  ROTA_FULL: only a checkpoint or a consumer can help.

    Who is not patient waits for others for a slice only, and is told ROTA_TIMEOUT then.
    """
    cdef int status
    if placed.need == NEED_PAGES:
        return append_pages(h, pages_needed(draft, space) + 16, patient, error)
    if placed.need == NEED_SEGMENT:
        return provide_segment(h, patient, error)
    if placed.need == NEED_MAP:
        return segment_map(h, placed.need_file, error)
    if placed.need == NEED_SYNC:
        if patient:
            return sync_to(h, h.control.tail_lsn, error)
        status = sync_step(h, h.control.tail_lsn, LOCK_SLICE_NS, False, error)
        return ROTA_OK if status == ROTA_RETRY else status
    if not short_of_segments(h, space):
        return rota_fail(error, ROTA_FULL, NULL, 0, "the queue holds as many messages as max_messages allows")
    return rota_fail(error, ROTA_FULL, NULL, 0, "the repository is full: %u of %u segments are free, "
                     "%u are kept so that consumers can go on", free_segments(h), h.control.segment_count_max,
                     reserve_of(h, space))


cdef int append_commit(rota_handle *h, Draft *draft, int space, Placed *placed, rota_error *error) noexcept nogil:
    """Append, without the GIL, providing what is needed.  ROTA_FULL is returned at once."""
    cdef int status
    while True:
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        status = append_locked(h, draft, space, placed, error)
        lock_leave(h)
        if status != ROTA_RETRY:
            return status
        status = append_provide(h, draft, space, placed, True, error)
        if status != ROTA_OK:
            return status


cdef int append_mark(rota_handle *h, uint32_t flags, Placed *placed, rota_error *error) noexcept nogil:
    """An empty commit: it carries the durable position, so that what lies before it is proven."""
    cdef Draft draft
    cdef uint8_t bytes[96]
    memset(&draft, 0, sizeof(draft))
    memset(bytes, 0, sizeof(bytes))
    draft.bytes = bytes
    draft.length = sizeof(bytes)
    draft.flags = ROTA_COMMIT_MARK | flags
    (<rota_commit_header *>bytes).meta_crc = h.salt_crc
    return append_commit(h, &draft, SPACE_JOB, placed, error)
