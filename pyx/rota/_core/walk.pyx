"""The walk: the log as recovery, verify and repair see it, one accepted commit after the other.

What holds:

1. At a position the walk looks in three places: the position, the position rounded up to the sync unit, the start of
   the next segment.  A commit fits if it names its place, its predecessor (chain), the epoch that the manifest has for
   the place, and if (epoch, sub-epoch) does not fall.
2. More than one place can hold a commit that fits: a dead writer's, and its survivor's after a sync took its snapshot
   or behind a segment's border.  The higher (epoch, sub-epoch) is the one that was published.
3. A position before the first epoch that the manifest lists lies below a proven position: any older epoch fits there.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from engine.format cimport *
from engine.frame cimport *
from engine.handle cimport rota_handle
from engine.scan cimport *
from engine.status cimport *

from rota._core.manifest cimport manifest_reached
from rota._core.reader cimport NO_FILE, log_file, log_reader, reader_bytes, reader_find

cdef enum:
    HEADER_BYTES = 96
    GLANCE_BYTES = 1 << 16


# --- commits ---------------------------------------------------------------------------------------------------------


cdef uint32_t epoch_at(const rota_manifest_sector *manifest, uint64_t lsn) noexcept nogil:
    """The epoch whose commits lie at that position; 0: one before the first that is listed."""
    cdef uint32_t i, epoch = 0
    for i in range(manifest.epoch_count):
        if manifest.epochs[i].start_lsn <= lsn:
            epoch = manifest.epochs[i].epoch
    return epoch


cdef uint32_t newest_epoch(const rota_manifest_sector *manifest) noexcept nogil:
    return manifest.epochs[manifest.epoch_count - 1].epoch if manifest.epoch_count else 0


cdef bint epoch_fits(const rota_manifest_sector *manifest, const rota_commit_header *header) noexcept nogil:
    cdef uint32_t epoch = epoch_at(manifest, header.lsn)
    if epoch != 0:
        return header.epoch == epoch
    return manifest.epoch_count != 0 and header.epoch < manifest.epochs[0].epoch


cdef void walk_begin(log_reader *reader, log_position *position) noexcept nogil:
    cdef const rota_manifest_sector *manifest = &reader.h.manifest
    cdef uint32_t file
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        reader.files[file].frames = 0
        reader.files[file].end_lsn = 0
    memset(position, 0, sizeof(log_position))
    position.lsn = manifest.checkpoint_begin if manifest.checkpoint_begin != 0 else ROTA_SEGMENT_HEADER_SIZE
    position.chain = manifest.checkpoint_chain
    position.file = NO_FILE


cdef void note_end(log_end *end, int kind, int result, uint32_t file, uint64_t lsn, uint64_t length) noexcept nogil:
    """Keep the strongest sign of a commit that is not there."""
    if kind < end.kind or (kind == end.kind and kind != END_NOTHING):
        return
    end.kind = kind
    end.result = result
    end.file = file
    end.lsn = lsn
    end.length = length


cdef int load_header(log_reader *reader, uint32_t file, uint64_t lsn, rota_commit_header *header,
                     rota_error *error) noexcept nogil:
    """A rota_scan_result, or a negative status.  The first header of the next segment is remembered."""
    cdef const uint8_t *bytes = NULL
    cdef uint64_t offset = lsn % reader.h.segment_size
    cdef int status
    if reader.h.segment_size - offset < HEADER_BYTES:
        return ROTA_SCAN_SHORT
    if lsn == reader.ahead_lsn and file != reader.fd_file:
        header[0] = reader.ahead
        return reader.ahead_result
    status = reader_bytes(reader, file, offset, HEADER_BYTES, &bytes, error)
    if status != ROTA_OK:
        return status
    status = rota_commit_check(bytes, reader.h.segment_size - offset, reader.h.salt_crc, lsn, header)
    if offset == ROTA_SEGMENT_HEADER_SIZE:
        reader.ahead_lsn = lsn
        reader.ahead = header[0]
        reader.ahead_result = status
    return status


cdef int load_whole(log_reader *reader, log_commit *commit, int flags, rota_error *error) noexcept nogil:
    """Bring the commit into the window and check what its header vouches for: a rota_scan_result or a status."""
    cdef int status = reader_bytes(reader, commit.file, commit.offset, commit.header.length, &commit.bytes, error)
    if status != ROTA_OK:
        return status
    if memcmp(commit.bytes, &commit.header, HEADER_BYTES) != 0:
        return ROTA_SCAN_HEADER_CRC  # it changed since it was checked
    commit.fill = reader.fills
    if flags & WALK_TRUSTED:
        return rota_commit_structure_check(commit.bytes, &commit.header)
    return rota_commit_meta_check(commit.bytes, &commit.header, reader.h.salt_crc)


cdef int examine(log_reader *reader, const log_position *position, uint64_t lsn, log_commit *commit, log_end *end,
                 int flags, rota_error *error) noexcept nogil:
    """1: a commit that fits lies there; 0: none does; negative: a status."""
    cdef int result
    cdef int file = reader_find(reader, lsn)
    cdef rota_commit_header *header = &commit.header
    if file < 0:
        return 0
    commit.file = <uint32_t>file
    commit.offset = lsn % reader.h.segment_size
    result = load_header(reader, commit.file, lsn, header, error)
    if result < 0:
        return result
    if result == ROTA_SCAN_OK:
        if (header.previous_chain != position.chain or not epoch_fits(&reader.h.manifest, header)
                or header.epoch < position.epoch
                or (header.epoch == position.epoch and header.sub_epoch < position.sub_epoch)):
            if header.previous_chain == position.chain and header.epoch > newest_epoch(&reader.h.manifest):
                end.later_epoch = header.epoch
            note_end(end, END_STALE, ROTA_SCAN_OK, commit.file, lsn, header.length)
            return 0
        result = load_whole(reader, commit, flags, error)
        if result <= 0:
            return 1 if result == ROTA_SCAN_OK else result
        note_end(end, END_BAD, result, commit.file, lsn, header.length)
        return 0
    if result in (ROTA_SCAN_EMPTY, ROTA_SCAN_MAGIC, ROTA_SCAN_LSN, ROTA_SCAN_SHORT):
        note_end(end, END_NOTHING, result, commit.file, lsn, 0)
    else:
        note_end(end, END_BAD, result, commit.file, lsn, HEADER_BYTES)
    return 0


cdef uint32_t places(log_reader *reader, uint64_t lsn, uint64_t *place) noexcept nogil:
    """Where the commit after that position may start, lowest first."""
    cdef uint64_t size = reader.h.segment_size
    cdef uint64_t offset = lsn % size
    cdef uint64_t rounded = rota_round_up(lsn, reader.h.manifest.sync_unit)
    if offset < ROTA_SEGMENT_HEADER_SIZE:
        place[0] = lsn - offset + ROTA_SEGMENT_HEADER_SIZE
        return 1
    place[0] = lsn
    if rounded == lsn or rounded % size == 0:
        place[1] = lsn - offset + size + ROTA_SEGMENT_HEADER_SIZE
        return 2
    place[1] = rounded
    place[2] = lsn - offset + size + ROTA_SEGMENT_HEADER_SIZE
    return 3


cdef void pass_by(log_reader *reader, log_position *position, const log_commit *commit) noexcept nogil:
    """The commit is accepted: the position after it, and what it tells."""
    cdef const rota_commit_header *header = &commit.header
    cdef log_file *file = &reader.files[commit.file]
    position.closed = header.flags & ROTA_COMMIT_CLOSE and header.durable_lsn >= position.lsn
    position.lsn = header.lsn + header.length
    position.chain = rota_commit_chain(reader.h.salt, header)
    position.epoch = header.epoch
    position.sub_epoch = header.sub_epoch
    position.commits += 1
    position.file = commit.file
    if header.durable_lsn > position.durable_lsn:
        position.durable_lsn = header.durable_lsn
    if header.time_ns > position.time_ns:
        position.time_ns = header.time_ns
    if header.message_count != 0 and not header.flags & ROTA_COMMIT_COPIES:
        if header.base_id + header.message_count > position.next_id:
            position.next_id = header.base_id + header.message_count
    file.end_lsn = position.lsn
    file.frames += header.message_count


cdef int walk_next(log_reader *reader, log_position *position, log_commit *commit, log_end *end, int flags,
                   rota_error *error) noexcept nogil:
    """One commit further, or the end; commit.bytes is valid until the next call."""
    cdef uint64_t place[3]
    cdef log_commit other
    cdef uint32_t i, count
    cdef int status, found = -1
    memset(end, 0, sizeof(log_end))
    end.lsn = position.lsn
    count = places(reader, position.lsn, place)
    for i in range(count):
        status = examine(reader, position, place[i], &other, end, flags, error)
        if status < 0:
            return status
        if status == 1 and (found < 0 or other.header.epoch > commit.header.epoch
                            or (other.header.epoch == commit.header.epoch
                                and other.header.sub_epoch > commit.header.sub_epoch)):
            commit[0] = other
            found = <int>i
    if found < 0:
        return 0
    status = ROTA_SCAN_OK
    if commit.fill != reader.fills:  # the window has moved on
        status = load_whole(reader, commit, flags, error)
    if status == ROTA_SCAN_OK and flags & WALK_BODIES:
        status = rota_commit_bodies_check(commit.bytes, &commit.header, reader.h.salt_crc, &end.message)
    if status < 0:
        return status
    if status != ROTA_SCAN_OK:
        note_end(end, END_BAD, status, commit.file, commit.header.lsn, commit.header.length)
        return 0
    pass_by(reader, position, commit)
    return 1


cdef uint64_t proven_at_least(log_reader *reader, const log_position *position) noexcept nogil:
    """The highest position that the accepted commits and the manifest prove durable."""
    cdef const rota_manifest_sector *manifest = &reader.h.manifest
    cdef uint64_t proven = position.durable_lsn
    if manifest.checkpoint_end > proven:
        proven = manifest.checkpoint_end
    if manifest.epoch_count != 0 and manifest.epochs[manifest.epoch_count - 1].start_lsn > proven:
        proven = manifest.epochs[manifest.epoch_count - 1].start_lsn
    if manifest_reached(manifest) > proven:
        proven = manifest_reached(manifest)
    return proven


cdef int walk_to_end(log_reader *reader, log_position *position, rota_error *error) noexcept nogil:
    """To the last commit that fits, whose body and all bodies above the proven position check."""
    cdef log_commit commit
    cdef log_end end
    cdef uint64_t proven
    cdef int status = 1
    walk_begin(reader, position)
    while status == 1:
        status = walk_next(reader, position, &commit, &end, 0, error)
    proven = proven_at_least(reader, position)
    if status == 0:
        walk_begin(reader, position)
        status = 1
    while status == 1:
        status = walk_next(reader, position, &commit, &end, WALK_BODIES if position.lsn >= proven else WALK_TRUSTED,
                           error)
    position.durable_lsn = proven
    return status


# --- beyond the end --------------------------------------------------------------------------------------------------


cdef int look_through(log_reader *reader, uint32_t file, uint64_t first, uint64_t last, uint64_t lsn,
                      uint64_t *durable_lsn, uint64_t *end_lsn, rota_error *error) noexcept nogil:
    """Every sync unit of one file in [first, last): commits at or above lsn that the manifest's epochs know."""
    cdef rota_commit_header header
    cdef const uint8_t *bytes = NULL
    cdef uint64_t size = reader.h.segment_size
    cdef uint64_t offset = first
    cdef int status
    while offset < last and size - offset >= HEADER_BYTES:
        status = reader_bytes(reader, file, offset, HEADER_BYTES, &bytes, error)
        if status != ROTA_OK:
            return status
        if rota_commit_check(bytes, size - offset, reader.h.salt_crc, 0, &header) == ROTA_SCAN_OK:
            if header.lsn >= lsn and header.lsn % size == offset and epoch_fits(&reader.h.manifest, &header):
                if header.durable_lsn > durable_lsn[0]:
                    durable_lsn[0] = header.durable_lsn
                if header.lsn + header.length > end_lsn[0]:
                    end_lsn[0] = header.lsn + header.length
        offset = rota_round_up(offset + 1, reader.h.manifest.sync_unit)
    return ROTA_OK


