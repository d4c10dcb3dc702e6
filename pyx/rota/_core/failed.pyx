"""A failed sync: after it the page cache shows what the disk may lack.

What holds:

1. The mark, a file named `failed`, is written before anybody is told; while it stands and the boot is the same, no
   cached byte above the last proven position is believed.
2. It is read when no process of the failed life is attached any more: their mappings would keep the pages.
3. What the disk gives, read past the cache, is walked like any log; the valid prefix goes into fresh files, which
   outrank the old ones by their epoch.  A fresh file gets its header after its contents are durable, so a death in
   between leaves an unused file.
4. Only when the new epoch is durable the old files are set aside (seg.NNNNNN.failed) and the mark is removed.  Every
   step may be repeated from the start.
5. A mark of another boot, or one whose pages were lost, needs nothing but its removal: the cache is gone.  A mark that
   cannot be read counts as one of this boot.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, memset

from engine.control cimport ROTA_PROCESS_COUNT_MAX
from engine.crc32c cimport rota_crc32c
from engine.failpoint cimport ROTA_AT_FAILED_FILE, rota_failpoint
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.platform cimport *
from engine.scan cimport rota_segment_header_crc
from engine.status cimport *

from rota._core.manifest cimport manifest_refresh
from rota._core.reader cimport log_file, log_reader, reader_bytes, reader_close, reader_find, reader_open
from rota._core.segment cimport SEGMENT_NAME_BYTES, segment_create, segment_name
from rota._core.walk cimport log_position, walk_to_end

cdef const char *NAME = b"failed"

cdef enum:
    ERRNO_NOENT = 2
    COPY_BYTES = 1 << 18


# --- the mark --------------------------------------------------------------------------------------------------------


cdef uint32_t mark_crc(const rota_failed_mark *mark) noexcept nogil:
    cdef rota_failed_mark copy = mark[0]
    copy.crc = 0
    return rota_crc32c(0, &copy, sizeof(copy))


cdef int failed_create(rota_handle *h, int os_errno, rota_error *error) noexcept nogil:
    """Best effort on a disk that has just failed: the file's existence is what counts."""
    cdef rota_failed_mark mark
    cdef int status
    cdef int fd = h.os.open(h.os, h.directory_fd, NAME, ROTA_OPEN_WRITE | ROTA_OPEN_CREATE, 0o600)
    if fd < 0:
        return rota_fail(error, fd, NAME, 0, b"the mark of a failed sync cannot be created")
    memset(&mark, 0, sizeof(mark))
    mark.magic = ROTA_FAILED_MAGIC
    h.os.boot_id(h.os, mark.boot_id)
    mark.time_ns = h.os.clock_wall_ns(h.os)
    mark.durable_lsn = h.control.durable_lsn if h.control != NULL else 0
    mark.process_id = <uint32_t>h.os.process_id(h.os)
    mark.os_errno = <uint32_t>os_errno
    mark.crc = mark_crc(&mark)
    status = h.os.pwrite(h.os, fd, &mark, sizeof(mark), 0)
    if status == 0:
        status = h.os.sync_metadata(h.os, fd)
    h.os.close(h.os, fd)
    if status == 0:
        status = h.os.sync_directory(h.os, h.directory_fd)
    rota_failpoint(h.failpoints, ROTA_AT_FAILED_FILE)
    if status != 0:
        return rota_fail(error, status, NAME, 0, b"the mark of a failed sync cannot be made durable")
    return ROTA_OK


cdef int failed_stands(rota_handle *h, int *state, rota_error *error) noexcept nogil:
    """Whether a mark lies in the directory, and whether its boot is this one."""
    cdef rota_failed_mark mark
    cdef uint8_t boot[16]
    cdef int status
    cdef int fd = h.os.open(h.os, h.directory_fd, NAME, ROTA_OPEN_READ, 0)
    state[0] = FAILED_NOT
    if fd == -ERRNO_NOENT:
        return ROTA_OK
    state[0] = FAILED_THIS_BOOT
    if fd < 0:
        return rota_fail(error, fd, NAME, 0, b"the mark of a failed sync cannot be opened")
    status = h.os.pread(h.os, fd, &mark, sizeof(mark), 0)
    h.os.close(h.os, fd)
    if status != 0 or mark.magic != ROTA_FAILED_MAGIC or mark.crc != mark_crc(&mark):
        return ROTA_OK
    if h.os.boot_id(h.os, boot) == 0 and memcmp(boot, mark.boot_id, 16) != 0:
        state[0] = FAILED_OTHER_BOOT
    return ROTA_OK


