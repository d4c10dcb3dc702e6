"""Recovery: decide where the log ends, make that durable, rebuild the control file from it.

What holds:

1. The end is a function of the files alone; engine/include/rota/recovery.h has the table that says what is done about
   it.  A refusal writes nothing.
2. The order is fixed: sync what was accepted, then make the new epoch durable, then answer or append.  Before the
   epoch stands a sector that was bad may be good at the next try; after it the older epochs are dead beyond the end.
3. It may be killed between any two steps and run again: until the epoch stands nothing was changed, afterwards the
   same commits are accepted and the epochs without a commit are replaced.
4. Bodies are verified only above the highest position proven durable.  A bad one there is a torn tail; one below it
   costs that message, when somebody asks for it.
5. The new epoch's first commit starts at a sync unit (sealed_lsn), so no sector with proven bytes is stored to again.

    list, order files -> walk to the end -> table -> checkpoint -> replay, verify bodies -> table again
        -> sync files -> epoch to the manifest -> fill the control file
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport *
from engine.frame cimport rota_scan_text
from engine.handle cimport rota_handle
from engine.recovery cimport *
from engine.status cimport *

from rota._core.apply cimport apply_replay
from rota._core.checkpoint_load cimport checkpoint_load
from rota._core.epoch cimport epoch_fail, epoch_number, epoch_write, ids_number
from rota._core.failed cimport (FAILED_NOT, FAILED_THIS_BOOT, failed_check, failed_finish, failed_refresh,
                                failed_stands)
from rota._core.filling cimport enter_files, fill_control, fill_holes, settle_files, take_file
from rota._core.manifest cimport manifest_reached
from rota._core.reader cimport NO_FILE, log_file, reader_close, reader_find, reader_open
from rota._core.segment cimport *
from rota._core.walk cimport *


# --- the end ---------------------------------------------------------------------------------------------------------


cdef uint32_t conditions(recovery *r) noexcept nogil:
    """What holds about the end, as the table asks for it."""
    cdef const rota_manifest_sector *manifest = &r.reader.h.manifest
    cdef uint32_t count = manifest.epoch_count
    cdef uint32_t found = 0
    if r.end.commits == 0 and count == 0:
        found |= ROTA_FOUND_NOTHING
    if r.end.closed and (count == 0 or r.end.epoch == manifest.epochs[count - 1].epoch):
        found |= ROTA_FOUND_CLOSE
    if r.why.kind == END_BAD or r.beyond_lsn > r.end.lsn:
        found |= ROTA_FOUND_REST
    if r.beyond_durable > r.end.lsn or r.proven_lsn > r.end.lsn:
        found |= ROTA_FOUND_PROOF
    if manifest.checkpoint_end > r.end.lsn:
        found |= ROTA_FOUND_CHECKPOINT_ABOVE
    if count != 0 and manifest.epochs[count - 1].start_lsn > r.end.lsn:
        found |= ROTA_FOUND_EPOCH_ABOVE
    if manifest_reached(manifest) > r.end.lsn:
        found |= ROTA_FOUND_REACHED_ABOVE
    return found


cdef uint64_t proof_offset(const recovery *r) noexcept nogil:
    """Where the manifest has what the row of the table says."""
    cdef const rota_manifest_sector *manifest = &r.reader.h.manifest
    cdef const void *field = &manifest.reached_turns
    if r.row.needs == ROTA_FOUND_CHECKPOINT_ABOVE:
        field = &manifest.checkpoint_end
    elif r.row.needs == ROTA_FOUND_EPOCH_ABOVE:
        field = &manifest.epochs
    return <uint64_t>(<const char *>field - <const char *>manifest)


cdef int refuse(recovery *r, rota_error *error) noexcept nogil:
    """Name the file and the offset where the log should go on and does not."""
    cdef char name[SEGMENT_NAME_BYTES]
    cdef uint64_t lsn = r.why.lsn if r.why.kind == END_BAD else r.end.lsn
    cdef uint64_t proven = r.beyond_durable if r.beyond_durable > r.proven_lsn else r.proven_lsn
    cdef int file = reader_find(&r.reader, lsn)
    cdef int status
    if file < 0:
        status = rota_fail(error, ROTA_CORRUPT, b"manifest", proof_offset(r),
                           b"%s (no segment file holds position %lu)", r.row.meaning, lsn)
    elif r.why.kind != END_BAD:
        segment_name(<uint32_t>file, name)
        status = rota_fail(error, ROTA_CORRUPT, name, lsn % r.reader.h.segment_size,
                           b"%s (no commit follows there)", r.row.meaning)
    else:
        segment_name(<uint32_t>file, name)
        status = rota_fail(error, ROTA_CORRUPT, name, lsn % r.reader.h.segment_size, b"%s (%s)", r.row.meaning,
                           rota_scan_text(r.why.result))
    if error != NULL:
        error.expected = proven
        error.found = r.end.lsn
    return status


cdef int decide(recovery *r, rota_error *error) noexcept nogil:
    """Choose the row of the table."""
    r.found = conditions(r)
    r.row = rota_recovery_choose(r.found)
    r.reader.h.recovery.case_number = r.row.number
    r.reader.h.recovery.cut_lsn = r.end.lsn
    r.reader.h.recovery.proven_lsn = r.proven_lsn
    if r.row.action == ROTA_RECOVERY_REFUSE:
        return refuse(r, error)
    return ROTA_OK


cdef int recovery_find_end(recovery *r, rota_error *error) noexcept nogil:
    """Walk over the metadata, then look behind the end for proofs."""
    cdef log_commit commit
    cdef uint32_t found
    cdef int status = 1
    walk_begin(&r.reader, &r.end)
    r.reader.h.recovery.begin_lsn = r.end.lsn
    while status == 1:
        status = walk_next(&r.reader, &r.end, &commit, &r.why, 0, error)
    if status != 0:
        return status
    r.proven_lsn = proven_at_least(&r.reader, &r.end)
    found = conditions(r)
    if found != ROTA_FOUND_NOTHING and found != ROTA_FOUND_CLOSE:  # after these nothing can follow
        status = walk_beyond(&r.reader, r.end.lsn, &r.beyond_durable, &r.beyond_lsn, error)
    rota_failpoint(r.reader.h.failpoints, ROTA_AT_RECOVERY_SCANNED)
    return decide(r, error) if status == ROTA_OK else status


# --- the replay ------------------------------------------------------------------------------------------------------


cdef int replay(recovery *r, rota_error *error) noexcept nogil:
    """Apply the accepted commits; a bad body above the proven position moves the end back to its commit."""
    cdef rota_handle *h = r.reader.h
    cdef log_position first = r.end
    cdef log_commit commit
    cdef log_end why
    cdef int status = 1
    walk_begin(&r.reader, &r.end)
    while status == 1 and r.end.lsn < first.lsn:
        status = walk_next(&r.reader, &r.end, &commit, &why,
                           WALK_BODIES if r.end.lsn >= r.proven_lsn else WALK_TRUSTED, error)
        if status == 1:
            if apply_replay(h, commit.bytes, commit.file, commit.offset, error) != ROTA_OK:
                return error.status if error != NULL else ROTA_CORRUPT
    if status < 0:
        return status
    if r.end.lsn < first.lsn:
        r.why = why
        if r.beyond_lsn < first.lsn:
            r.beyond_lsn = first.lsn
    rota_failpoint(h.failpoints, ROTA_AT_RECOVERY_CUT)
    return decide(r, error)


# --- durability ------------------------------------------------------------------------------------------------------


cdef int sync_files(recovery *r, rota_error *error) noexcept nogil:
    """Every file with bytes above the proven position, in the order of the log, through a descriptor that stays."""
    cdef rota_handle *h = r.reader.h
    cdef uint32_t i, file
    cdef uint64_t end
    cdef int status
    for i in range(r.reader.order_count):
        file = r.reader.order[i]
        end = r.reader.files[file].end_lsn
        if end == 0 or (end < r.proven_lsn and file != r.end.file):
            continue
        status = segment_sync(h, file, error)
        if status != ROTA_OK:
            return epoch_fail(r, status, error)
    rota_failpoint(h.failpoints, ROTA_AT_RECOVERY_SYNCED)
    return ROTA_OK


# --- all of it -------------------------------------------------------------------------------------------------------


cdef void report(recovery *r) noexcept nogil:
    cdef rota_handle *h = r.reader.h
    cdef uint64_t behind = r.beyond_lsn
    if r.why.kind == END_BAD and r.why.lsn + r.why.length > behind:
        behind = r.why.lsn + r.why.length
    h.recovery.performed = 1
    h.recovery.clean = r.row.action == ROTA_RECOVERY_GO_ON
    h.recovery.scanned_bytes = r.reader.scanned_bytes
    h.recovery.commits = r.end.commits
    h.recovery.torn_bytes = behind - r.end.lsn if behind > r.end.lsn else 0
    h.recovery.elapsed_ns = h.os.clock_boot_ns(h.os) - r.started_ns
    h.recovery.epoch = r.epoch


cdef void remove_leftovers(recovery *r) noexcept nogil:
    """Creations that were cut short; nobody else is here."""
    cdef char name[SEGMENT_NAME_BYTES]
    cdef rota_handle *h = r.reader.h
    cdef uint32_t file
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        if r.reader.files[file].leftover:
            segment_leftover_name(file, name)
            h.os.unlink(h.os, h.directory_fd, name)


cdef int rebuild(recovery *r, rota_error *error) noexcept nogil:
    """The steps in their order."""
    cdef rota_handle *h = r.reader.h
    cdef int status = recovery_find_end(r, error)
    if status == ROTA_OK and r.why.later_epoch:
        # An epoch is durable before its first commit, so the newest generation of the manifest is lost.
        return rota_fail(error, ROTA_CORRUPT, b"manifest", 0,
                         b"the manifest is older than the log, which goes on in epoch %u", r.why.later_epoch)
    if status != ROTA_OK:
        return status
    enter_files(r)
    if h.manifest.checkpoint_begin != 0:
        status = checkpoint_load(h, &r.reader, error)
    if status == ROTA_OK:
        status = replay(r, error)
    if status == ROTA_OK:
        status = epoch_number(r, error)
    if status != ROTA_OK:
        return status
    settle_files(r)
    ids_number(r)
    rota_failpoint(h.failpoints, ROTA_AT_RECOVERY_REBUILT)
    status = sync_files(r, error)
    if status == ROTA_OK:
        status = epoch_write(r, error)
    if status == ROTA_OK and r.failed == FAILED_THIS_BOOT:
        status = failed_finish(h, True, error)
    elif status == ROTA_OK and r.failed != FAILED_NOT:
        status = failed_finish(h, False, error)
    if status == ROTA_OK and r.failed == FAILED_THIS_BOOT:
        status = fill_holes(r, error)
    if status == ROTA_OK and r.end.file == NO_FILE:
        status = take_file(r, error)
    if status == ROTA_OK:
        remove_leftovers(r)
        fill_control(r)
        report(r)
        rota_failpoint(h.failpoints, ROTA_AT_RECOVERY_OPENED)
    return status


cdef int recover(rota_handle *h, rota_error *error) noexcept nogil:
    """Everything between a fresh control file and the first append."""
    cdef recovery r
    cdef int status
    if h.read_only:
        return rota_fail(error, ROTA_READ_ONLY, NULL, 0, b"recovery needs the right to write")
    memset(&r, 0, sizeof(r))
    memset(&h.recovery, 0, sizeof(h.recovery))
    r.started_ns = h.os.clock_boot_ns(h.os)
    status = failed_stands(h, &r.failed, error)
    if status == ROTA_OK and r.failed == FAILED_THIS_BOOT:
        status = failed_check(h, error)
        if status == ROTA_OK:
            status = failed_refresh(h, error)
    if status == ROTA_OK:
        status = reader_open(&r.reader, h, False, error)
        if status == ROTA_OK:
            status = rebuild(&r, error)
        reader_close(&r.reader)
    return status