cdef int walk_beyond(log_reader *reader, uint64_t lsn, uint64_t *durable_lsn, uint64_t *end_lsn,
                     rota_error *error) noexcept nogil:
    """What lies behind the end at lsn: the highest durable_lsn that is named there, 0 if nothing is there.

    All of the end's segment, of later ones, and of files whose header cannot be read.  Of files with an earlier turn,
    or none, only the start: a later turn that lost its header was never synced, and what it proves is luck.
    """
    cdef uint64_t size = reader.h.segment_size
    cdef uint64_t turn = lsn - lsn % size
    cdef uint64_t first, last
    cdef uint32_t file
    cdef log_file *entry
    cdef int status
    durable_lsn[0] = 0
    end_lsn[0] = 0
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        entry = &reader.files[file]
        if not entry.present or (entry.end_lsn != 0 and entry.first_lsn < turn):
            continue
        first = ROTA_SEGMENT_HEADER_SIZE
        last = size
        if entry.header == ROTA_SCAN_EMPTY or (entry.header == ROTA_SCAN_OK and entry.first_lsn < turn):
            last = GLANCE_BYTES
        elif entry.chosen and entry.first_lsn == turn + first and lsn % size > first:
            first = rota_round_up(lsn % size, reader.h.manifest.sync_unit)
        status = look_through(reader, file, first, last, lsn, durable_lsn, end_lsn, error)
        if status != ROTA_OK:
            return status
    return ROTA_OK