cdef int failed_check(rota_handle *h, rota_error *error) noexcept nogil:
    """Refuse while a process that saw the failure, or may not have seen it yet, holds its slot."""
    cdef char names[120]
    cdef uint32_t slot
    cdef int state = 0
    cdef int length = 0
    cdef int holders = 0
    cdef int status = failed_stands(h, &state, error)
    if status != ROTA_OK or state != FAILED_THIS_BOOT:
        return status
    for slot in range(ROTA_PROCESS_COUNT_MAX):
        status = h.os.test_range(h.os, h.lock_fd, 1 + slot, 1)
        if status < 0:
            return rota_fail(error, status, b"lock", 1 + slot, b"the lock of a process slot cannot be tested")
        if status == 0:
            continue
        holders += 1
        if h.control != NULL and length < 100:
            length += snprintf(names + length, 120 - length, b" %u", h.control.processes[slot].pid)
    if holders == 0:
        return ROTA_OK
    names[length] = 0
    return rota_fail(error, ROTA_IN_USE, NAME, 0, b"a sync failed; %d processes must close first:%s", holders, names)


# --- reading past the cache ------------------------------------------------------------------------------------------


cdef void drop_caches(rota_handle *h, log_reader *reader) noexcept nogil:
    """Nobody maps the files now, so their clean pages go; what stays is found by reading past them."""
    cdef char name[SEGMENT_NAME_BYTES]
    cdef uint32_t file
    cdef int fd
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        if not reader.files[file].present:
            continue
        segment_name(file, name)
        fd = h.os.open(h.os, h.directory_fd, name, ROTA_OPEN_READ, 0)
        if fd >= 0:
            h.os.drop_cache(h.os, fd)
            h.os.close(h.os, fd)


cdef bint disk_agrees(rota_handle *h, uint32_t file, uint64_t start, uint64_t end) noexcept nogil:
    """Whether the disk, read past the cache, has what this process sees of a file from `start` up to `end`.

    Where there is no reading past the cache the answer is no.
    """
    cdef char name[SEGMENT_NAME_BYTES]
    cdef uint8_t *disk
    cdef uint8_t *seen
    cdef uint64_t offset = start - start % ROTA_DIRECT_ALIGNMENT, size, lead
    cdef int status = 0
    cdef int fd
    segment_name(file, name)
    fd = h.os.open(h.os, h.directory_fd, name, ROTA_OPEN_DIRECT, 0)
    if fd < 0:
        return False
    disk = <uint8_t *>h.os.memory_allocate(h.os, ROTA_DIRECT_ALIGNMENT, COPY_BYTES)
    seen = <uint8_t *>h.os.memory_allocate(h.os, ROTA_DIRECT_ALIGNMENT, COPY_BYTES)
    if disk == NULL or seen == NULL:
        status = -1
    while status == 0 and offset < end:
        size = end - offset if end - offset < COPY_BYTES else COPY_BYTES
        lead = start - offset if start > offset else 0
        status = h.os.pread(h.os, fd, disk, rota_round_up(size, ROTA_DIRECT_ALIGNMENT), offset)
        if status == 0:
            status = h.os.copy_guarded(h.os, seen, h.segments[file].base + offset, size)
        if status == 0:
            status = memcmp(disk + lead, seen + lead, size - lead)
        offset += size
    h.os.memory_free(h.os, disk)
    h.os.memory_free(h.os, seen)
    h.os.close(h.os, fd)
    return status == 0


cdef int copy_bytes(log_reader *reader, uint32_t source, int fd, uint64_t end, rota_error *error) noexcept nogil:
    """The commits of one file up to the offset `end`."""
    cdef rota_handle *h = reader.h
    cdef const uint8_t *bytes = NULL
    cdef uint64_t offset = ROTA_SEGMENT_HEADER_SIZE
    cdef uint64_t size
    cdef int status
    while offset < end:
        size = COPY_BYTES if end - offset > COPY_BYTES else end - offset
        status = reader_bytes(reader, source, offset, size, &bytes, error)
        if status != ROTA_OK:
            return status
        status = h.os.pwrite(h.os, fd, bytes, size, offset)
        if status != 0:
            return rota_fail(error, status, NULL, offset, b"a fresh segment cannot be written")
        offset += size
    return ROTA_OK


cdef int sync_fresh(rota_handle *h, int fd, const char *name, rota_error *error) noexcept nogil:
    cdef int status = h.os.sync_metadata(h.os, fd)
    if status != 0:
        return rota_fail(error, status, name, 0, b"a fresh segment cannot be synced")
    return ROTA_OK


