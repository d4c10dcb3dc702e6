"""What a recovery writes into the control file: the segment files, the list of the free ones, the positions.

What holds:

1. The files come first, since the replay counts in them; the positions last, since they let the log be appended to.
2. A file that is not of the log is in the list of free ones, the one used last at its head.
3. A log without a commit gets a file for its first position.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from engine.control cimport *
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.status cimport *

from rota._core.failed cimport FAILED_THIS_BOOT
from rota._core.reader cimport log_file, reader_find
from rota._core.recovery cimport recovery
from rota._core.segment cimport segment_create, segment_header_write


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
