"""The manifest: four sectors in four pages, two generations, each written twice.

What holds:

1. Sectors 0 and 1 are one pair, 2 and 3 the other; both sectors of a pair are written with the same bytes.  The newest
   generation is the valid sector with the highest sequence; one readable copy is enough.
2. A generation is written over the older pair, never over the newest, and only after the newest was synced: its
   writer may have died between the write and the sync.
3. Sectors that are valid and contradict each other (one sequence with two contents, two identities, a position that
   went back) are refused, not chosen from.
4. A file is trusted after its size, magic, byte order, version, checksum, reserved bytes and every number were checked.
5. After a sync that failed nothing is tried again: LOG_FAILED.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from engine.crc32c cimport rota_crc32c
from engine.failpoint cimport ROTA_AT_MANIFEST_SYNCED, ROTA_AT_MANIFEST_WRITTEN, rota_failpoint_status
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.platform cimport *
from engine.status cimport *

cdef const char *NAME = b"manifest"
cdef const char *NEW_NAME = b"manifest.new"

cdef enum:
    SECTOR_COUNT = 4
    SECTOR_BYTES = 512
    SECTOR_DISTANCE = 4096
    TURNS_MAX = 0xffffffff
    SECTOR_GOOD = 0
    SECTOR_ZERO = 1
    SECTOR_ALIEN = 2  # another magic
    SECTOR_SWAPPED = 3
    SECTOR_OTHER_BUILD = 4
    SECTOR_NEWER = 5
    SECTOR_BAD = 6


cdef uint32_t sector_crc(const rota_manifest_sector *sector) noexcept nogil:
    cdef rota_manifest_sector copy = sector[0]
    copy.crc = 0
    return rota_crc32c(0, &copy, sizeof(copy))


cdef bint sizes_good(const rota_manifest_sector *sector) noexcept nogil:
    """Sizes that every later calculation relies on."""
    cdef uint64_t count
    if sector.segment_size < ROTA_SEGMENT_SIZE_MIN or sector.segment_size > ROTA_SEGMENT_SIZE_MAX:
        return False
    if sector.segment_size % ROTA_PAGE_SIZE != 0 or sector.capacity % sector.segment_size != 0:
        return False
    count = sector.capacity // sector.segment_size
    if count < ROTA_SEGMENT_COUNT_MIN or count > ROTA_SEGMENT_COUNT_MAX:
        return False
    if sector.sync_unit < ROTA_SECTOR_SIZE or sector.sync_unit > 65536 or sector.sync_unit & (sector.sync_unit - 1):
        return False
    return sector.segment_size % sector.sync_unit == 0


cdef bint positions_good(const rota_manifest_sector *sector) noexcept nogil:
    """Epochs ascend, the checkpoint's positions are in order."""
    cdef uint32_t i
    cdef const rota_epoch *epoch
    if sector.epoch_count > ROTA_EPOCH_COUNT_MAX or sector.feature_bits != 0:
        return False
    for i in range(ROTA_EPOCH_COUNT_MAX):
        epoch = &sector.epochs[i]
        if i >= sector.epoch_count:
            if epoch.epoch != 0 or epoch.start_lsn != 0:
                return False
        elif epoch.epoch == 0 or epoch.start_lsn < ROTA_SEGMENT_HEADER_SIZE:
            return False
        elif i > 0 and (epoch.epoch <= sector.epochs[i - 1].epoch or epoch.start_lsn < sector.epochs[i - 1].start_lsn):
            return False
    if sector.checkpoint_begin == 0:
        return sector.checkpoint_block == 0 and sector.checkpoint_end == 0 and sector.checkpoint_chain == 0
    return (sector.checkpoint_begin >= ROTA_SEGMENT_HEADER_SIZE and sector.checkpoint_begin % ROTA_CELL == 0
            and sector.checkpoint_begin <= sector.checkpoint_block < sector.checkpoint_end
            and sector.epoch_count != 0)


cdef uint32_t swapped(uint32_t value) noexcept nogil:
    return value >> 24 | (value >> 8 & 0xff00) | (value & 0xff00) << 8 | value << 24


cdef int sector_class(const rota_manifest_sector *sector) noexcept nogil:
    """What one sector is, by itself."""
    cdef rota_manifest_sector zero
    if sector.magic != ROTA_MANIFEST_MAGIC:
        memset(&zero, 0, sizeof(zero))
        if memcmp(sector, &zero, sizeof(zero)) == 0:
            return SECTOR_ZERO
        if swapped(sector.magic) == ROTA_MANIFEST_MAGIC:
            return SECTOR_SWAPPED
        return SECTOR_OTHER_BUILD if sector.magic == (ROTA_MANIFEST_MAGIC ^ 0x20) else SECTOR_ALIEN
    if sector.crc != sector_crc(sector):
        return SECTOR_BAD
    if sector.version != ROTA_FORMAT_VERSION or sector.feature_bits != 0:
        return SECTOR_NEWER
    if sector.byte_order != ROTA_BYTE_ORDER or not sizes_good(sector) or not positions_good(sector):
        return SECTOR_BAD
    return SECTOR_GOOD


