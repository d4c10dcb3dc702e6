"""The main lock: robust, tried with a bounded spin, repaired after the death of its owner.

What holds:

1. lock_try() never sleeps, so it may be called with the GIL; lock_slice() and lock_enter() are called without it.  Calls
   from Python take the lock by slices and look at signals between them.
2. Whoever gets the lock after a death restores the saved lines, raises the sub-epoch, and applies the commit again
   that was published but not applied; then the lanes are what the log says.  Killed inside, the next one repeats it.
3. A holder that is stopped is never robbed: after five seconds the error names its process.
"""

from libc.string cimport memcpy

from engine.atomics cimport *
from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport *
from engine.lock cimport *
from engine.pool cimport *
from engine.scan cimport rota_commit_check, rota_commit_meta_check
from engine.status cimport *

from rota._core.apply cimport apply_commit
from rota._core.segment cimport segment_base, segment_map


cdef int redo(rota_handle *h, rota_error *error) noexcept nogil:
    """Apply the commit that was published before its owner died."""
    cdef rota_control *control = h.control
    cdef rota_commit_header header
    cdef uint64_t tail = rota_load_acquire_u64(&control.tail_lsn)
    cdef uint64_t lsn = control.pending_lsn, offset
    cdef uint32_t file = control.log.tail_file
    cdef uint8_t *base
    cdef int status
    if control.log.applied_lsn >= tail:
        return ROTA_OK
    status = segment_map(h, file, error)
    if status != ROTA_OK:
        return status
    base = segment_base(h, file)
    offset = lsn % h.segment_size
    if lsn < control.log.applied_lsn \
            or rota_commit_check(base + offset, h.segment_size - offset, h.salt_crc, lsn, &header) != 0 \
            or lsn + header.length != tail or rota_commit_meta_check(base + offset, &header, h.salt_crc) != 0:
        control.rebuild = 1
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", lsn, "the last commit cannot be applied again; "
                         "close all users and reopen")
    rota_failpoint(h.failpoints, ROTA_AT_CONTROL_UNDONE)
    apply_commit(h, base + offset, &header, file, offset)
    rota_settle_undo(h)
    rota_failpoint(h.failpoints, ROTA_AT_CONTROL_REDONE)
    return ROTA_OK


cdef int repair(rota_handle *h, rota_error *error) noexcept nogil:
    cdef rota_control *control = h.control
    cdef int status
    control.owner_deaths += 1
    if control.undo_overflow:
        control.rebuild = 1
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", 0, "a process died inside a change too large to undo; "
                         "close all users and reopen")
    rota_restore_undo(h)
    control.sub_epoch += 1
    status = redo(h, error)
    if control.stamped_id > control.log.next_id:  # ids that may stand behind the tail are never given again
        control.log.next_id = control.stamped_id
    rota_failpoint(h.failpoints, ROTA_AT_CONTROL_REPAIRED)
    return status


cdef int lock_taken(rota_handle *h, int result, rota_error *error) noexcept nogil:
    """What follows a try or a wait: ROTA_OK with the lock held, ROTA_RETRY when it is busy, or a failure."""
    cdef int status
    if result == ROTA_LOCK_BUSY:
        return ROTA_RETRY
    if result == ROTA_LOCK_BROKEN:
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", 0, "the lock cannot be repaired; close all users")
    if result == ROTA_LOCK_DEAD:
        status = repair(h, error)
        rota_lock_repaired(&h.control.lock)
        if status != ROTA_OK:
            rota_lock_leave(&h.control.lock)
            return status
    h.control.lock_owner = h.process + 1
    h.section += 1
    if h.control.rebuild:
        rota_lock_leave(&h.control.lock)
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", 0, "the control file must be rebuilt; "
                         "close all users and reopen")
    rota_failpoint(h.failpoints, ROTA_AT_LOCK_ACQUIRED)
    return ROTA_OK


cdef int lock_try(rota_handle *h, rota_error *error) noexcept nogil:
    """Take the lock without sleeping; ROTA_RETRY when it is busy."""
    cdef int result = rota_lock_spin(&h.control.lock)
    if result == ROTA_LOCK_TAKEN and not h.control.rebuild:
        h.control.lock_owner = h.process + 1
        h.section += 1
        rota_failpoint(h.failpoints, ROTA_AT_LOCK_ACQUIRED)
        return ROTA_OK
    return lock_taken(h, result, error)


cdef int lock_refused(rota_handle *h, rota_error *error) noexcept nogil:
    """Say who holds the lock for too long."""
    cdef uint32_t owner = h.control.lock_owner
    cdef uint32_t pid = 0
    if 0 < owner <= ROTA_PROCESS_COUNT_MAX:
        pid = h.control.processes[owner - 1].pid
    return rota_fail(error, ROTA_LOCK_HELD, "control", 0, "process %u holds the lock and does not go on; "
                     "continue or kill it", pid)


cdef int lock_slice(rota_handle *h, rota_error *error) noexcept nogil:
    """Take the lock, sleeping for one slice at most: ROTA_RETRY when it is still busy."""
    cdef int status = lock_try(h, error)
    if status == ROTA_RETRY:
        status = lock_taken(h, rota_lock_wait(&h.control.lock, LOCK_SLICE_NS), error)
    return status


cdef int lock_enter(rota_handle *h, rota_error *error) noexcept nogil:
    """Take the lock, sleeping in slices, where no signal is asked for."""
    cdef int slices
    cdef int status = ROTA_RETRY
    for slices in range(LOCK_SLICES):
        status = lock_slice(h, error)
        if status != ROTA_RETRY:
            return status
    return lock_refused(h, error)


cdef void lock_leave(rota_handle *h) noexcept nogil:
    h.control.lock_owner = 0
    rota_lock_leave(&h.control.lock)
