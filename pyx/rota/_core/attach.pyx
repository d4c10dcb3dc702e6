"""Attaching a process to a repository, and detaching it: the gate, the slot, the last one out.

What holds:

1. Byte 0 of the lock file is the gate: open, rebuild and close happen one at a time.
2. Byte 1+n is held as long as slot n is attached; whoever can lock it has the proof that its owner is gone.
3. The first process that finds nobody attached rebuilds the control file from the log, then takes over the claims.
4. The last one out leaves a checkpoint and a MARK that closes the epoch, so the next open knows that no id was lost.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport *
from engine.frame cimport rota_salt_seed
from engine.handle cimport *
from engine.lock cimport *
from engine.platform cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.append cimport Placed
from rota._core.checkpoint cimport checkpoint_at_close, note_reached
from rota._core.control cimport control_build, control_map, control_unmap
from rota._core.failed cimport failed_check
from rota._core.lane cimport queue_at, queue_live
from rota._core.manifest cimport manifest_create, manifest_read
from rota._core.provide cimport append_mark
from rota._core.reap cimport reap_at_open, release_own
from rota._core.recovery cimport recover
from rota._core.segment cimport segment_unmap_all
from rota._core.service cimport service_start, service_stop
from rota._core.sync cimport sync_prepare, sync_to

cdef enum:
    GATE_SLICE_NS = 2000000
    GATE_SLICES = 30000   # a minute: a recovery may take long
    GATE_SLICES_OF_A_CALL = 25


cdef int gate_enter(rota_handle *h, int waits, rota_error *error) noexcept nogil:
    """ROTA_TIMEOUT: somebody else is there, and the caller looks at signals before it asks again."""
    cdef int slices
    cdef int result = -1
    for slices in range(GATE_SLICES if waits == GATE_PATIENT else GATE_SLICES_OF_A_CALL):
        result = h.os.lock_range(h.os, h.lock_fd, 0, 1, True)
        if result == 0:
            rota_failpoint(h.failpoints, ROTA_AT_ATTACH_GATE)
            return ROTA_OK
        if result != -11 and result != -4:  # EAGAIN, EINTR
            break
        h.os.sleep(h.os, GATE_SLICE_NS)
    if result == -11:
        return gate_refused(error) if waits == GATE_PATIENT else ROTA_TIMEOUT
    return rota_fail(error, result, "lock", 0, "the lock file cannot be locked")


cdef int gate_refused(rota_error *error) noexcept nogil:
    return rota_fail(error, ROTA_LOCK_HELD, "lock", 0, "another process has been opening or closing for a minute; "
                     "continue or kill the one that is stopped")


cdef void gate_leave(rota_handle *h) noexcept nogil:
    h.os.unlock_range(h.os, h.lock_fd, 0, 1)


cdef void take_sizes(rota_handle *h) noexcept nogil:
    """From the manifest into the handle."""
    cdef uint32_t i
    for i in range(16):
        h.uuid[i] = h.manifest.uuid[i]
    h.salt = h.manifest.salt
    h.salt_crc = rota_salt_seed(h.salt)
    h.segment_size = h.manifest.segment_size
    h.segment_mask = h.segment_size - 1
    if h.capacity < h.manifest.capacity:
        h.capacity = h.manifest.capacity
    if h.capacity > h.segment_size * ROTA_SEGMENT_COUNT_MAX:
        h.capacity = h.segment_size * ROTA_SEGMENT_COUNT_MAX
    h.capacity &= ~h.segment_mask
    h.unsynced_limit = h.capacity // 8 if h.capacity // 8 > 2 * h.segment_size else 2 * h.segment_size


cdef int take_slot(rota_handle *h, rota_error *error) noexcept nogil:
    """A process slot whose byte can be locked.  The gate is held."""
    cdef rota_process *process
    cdef uint32_t index
    for index in range(ROTA_PROCESS_COUNT_MAX):
        process = &h.control.processes[index]
        if process.state or h.os.lock_range(h.os, h.lock_fd, 1 + index, 1, True) < 0:
            continue
        h.process = index
        process.generation += 1
        h.process_generation = process.generation
        process.pid = <uint32_t>h.os.process_id(h.os)
        process.claims = 0
        process.suspect_held = 0
        h.os.process_start(h.os, process.pid, &process.start_time)
        h.os.pid_namespace(h.os, &process.pid_namespace)
        process.attached_at_ns = h.os.clock_wall_ns(h.os)
        process.state = 1
        rota_failpoint(h.failpoints, ROTA_AT_ATTACH_SLOT)
        return ROTA_OK
    return rota_fail(error, ROTA_IN_USE, "lock", 0, "all %u process slots are taken", <uint32_t>ROTA_PROCESS_COUNT_MAX)


cdef uint32_t stale_generations(rota_handle *h) noexcept nogil:
    """Above every process generation that the surviving claims name: a new slot must not look like an old owner."""
    cdef uint32_t index, highest = 0
    for index in range(ROTA_CLAIM_COUNT):
        if h.claims[index].state != ROTA_CLAIM_FREE and h.claims[index].process_generation > highest:
            highest = h.claims[index].process_generation
    return highest


cdef void begin_figures(rota_handle *h) noexcept nogil:
    """What counts since the first process opened the repository begins at 0: the replay counted too."""
    cdef uint32_t index, level
    cdef rota_queue *queue
    for index in range(h.control.queue_count):
        queue = queue_at(h, index)
        if queue == NULL:
            continue
        queue.acks = queue.nacks = queue.expired = queue.moved = queue.killed = queue.gets = 0
        for level in range(ROTA_PRIORITY_COUNT):
            queue.opened_puts += queue.lanes[level].appended
            queue.opened_bytes += queue.lanes[level].appended_bytes


cdef uint64_t messages_live(rota_handle *h) noexcept nogil:
    """Messages of all queues that are not settled; a hint without the lock."""
    cdef uint64_t sum = 0
    cdef uint32_t index
    for index in range(h.control.queue_count):
        if queue_at(h, index) != NULL:
            sum += queue_live(queue_at(h, index))
    return sum


cdef int build(rota_handle *h, rota_error *error) noexcept nogil:
    """Nobody is attached: rebuild the control file, then take over what dead owners held."""
    cdef int status = control_build(h, error)
    cdef uint32_t generation, index
    if status == ROTA_OK:
        h.control.syncing = 1  # the open syncs too
        status = recover(h, error)
    if status != ROTA_OK:
        return status
    h.control.syncing = 0
    generation = stale_generations(h)
    for index in range(ROTA_PROCESS_COUNT_MAX):
        h.control.processes[index].generation = generation + 1
    status = take_slot(h, error)
    if status == ROTA_OK:
        status = reap_at_open(h, error)
    if status != ROTA_OK:
        return status
    for index in range(ROTA_PROCESS_COUNT_MAX):
        h.control.processes[index].claims = 0
    h.control.life_id = h.control.log.next_id
    h.control.state = ROTA_CONTROL_READY
    h.recovery.performed = 1
    begin_figures(h)
    h.recovery.messages = messages_live(h)
    return ROTA_OK


cdef int attach_behind_gate(rota_handle *h, bint create, rota_error *error) noexcept nogil:
    cdef int others = h.os.test_range(h.os, h.lock_fd, 1, ROTA_PROCESS_COUNT_MAX)
    cdef int status
    if others < 0:
        return rota_fail(error, others, "lock", 0, "the lock file cannot be asked")
    if create:
        status = manifest_create(h, error)
        if status != ROTA_OK:
            return status
    status = manifest_read(h, error)
    if status != ROTA_OK:
        return status
    take_sizes(h)
    if h.segment_size & h.segment_mask or h.segment_size < ROTA_SEGMENT_SIZE_MIN:
        return rota_fail(error, ROTA_CORRUPT, "manifest", 0, "the size of a segment is no power of two")
    if not others:
        return build(h, error)
    status = control_map(h, error)
    if status == ROTA_OK and h.control.failed:
        status = failed_check(h, error)
        if status == ROTA_OK:
            status = rota_fail(error, ROTA_LOG_FAILED, "failed", 0, "a sync failed; close all users and reopen")
    return take_slot(h, error) if status == ROTA_OK else status


cdef int attach(rota_handle *h, bint create, rota_error *error) noexcept nogil:
    """From open descriptors to an attached handle; on failure everything is let go again.

    ROTA_TIMEOUT: others are opening or closing; ask again.
    """
    cdef int status = gate_enter(h, GATE_A_SLICE, error)
    if status != ROTA_OK:
        return status
    status = attach_behind_gate(h, create, error)
    gate_leave(h)
    if status == ROTA_OK:
        sync_prepare(h)
        rota_failpoint(h.failpoints, ROTA_AT_ATTACH_READY)
        status = service_start(h, error)
    if status != ROTA_OK:
        segment_unmap_all(h)
        control_unmap(h)
    return status


cdef int leave_last(rota_handle *h, rota_error *error) noexcept nogil:
    """The last one out: a checkpoint, and a MARK that closes the epoch."""
    cdef Placed placed
    cdef int status = checkpoint_at_close(h, error)
    if status == ROTA_OK or status == ROTA_FULL:
        status = sync_to(h, h.control.tail_lsn, error)
    if status == ROTA_OK:
        status = append_mark(h, ROTA_COMMIT_CLOSE, &placed, error)
    if status == ROTA_OK:
        status = sync_to(h, placed.end_lsn, error)
    if status == ROTA_OK:
        status = note_reached(h, True, error)
    if status == ROTA_FULL:  # to the last byte: without the MARK the next open jumps over some ids, no more
        status = sync_to(h, h.control.tail_lsn, error)
    return status


cdef int detach(rota_handle *h, bint orderly, int waits, rota_error *error) noexcept nogil:
    """Leave: give the claims back, and close the log when nobody else is attached.

    Always lets go, but for ROTA_TIMEOUT (with GATE_A_SLICE): others are opening or closing; ask again.
    """
    cdef int status = ROTA_OK, gate
    cdef int others
    service_stop(h)
    if orderly and not h.control.failed and not h.control.rebuild:
        status = release_own(h, error)
    rota_failpoint(h.failpoints, ROTA_AT_DETACH_BEGIN)
    gate = gate_enter(h, waits, NULL)
    if gate == ROTA_TIMEOUT and waits == GATE_A_SLICE:
        return gate
    if gate == ROTA_OK:
        others = h.os.test_range(h.os, h.lock_fd, 1, ROTA_PROCESS_COUNT_MAX)
        if orderly and status == ROTA_OK and others == 0 and not h.control.failed and not h.control.rebuild:
            status = leave_last(h, error)
        if h.control.processes[h.process].claims == 0:  # else others take over what could not be given back
            h.control.processes[h.process].state = 0
        rota_failpoint(h.failpoints, ROTA_AT_DETACH_SLOT)
        h.os.unlock_range(h.os, h.lock_fd, 1 + h.process, 1)
        gate_leave(h)
    segment_unmap_all(h)
    control_unmap(h)
    return status