cdef const char *contradiction(const rota_manifest_sector *older, const rota_manifest_sector *newer) noexcept nogil:
    """Why two valid sectors cannot be generations of one manifest; NULL when they can."""
    if memcmp(older.uuid, newer.uuid, 16) != 0 or older.salt != newer.salt:
        return b"two copies of the manifest belong to different repositories"
    if older.segment_size != newer.segment_size or older.created_at_ns != newer.created_at_ns:
        return b"two copies of the manifest disagree about what never changes"
    if older.sequence == newer.sequence:
        if memcmp(older, newer, sizeof(rota_manifest_sector)) == 0:
            return NULL
        return b"two copies of one manifest generation differ"
    if older.checkpoint_begin > newer.checkpoint_begin or older.next_id_floor > newer.next_id_floor \
            or older.reached_turns > newer.reached_turns:
        return b"the newer manifest generation goes back behind the older one"
    if older.epoch_count != 0 and (newer.epoch_count == 0 or older.epochs[older.epoch_count - 1].epoch
                                   > newer.epochs[newer.epoch_count - 1].epoch):
        return b"the newer manifest generation has an older epoch"
    return NULL


cdef int refuse(const int *classes, rota_error *error) noexcept nogil:
    """No sector is valid: say the most likely reason."""
    cdef int i
    cdef uint32_t seen = 0
    for i in range(SECTOR_COUNT):
        seen |= <uint32_t>1 << classes[i]
    if seen & (1 << SECTOR_NEWER):
        return rota_fail(error, ROTA_VERSION, NAME, 0, b"the repository was written by a newer version")
    if seen & (1 << SECTOR_BAD):
        return rota_fail(error, ROTA_CORRUPT, NAME, 0, b"no copy of the manifest matches its checksum and its limits")
    if seen & (1 << SECTOR_SWAPPED):
        return rota_fail(error, ROTA_FOREIGN_ABI, NAME, 0, b"the repository has another byte order")
    if seen & (1 << SECTOR_OTHER_BUILD):
        return rota_fail(error, ROTA_FOREIGN_ABI, NAME, 0, b"a debug build and a release build do not share files")
    return rota_fail(error, ROTA_NOT_A_REPOSITORY, NAME, 0, b"the file named manifest is not a manifest")


cdef int manifest_choose(const rota_manifest_sector *sectors, int *newest, rota_error *error) noexcept nogil:
    """The index of the newest valid sector of four."""
    cdef int classes[SECTOR_COUNT]
    cdef int i, other, best = -1
    cdef const char *why
    for i in range(SECTOR_COUNT):
        classes[i] = sector_class(&sectors[i])
        if classes[i] == SECTOR_NEWER:
            return rota_fail(error, ROTA_VERSION, NAME, i * SECTOR_DISTANCE,
                             b"the repository was written by a newer version")
        if classes[i] == SECTOR_GOOD and (best < 0 or sectors[i].sequence > sectors[best].sequence):
            best = i
    if best < 0:
        return refuse(classes, error)
    for i in range(SECTOR_COUNT):
        for other in range(SECTOR_COUNT):
            if i == other or classes[i] != SECTOR_GOOD or classes[other] != SECTOR_GOOD:
                continue
            if sectors[i].sequence > sectors[other].sequence:
                continue
            why = contradiction(&sectors[i], &sectors[other])
            if why != NULL:
                return rota_fail_compared(error, ROTA_CORRUPT, NAME, other * SECTOR_DISTANCE, sectors[i].sequence,
                                          sectors[other].sequence, why)
    newest[0] = best
    return ROTA_OK


