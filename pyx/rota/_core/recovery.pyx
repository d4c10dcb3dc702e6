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
    return found


cdef int refuse(recovery *r, rota_error *error) noexcept nogil:
    """Name the file and the offset where the log should go on and does not."""
    cdef char name[SEGMENT_NAME_BYTES]
    cdef uint64_t lsn = r.why.lsn if r.why.kind == END_BAD else r.end.lsn
    cdef uint64_t proven = r.beyond_durable if r.beyond_durable > r.proven_lsn else r.proven_lsn
    cdef int file = reader_find(&r.reader, lsn)
    cdef int status
    if file < 0:
        status = rota_fail(error, ROTA_CORRUPT, NULL, lsn, b"%s (no segment holds it)", r.row.meaning)
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


# --- the control file ------------------------------------------------------------------------------------------------


cdef void enter_files(recovery *r) noexcept nogil:
    """All files into the table, each of them free, or with the position that its header names."""
    cdef rota_control *control = r.reader.h.control
    cdef log_file *entry
    cdef rota_segment *segment
    cdef uint32_t file
    control.segment_count = 0
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        entry = &r.reader.files[file]
        segment = &control.segments[file]
        memset(segment, 0, sizeof(rota_segment))
        if not entry.present or (r.failed == FAILED_THIS_BOOT and entry.first_lsn != 0 and not entry.chosen):
            continue  # the latter are set aside at the end
        control.segment_count = file + 1
        segment.state = ROTA_SEGMENT_FREE
        segment.generation = entry.generation
        if not entry.chosen:
            continue
        segment.first_lsn = entry.first_lsn
        if entry.end_lsn != 0:
            segment.state = ROTA_SEGMENT_SEALED
            segment.end_lsn = entry.end_lsn
            segment.frames = entry.frames


cdef void link_free(rota_control *control, uint32_t file) noexcept nogil:
    control.segments[file].first_lsn = 0
    control.segments[file].next_free = control.free_segments
    control.free_segments = file + 1
    control.free_segment_count += 1


cdef void settle_files(recovery *r) noexcept nogil:
    """After the replay: the files of the log by their final ends, the others into the list of free ones.

    The list is pushed from the never used to the latest positions, so the file that was used last is reused first.
    """
    cdef rota_control *control = r.reader.h.control
    cdef rota_segment *segment
    cdef uint32_t i, file
    control.free_segments = 0
    control.free_segment_count = 0
    control.live_segments = 0
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        segment = &control.segments[file]
        if segment.state == ROTA_SEGMENT_SEALED and segment.end_lsn != 0 and r.reader.files[file].end_lsn == 0 \
                and segment.first_lsn >= r.reader.h.recovery.begin_lsn:
            segment.state = ROTA_SEGMENT_FREE  # a torn body above it
        elif segment.state == ROTA_SEGMENT_SEALED and r.reader.files[file].end_lsn != 0:
            segment.end_lsn = r.reader.files[file].end_lsn
            segment.frames = r.reader.files[file].frames + r.reader.files[file].frames_before
        if segment.state != ROTA_SEGMENT_ABSENT and segment.state != ROTA_SEGMENT_FREE:
            control.live_segments += 1
        elif segment.state == ROTA_SEGMENT_FREE and not r.reader.files[file].chosen:
            link_free(control, file)
    for i in range(r.reader.order_count):
        file = r.reader.order[i]
        if control.segments[file].state == ROTA_SEGMENT_FREE:
            link_free(control, file)


cdef int take_file(recovery *r, rota_error *error) noexcept nogil:
    """The log holds no commit: give its first position a file."""
    cdef rota_handle *h = r.reader.h
    cdef rota_control *control = h.control
    cdef int file = reader_find(&r.reader, r.end.lsn)
    cdef int status
    if file < 0:
        file = <int>control.free_segments - 1
    if file < 0:
        status = segment_create(h, 0, True, error)
        if status != ROTA_OK:
            return status
        file = 0
        control.segment_count = 1
        control.segments[0].state = ROTA_SEGMENT_FREE
        link_free(control, 0)
    unlink_free(control, <uint32_t>file)
    control.segments[file].generation += 1
    status = segment_header_write(h, <uint32_t>file, r.end.lsn, r.epoch, 0, control.segments[file].generation, error)
    if status != ROTA_OK:
        return status
    control.segments[file].first_lsn = r.end.lsn
    control.live_segments += 1
    r.end.file = <uint32_t>file
    return ROTA_OK


cdef int fill_holes(recovery *r, rota_error *error) noexcept nogil:
    """Make new files where the old ones were set aside."""
    cdef rota_control *control = r.reader.h.control
    cdef uint32_t file
    cdef int status
    for file in range(control.segment_count):
        if control.segments[file].state != ROTA_SEGMENT_ABSENT:
            continue
        status = segment_create(r.reader.h, file, True, error)
        if status != ROTA_OK:
            return status
        control.segments[file].state = ROTA_SEGMENT_FREE
        link_free(control, file)
    return ROTA_OK


cdef void unlink_free(rota_control *control, uint32_t file) noexcept nogil:
    cdef uint32_t *link = &control.free_segments
    while link[0] != 0 and link[0] != file + 1:
        link = &control.segments[link[0] - 1].next_free
    if link[0] != 0:
        link[0] = control.segments[file].next_free
        control.segments[file].next_free = 0
        control.free_segment_count -= 1


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


cdef void fill_control(recovery *r) noexcept nogil:
    """The positions, last: what the first commit of the new epoch builds on."""
    cdef rota_handle *h = r.reader.h
    cdef rota_control *control = h.control
    control.segments[r.end.file].state = ROTA_SEGMENT_ACTIVE
    control.segments[r.end.file].end_lsn = 0
    control.segments[r.end.file].frames = 0
    control.log.applied_lsn = r.end.lsn
    control.log.last_chain = r.end.chain
    control.log.next_id = r.next_id
    if r.end.time_ns > control.log.time_ns:
        control.log.time_ns = r.end.time_ns
    control.log.tail_file = r.end.file
    control.log.tail_frames = r.reader.files[r.end.file].frames + r.reader.files[r.end.file].frames_before
    control.epoch = r.epoch
    control.sub_epoch = 0
    control.stamped_id = r.next_id
    control.sealed_lsn = r.end.lsn
    control.mark_lsn = r.end.lsn  # the epoch's start proves what a MARK would
    control.opened_lsn = r.end.lsn
    control.checkpoint_begin = h.manifest.checkpoint_begin
    control.checkpoint_end = h.manifest.checkpoint_end
    control.durable_lsn = r.end.lsn
    control.synced_commits = control.log.commits
    control.tail_lsn = r.end.lsn


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
                         b"the manifest is older than the log, which goes on in epoch %u; `rota verify` and "
                         b"`rota repair` tell what is left", r.why.later_epoch)
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