cdef int copy_segment(log_reader *reader, uint32_t source, uint32_t target, uint32_t epoch, uint64_t end,
                      rota_error *error) noexcept nogil:
    """A fresh file with the valid prefix of another; the header comes last."""
    cdef char name[SEGMENT_NAME_BYTES]
    cdef rota_segment_header header
    cdef rota_handle *h = reader.h
    cdef int fd
    cdef int status = segment_create(h, target, True, error)
    if status != ROTA_OK:
        return status
    segment_name(target, name)
    fd = h.os.open(h.os, h.directory_fd, name, ROTA_OPEN_WRITE, 0)
    if fd < 0:
        return rota_fail(error, fd, name, 0, b"a fresh segment cannot be opened")
    memset(&header, 0, sizeof(header))
    header.magic = ROTA_SEGMENT_MAGIC
    header.version = ROTA_FORMAT_VERSION
    header.byte_order = ROTA_BYTE_ORDER
    header.file_number = target
    memcpy(header.uuid, h.uuid, 16)
    header.first_lsn = reader.files[source].first_lsn
    header.epoch = epoch
    header.generation = reader.files[source].generation + 1
    header.segment_size = h.segment_size
    header.created_at_ns = h.os.clock_wall_ns(h.os)
    header.crc = rota_segment_header_crc(h.salt_crc, &header)
    status = copy_bytes(reader, source, fd, end, error)
    if status == ROTA_OK:
        status = sync_fresh(h, fd, name, error)
    if status == ROTA_OK:
        status = h.os.pwrite(h.os, fd, &header, sizeof(header), 0)
        if status != 0:
            status = rota_fail(error, status, name, 0, b"a fresh segment cannot be written")
    if status == ROTA_OK:
        status = sync_fresh(h, fd, name, error)
    h.os.close(h.os, fd)
    return status


cdef uint32_t unused_number(log_reader *reader, uint32_t start) noexcept nogil:
    while start < ROTA_SEGMENT_COUNT_MAX and reader.files[start].present:
        start += 1
    return start


cdef int copy_prefix(log_reader *reader, const log_position *end, rota_error *error) noexcept nogil:
    """Every segment from the one with the last proven position to the one with the end."""
    cdef uint64_t size = reader.h.segment_size
    cdef uint64_t proven = end.durable_lsn
    cdef uint64_t first
    cdef uint32_t i, source, target = 0
    cdef uint32_t epoch = end.epoch
    cdef int status
    if end.commits == 0:
        return ROTA_OK
    if proven >= end.lsn:
        proven = end.lsn - 1
    for i in range(reader.order_count):
        if reader.files[reader.order[i]].epoch > epoch:
            epoch = reader.files[reader.order[i]].epoch
    for i in range(reader.h.manifest.epoch_count):
        if reader.h.manifest.epochs[i].epoch > epoch:
            epoch = reader.h.manifest.epochs[i].epoch
    for i in range(reader.order_count):
        source = reader.order[i]
        first = reader.files[source].first_lsn
        if first - ROTA_SEGMENT_HEADER_SIZE + size <= proven or first >= end.lsn:
            continue
        target = unused_number(reader, target)
        if target == ROTA_SEGMENT_COUNT_MAX:
            return rota_fail(error, ROTA_FULL, NAME, 0, b"no number is left for a fresh segment")
        status = copy_segment(reader, source, target, epoch + 1,
                              size if end.lsn - first >= size - ROTA_SEGMENT_HEADER_SIZE else end.lsn % size, error)
        if status != ROTA_OK:
            return status
        target += 1
    return ROTA_OK


cdef int failed_refresh(rota_handle *h, rota_error *error) noexcept nogil:
    """After this an ordinary recovery sees what the disk had, in files whose pages the disk has."""
    cdef log_reader reader
    cdef log_position end
    cdef int status = reader_open(&reader, h, True, error)
    if status == ROTA_OK:
        drop_caches(h, &reader)
        status = walk_to_end(&reader, &end, error)
    if status == ROTA_OK:
        status = copy_prefix(&reader, &end, error)
    reader_close(&reader)
    return manifest_refresh(h, error) if status == ROTA_OK else status


cdef int set_aside(rota_handle *h, uint32_t file, rota_error *error) noexcept nogil:
    cdef char name[SEGMENT_NAME_BYTES]
    cdef char aside[SEGMENT_NAME_BYTES]
    cdef int status
    segment_name(file, name)
    snprintf(aside, SEGMENT_NAME_BYTES, b"seg.%06u.failed", file)
    status = h.os.rename(h.os, h.directory_fd, name, aside)
    if status != 0:
        return rota_fail(error, status, name, 0, b"a segment cannot be set aside")
    return ROTA_OK


cdef int failed_finish(rota_handle *h, bint replaced, rota_error *error) noexcept nogil:
    """Set aside the files that fresh ones replaced, if any were, then remove the mark."""
    cdef log_reader reader
    cdef log_file *entry
    cdef uint32_t file
    cdef int found
    cdef int status = reader_open(&reader, h, False, error)
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        if status != ROTA_OK or not replaced:
            break
        entry = &reader.files[file]
        found = reader_find(&reader, entry.first_lsn) if entry.first_lsn != 0 else -1
        if entry.present and found >= 0 and found != <int>file:
            status = set_aside(h, file, error)
    reader_close(&reader)
    if status != ROTA_OK:
        return status
    h.os.sync_directory(h.os, h.directory_fd)
    status = h.os.unlink(h.os, h.directory_fd, NAME)
    if status == 0:
        status = h.os.sync_directory(h.os, h.directory_fd)
    if status != 0 and status != -ERRNO_NOENT:
        return rota_fail(error, status, NAME, 0, b"the mark of a failed sync cannot be removed")
    return ROTA_OK