cdef int open_file(rota_handle *h, rota_error *error) noexcept nogil:
    """Open the manifest into h.manifest_fd unless it is open."""
    cdef rota_facts facts
    cdef int fd, status
    if h.manifest_fd >= 0:
        return ROTA_OK
    fd = h.os.open(h.os, h.directory_fd, NAME, ROTA_OPEN_READ if h.read_only else ROTA_OPEN_WRITE, 0)
    if fd == -2:  # ENOENT
        return rota_fail(error, ROTA_NOT_A_REPOSITORY, NAME, 0, b"the directory holds no manifest")
    if fd < 0:
        return rota_fail(error, fd, NAME, 0, b"the manifest cannot be opened")
    status = h.os.facts(h.os, fd, &facts)
    if status == 0 and facts.regular and facts.size == ROTA_MANIFEST_SIZE:
        h.manifest_fd = fd
        return ROTA_OK
    h.os.close(h.os, fd)
    if status != 0:
        return rota_fail(error, status, NAME, 0, b"the manifest cannot be examined")
    if not facts.regular:
        return rota_fail(error, ROTA_NOT_A_REPOSITORY, NAME, 0, b"the manifest is not a regular file")
    return rota_fail_compared(error, ROTA_CORRUPT, NAME, 0, ROTA_MANIFEST_SIZE, facts.size,
                              b"the manifest has another size")


cdef int load(rota_handle *h, rota_manifest_sector *sectors, int *newest, rota_error *error) noexcept nogil:
    """Read the four sectors and choose; a sector that cannot be read counts as one that is not valid."""
    cdef int i, status, unread = 0
    for i in range(SECTOR_COUNT):
        status = h.os.pread(h.os, h.manifest_fd, &sectors[i], SECTOR_BYTES, i * SECTOR_DISTANCE)
        if status != 0:
            memset(&sectors[i], 0, SECTOR_BYTES)
            sectors[i].magic = ROTA_MANIFEST_MAGIC  # with a checksum that is wrong
            unread = status
    if unread != 0 and manifest_choose(sectors, newest, NULL) != ROTA_OK:
        return rota_fail(error, unread, NAME, 0, b"the manifest cannot be read")
    return manifest_choose(sectors, newest, error)


cdef int manifest_read(rota_handle *h, rota_error *error) noexcept nogil:
    """The newest valid generation into h.manifest."""
    cdef rota_manifest_sector sectors[SECTOR_COUNT]
    cdef int newest = 0
    cdef int status = open_file(h, error)
    if status == ROTA_OK:
        status = load(h, sectors, &newest, error)
    if status == ROTA_OK:
        h.manifest = sectors[newest]
    return status


cdef int sync_failed(int os_errno, rota_error *error) noexcept nogil:
    rota_fail(error, ROTA_LOG_FAILED, NAME, 0, b"a sync of the manifest failed")
    if error != NULL:
        error.os_errno = -os_errno
    return ROTA_LOG_FAILED


cdef int sync(rota_handle *h, rota_error *error) noexcept nogil:
    cdef int status = h.os.sync(h.os, h.manifest_fd)
    return ROTA_OK if status == 0 else sync_failed(status, error)


cdef void seal(rota_manifest_sector *sector, uint64_t sequence) noexcept nogil:
    """Fill in what no caller decides."""
    sector.magic = ROTA_MANIFEST_MAGIC
    sector.version = ROTA_FORMAT_VERSION
    sector.byte_order = ROTA_BYTE_ORDER
    sector.sequence = sequence
    sector.crc = sector_crc(sector)


cdef int write_pair(rota_handle *h, int fd, int pair, const rota_manifest_sector *sector,
                    rota_error *error) noexcept nogil:
    cdef int i, status
    for i in range(2 * pair, 2 * pair + 2):
        status = h.os.pwrite(h.os, fd, sector, SECTOR_BYTES, i * SECTOR_DISTANCE)
        if status != 0:
            return rota_fail(error, status, NAME, i * SECTOR_DISTANCE, b"the manifest cannot be written")
    return ROTA_OK


cdef int manifest_write(rota_handle *h, rota_manifest_sector *following, rota_error *error) noexcept nogil:
    """Make `following` the manifest, durably.  RETRY: somebody wrote a generation that h.manifest does not know."""
    cdef rota_manifest_sector sectors[SECTOR_COUNT]
    cdef int newest = 0
    cdef int status = open_file(h, error)
    if status == ROTA_OK:
        status = load(h, sectors, &newest, error)
    if status != ROTA_OK:
        return status
    if sectors[newest].sequence != h.manifest.sequence:
        return rota_fail_compared(error, ROTA_RETRY, NAME, 0, h.manifest.sequence, sectors[newest].sequence,
                                  b"the manifest changed since it was read")
    status = sync(h, error)  # the newest generation must be durable before the other pair is spoiled
    if status != ROTA_OK:
        return status
    seal(following, h.manifest.sequence + 1)
    if sector_class(following) != SECTOR_GOOD or contradiction(&h.manifest, following) != NULL:
        return rota_fail(error, ROTA_STATE, NAME, 0, b"a manifest generation was refused that could not be read back")
    status = write_pair(h, h.manifest_fd, 0 if newest >= 2 else 1, following, error)
    if status != ROTA_OK:
        return status
    status = rota_failpoint_status(h.failpoints, ROTA_AT_MANIFEST_WRITTEN)
    if status != ROTA_OK:
        return sync_failed(status, error)
    status = sync(h, error)
    if status != ROTA_OK:
        return status
    h.manifest = following[0]
    rota_failpoint_status(h.failpoints, ROTA_AT_MANIFEST_SYNCED)
    return ROTA_OK


