"""The new epoch: its number, the ids that it may give, its entry in the manifest.

What holds:

1. An epoch's number is above every one that a commit, a segment header or the manifest names.
2. No id is given twice: after an end that may have lost commits the ids jump over all that the lost bytes could hold.
3. The manifest keeps the epochs that still have commits behind the checkpoint; an epoch in which nothing was written
   gives its place to the next.  When all places are taken the oldest goes: everything before it is long durable, and
   the chain still holds it together.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from engine.failpoint cimport ROTA_AT_RECOVERY_EPOCH, rota_failpoint
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.recovery cimport ROTA_RECOVERY_JUMP
from engine.status cimport *

from rota._core.failed cimport failed_create
from rota._core.manifest cimport manifest_turns, manifest_write
from rota._core.recovery cimport recovery

cdef enum:
    ID_ROUNDING = 1 << 20


cdef int epoch_fail(recovery *r, int status, rota_error *error) noexcept nogil:
    """A sync failed in the recovery itself: the next open must not believe the cache either."""
    if status == ROTA_LOG_FAILED:
        failed_create(r.reader.h, error.os_errno if error != NULL else 0, NULL)
    return status


cdef int epoch_number(recovery *r, rota_error *error) noexcept nogil:
    """Above every epoch that was ever written anywhere."""
    cdef const rota_manifest_sector *manifest = &r.reader.h.manifest
    cdef uint32_t i
    r.epoch = r.end.epoch
    if manifest.epoch_count != 0 and manifest.epochs[manifest.epoch_count - 1].epoch > r.epoch:
        r.epoch = manifest.epochs[manifest.epoch_count - 1].epoch
    for i in range(r.reader.order_count):
        if r.reader.files[r.reader.order[i]].epoch > r.epoch:
            r.epoch = r.reader.files[r.reader.order[i]].epoch
    if r.epoch == <uint32_t>-1:
        return rota_fail(error, ROTA_CORRUPT, b"manifest", 0, b"the epochs are used up")
    r.epoch += 1
    return ROTA_OK


cdef void ids_number(recovery *r) noexcept nogil:
    """Above every id that was found; above every one that may have been seen, when commits may have been lost."""
    cdef rota_handle *h = r.reader.h
    r.next_id = 1
    if r.end.next_id > r.next_id:
        r.next_id = r.end.next_id
    if h.manifest.next_id_floor > r.next_id:
        r.next_id = h.manifest.next_id_floor
    if h.control.log.next_id > r.next_id:  # the checkpoint's
        r.next_id = h.control.log.next_id
    if r.row.action == ROTA_RECOVERY_JUMP:
        # Unsynced bytes hold at most capacity / 32 ids; dead writers skip at most a commit's each.
        r.next_id += h.manifest.capacity // 32 + h.segment_size // 2 + 1
        r.next_id = rota_round_up(r.next_id, ID_ROUNDING)


cdef int epoch_write(recovery *r, rota_error *error) noexcept nogil:
    """The new epoch into the manifest.  Epochs without a commit, and those before the checkpoint, are left out."""
    cdef rota_handle *h = r.reader.h
    cdef rota_manifest_sector following = h.manifest
    cdef const rota_manifest_sector *old = &h.manifest
    cdef uint32_t i, first = 0
    cdef uint32_t count = old.epoch_count
    cdef int status
    while count != 0 and old.epochs[count - 1].start_lsn >= r.end.lsn:
        count -= 1
    while first + 1 < count and old.epochs[first + 1].start_lsn <= old.checkpoint_begin:
        first += 1
    if count - first >= ROTA_EPOCH_COUNT_MAX:
        first = count - ROTA_EPOCH_COUNT_MAX + 1  # those before are all below a proven position: see walk, 3
    memset(following.epochs, 0, sizeof(following.epochs))
    for i in range(first, count):
        following.epochs[i - first] = old.epochs[i]
    following.epochs[count - first].epoch = r.epoch
    following.epochs[count - first].start_lsn = r.end.lsn
    following.epoch_count = count - first + 1
    following.next_id_floor = r.next_id
    if manifest_turns(old, r.end.lsn) > old.reached_turns:
        following.reached_turns = manifest_turns(old, r.end.lsn)
    if h.capacity > old.capacity:  # it may grow at an open
        following.capacity = rota_round_up(h.capacity, h.segment_size)
        if following.capacity > h.segment_size * ROTA_SEGMENT_COUNT_MAX:
            following.capacity = h.segment_size * ROTA_SEGMENT_COUNT_MAX
    status = manifest_write(h, &following, error)
    if status != ROTA_OK:
        return epoch_fail(r, status, error)
    rota_failpoint(h.failpoints, ROTA_AT_RECOVERY_EPOCH)
    return ROTA_OK