cdef uint32_t manifest_turns(const rota_manifest_sector *manifest, uint64_t lsn) noexcept nogil:
    """How many turns hold commits below `lsn`.  What the field cannot hold proves less, and nothing wrong."""
    cdef uint64_t turns = lsn // manifest.segment_size
    if lsn % manifest.segment_size > ROTA_SEGMENT_HEADER_SIZE:
        turns += 1
    return <uint32_t>turns if turns <= TURNS_MAX else <uint32_t>TURNS_MAX


cdef uint64_t manifest_reached(const rota_manifest_sector *manifest) noexcept nogil:
    """The durable log went on at least to here: into the first commit of the last turn that was reached."""
    if manifest.reached_turns == 0:
        return 0
    return (manifest.reached_turns - <uint64_t>1) * manifest.segment_size + ROTA_SEGMENT_HEADER_SIZE + 1


cdef int manifest_reach(rota_handle *h, uint64_t durable_lsn, rota_error *error) noexcept nogil:
    """Say durably that the log reached that position.  Nobody else writes the manifest meanwhile."""
    cdef rota_manifest_sector following
    cdef int status = manifest_read(h, error)
    if status != ROTA_OK or manifest_turns(&h.manifest, durable_lsn) <= h.manifest.reached_turns:
        return status
    following = h.manifest
    following.reached_turns = manifest_turns(&h.manifest, durable_lsn)
    return manifest_write(h, &following, error)


cdef int manifest_refresh(rota_handle *h, rota_error *error) noexcept nogil:
    """After a failed sync: store the newest generation again over itself, so that its pages are written once more."""
    cdef rota_manifest_sector sectors[SECTOR_COUNT]
    cdef int newest = 0
    cdef int status = open_file(h, error)
    if status == ROTA_OK:
        status = load(h, sectors, &newest, error)
    if status == ROTA_OK:
        status = write_pair(h, h.manifest_fd, newest // 2, &sectors[newest], error)
    if status == ROTA_OK:
        status = sync(h, error)
    if status == ROTA_OK:
        h.manifest = sectors[newest]
    return status


cdef int fill_new(rota_handle *h, int fd, rota_error *error) noexcept nogil:
    """The whole file, durable, still under its temporary name."""
    cdef int status = h.os.zero(h.os, fd, 0, ROTA_MANIFEST_SIZE)
    if status != 0:
        return rota_fail(error, status, NEW_NAME, 0, b"the manifest cannot be written")
    status = write_pair(h, fd, 0, &h.manifest, error)
    if status != ROTA_OK:
        return status
    status = h.os.sync_metadata(h.os, fd)
    return ROTA_OK if status == 0 else sync_failed(status, error)


cdef int manifest_create(rota_handle *h, rota_error *error) noexcept nogil:
    """The first generation, from h.manifest.  A manifest that is there already is never replaced: IN_USE."""
    cdef int fd, status
    seal(&h.manifest, 1)
    if sector_class(&h.manifest) != SECTOR_GOOD:
        return rota_fail(error, ROTA_STATE, NAME, 0, b"sizes or positions of the new repository are out of range")
    h.os.unlink(h.os, h.directory_fd, NEW_NAME)  # of a creation that was cut short
    fd = h.os.open(h.os, h.directory_fd, NEW_NAME, ROTA_OPEN_WRITE | ROTA_OPEN_CREATE | ROTA_OPEN_EXCLUSIVE, 0o600)
    if fd < 0:
        return rota_fail(error, fd, NEW_NAME, 0, b"the manifest cannot be created")
    status = fill_new(h, fd, error)
    if status == ROTA_OK:
        status = h.os.rename_new(h.os, h.directory_fd, NEW_NAME, NAME)
        if status == -17:  # EEXIST
            status = rota_fail(error, ROTA_IN_USE, NAME, 0, b"the directory holds a repository already")
        elif status != 0:
            status = rota_fail(error, status, NAME, 0, b"the manifest cannot be given its name")
    if status != ROTA_OK:
        h.os.unlink(h.os, h.directory_fd, NEW_NAME)
        h.os.close(h.os, fd)
        return status
    status = h.os.sync_directory(h.os, h.directory_fd)
    if status != 0:
        h.os.close(h.os, fd)
        return sync_failed(status, error)
    h.manifest_fd = fd
    return ROTA_OK
