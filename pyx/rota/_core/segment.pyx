"""The segment files: equal in size, written once with zeros, mapped whole, used again and again.

What holds:

1. A file appears under its name only when it has its whole size, its blocks are allocated and it was synced; the
   directory is synced after that.  A creation that was cut short leaves a name ending in .new, which anyone may remove.
2. Zeros are written in steps of 4 KiB: larger writes make large folios, and one changed byte would sync all of one.
3. A mapping, once made, stays until the handle closes, and so does its descriptor: a write-back error is reported
   once for each open description, and must not go unseen.
4. An entry of h.segments is published by its base; the descriptor is written before.  Threads that map the same file
   at once agree by compare-and-swap on the descriptor, and the losers undo what they did.
5. Every access to a mapping here goes through the guard: a truncated file is an error, not the end of the process.

    first 96 bytes of a file   rota_segment_header, zero when the file was never used
    up to 4096                 zero
    from 4096                  commits
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset, strlen, strncmp

from engine.atomics cimport rota_compare_exchange_u32, rota_pause, rota_store_release_u64
from engine.failpoint cimport *
from engine.format cimport *
from engine.frame cimport ROTA_SCAN_EMPTY, ROTA_SCAN_OK, ROTA_SCAN_VERSION, rota_scan_text
from engine.handle cimport rota_handle, rota_segment_map
from engine.platform cimport *
from engine.scan cimport rota_segment_header_check, rota_segment_header_crc
from engine.status cimport *

cdef enum:
    ERRNO_NOENT = 2
    ERRNO_EXIST = 17
    NAME_DIGITS = 6
    NAME_LENGTH = 10  # seg.NNNNNN


cdef void segment_table_clear(rota_segment_map *segments) noexcept nogil:
    cdef uint32_t file
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        segments[file].base = NULL
        segments[file].fd = -1


cdef void segment_name(uint32_t file, char *name) noexcept nogil:
    snprintf(name, SEGMENT_NAME_BYTES, b"seg.%06u", file)


cdef void segment_leftover_name(uint32_t file, char *name) noexcept nogil:
    snprintf(name, SEGMENT_NAME_BYTES, b"seg.%06u.new", file)


# --- creation --------------------------------------------------------------------------------------------------------


cdef int fill_new(rota_handle *h, int fd, const char *name, bint zero, rota_error *error) noexcept nogil:
    """Give the file its blocks, its zeros and its durability, still under its temporary name."""
    cdef int status = h.os.allocate(h.os, fd, 0, h.segment_size)
    if status != 0:
        return rota_fail(error, status, name, 0, b"a segment cannot be allocated")
    if zero:
        status = h.os.zero(h.os, fd, 0, h.segment_size)
        if status != 0:
            return rota_fail(error, status, name, 0, b"a segment cannot be filled with zeros")
    rota_failpoint(h.failpoints, ROTA_AT_SEGMENT_ZEROED)
    status = h.os.sync_metadata(h.os, fd)
    if status != 0:
        return rota_fail(error, status, name, 0, b"a new segment cannot be synced")
    return ROTA_OK


cdef int adopt(rota_handle *h, const char *name, rota_error *error) noexcept nogil:
    """The name is taken: by a creator that died before it could tell, or by a file that is in use."""
    cdef uint8_t page[4096]
    cdef rota_facts facts
    cdef uint32_t i
    cdef bint unused
    cdef int status
    cdef int fd = h.os.open(h.os, h.directory_fd, name, ROTA_OPEN_WRITE, 0)
    if fd < 0:
        return rota_fail(error, fd, name, 0, b"a segment cannot be opened")
    status = h.os.facts(h.os, fd, &facts)
    unused = status == 0 and facts.regular and facts.size == h.segment_size
    if unused:
        status = h.os.pread(h.os, fd, page, sizeof(page), 0)
        for i in range(sizeof(page)):
            unused = unused and status == 0 and page[i] == 0
    if unused:
        status = h.os.sync_metadata(h.os, fd)
    h.os.close(h.os, fd)
    if status != 0:
        return rota_fail(error, status, name, 0, b"a segment cannot be taken over")
    if not unused:
        return rota_fail(error, ROTA_IN_USE, name, 0, b"a segment of that number exists and is not unused")
    return ROTA_OK


cdef int segment_create(rota_handle *h, uint32_t file, bint zero, rota_error *error) noexcept nogil:
    """Make the file and make it durable.  The caller holds the grow lock or the gate, and enters it in the table."""
    cdef char name[SEGMENT_NAME_BYTES]
    cdef char temporary[SEGMENT_NAME_BYTES]
    cdef int fd, status
    if file >= ROTA_SEGMENT_COUNT_MAX:
        return rota_fail(error, ROTA_STATE, NULL, file, b"there is no segment of that number")
    segment_name(file, name)
    segment_leftover_name(file, temporary)
    h.os.unlink(h.os, h.directory_fd, temporary)
    fd = h.os.open(h.os, h.directory_fd, temporary, ROTA_OPEN_WRITE | ROTA_OPEN_CREATE | ROTA_OPEN_EXCLUSIVE, 0o600)
    if fd < 0:
        return rota_fail(error, fd, temporary, 0, b"a segment cannot be created")
    rota_failpoint(h.failpoints, ROTA_AT_SEGMENT_CREATED)
    status = fill_new(h, fd, temporary, zero, error)
    h.os.close(h.os, fd)
    if status == ROTA_OK:
        status = h.os.rename_new(h.os, h.directory_fd, temporary, name)
        if status == -ERRNO_EXIST:
            h.os.unlink(h.os, h.directory_fd, temporary)
            status = adopt(h, name, error)
        elif status != 0:
            status = rota_fail(error, status, temporary, 0, b"a segment cannot be given its name")
    if status != ROTA_OK:
        h.os.unlink(h.os, h.directory_fd, temporary)
        return status
    rota_failpoint(h.failpoints, ROTA_AT_SEGMENT_RENAMED)
    status = h.os.sync_directory(h.os, h.directory_fd)
    if status != 0:
        return rota_fail(error, status, name, 0, b"the directory cannot be synced")
    return ROTA_OK


# --- mapping ---------------------------------------------------------------------------------------------------------


cdef int open_checked(rota_handle *h, const char *name, rota_error *error) noexcept nogil:
    """A descriptor above 0 of a regular file of the right size, or a status."""
    cdef rota_facts facts
    cdef int again, status
    cdef int flags = ROTA_OPEN_READ if h.read_only else ROTA_OPEN_WRITE
    cdef int fd = h.os.open(h.os, h.directory_fd, name, flags, 0)
    if fd == 0:  # a process without standard input: 0 would look like an entry that nobody wrote
        again = h.os.open(h.os, h.directory_fd, name, flags, 0)
        h.os.close(h.os, fd)
        fd = again
    if fd == -ERRNO_NOENT:
        return rota_fail(error, ROTA_CORRUPT, name, 0, b"a segment is missing")
    if fd < 0:
        return rota_fail(error, fd, name, 0, b"a segment cannot be opened")
    status = h.os.facts(h.os, fd, &facts)
    if status == 0 and facts.regular and facts.size == h.segment_size:
        return fd
    h.os.close(h.os, fd)
    if status != 0:
        return rota_fail(error, status, name, 0, b"a segment cannot be examined")
    if not facts.regular:
        return rota_fail(error, ROTA_CORRUPT, name, 0, b"a segment is not a regular file")
    return rota_fail_compared(error, ROTA_CORRUPT, name, 0, h.segment_size, facts.size, b"a segment has another size")


cdef bint claim_entry(rota_segment_map *entry, int fd) noexcept nogil:
    """Store the descriptor if nobody did; -1 and 0 both mean nobody."""
    cdef uint32_t expected = <uint32_t>-1
    if rota_compare_exchange_u32(<uint32_t *>&entry.fd, &expected, <uint32_t>fd):
        return True
    return expected == 0 and rota_compare_exchange_u32(<uint32_t *>&entry.fd, &expected, <uint32_t>fd)


cdef int segment_map(rota_handle *h, uint32_t file, rota_error *error) noexcept nogil:
    """Map the whole file, unless this process has it mapped."""
    cdef char name[SEGMENT_NAME_BYTES]
    cdef void *address = NULL
    cdef rota_segment_map *entry
    cdef int fd, status
    if file >= ROTA_SEGMENT_COUNT_MAX:
        return rota_fail(error, ROTA_CORRUPT, NULL, file, b"there is no segment of that number")
    if segment_base(h, file) != NULL:
        return ROTA_OK
    entry = &h.segments[file]
    segment_name(file, name)
    fd = open_checked(h, name, error)
    if fd < 0:
        return fd
    status = h.os.map(h.os, fd, h.segment_size, not h.read_only, &address)
    if status != 0:
        h.os.close(h.os, fd)
        return rota_fail(error, status, name, 0, b"a segment cannot be mapped")
    h.os.dont_fork(h.os, address, h.segment_size)  # a child that could write here would break what it inherited
    if claim_entry(entry, fd):
        rota_store_release_u64(<uint64_t *>&entry.base, <uint64_t>address)
        return ROTA_OK
    h.os.unmap(h.os, address, h.segment_size)
    h.os.close(h.os, fd)
    while segment_base(h, file) == NULL:  # the winner is between its two stores
        rota_pause()
    return ROTA_OK


cdef void segment_unmap_all(rota_handle *h) noexcept nogil:
    """Give back every mapping and descriptor."""
    cdef uint32_t file
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        if h.segments[file].base != NULL:
            h.os.unmap(h.os, h.segments[file].base, h.segment_size)
            h.os.close(h.os, h.segments[file].fd)
    segment_table_clear(h.segments)


# --- header and sync -------------------------------------------------------------------------------------------------


cdef int segment_header_read(rota_handle *h, uint32_t file, rota_segment_header *out,
                             rota_error *error) noexcept nogil:
    """The checked header, copied.  A file that was never used has first_lsn 0 and generation 0."""
    cdef char name[SEGMENT_NAME_BYTES]
    cdef int result
    cdef int status = segment_map(h, file, error)
    if status != ROTA_OK:
        return status
    segment_name(file, name)
    status = h.os.copy_guarded(h.os, out, h.segments[file].base, sizeof(rota_segment_header))
    if status != ROTA_OK:
        return rota_fail(error, status, name, 0, b"the header of a segment cannot be read")
    result = rota_segment_header_check(out, h.salt_crc, h.uuid, h.segment_size)
    if result == ROTA_SCAN_OK and out.file_number == file:
        return ROTA_OK
    if result == ROTA_SCAN_EMPTY:
        memset(out, 0, sizeof(rota_segment_header))
        return ROTA_OK
    if result == ROTA_SCAN_OK:
        return rota_fail_compared(error, ROTA_CORRUPT, name, 0, file, out.file_number,
                                  b"the header of a segment belongs to another file")
    return rota_fail(error, ROTA_VERSION if result == ROTA_SCAN_VERSION else ROTA_CORRUPT, name, 0,
                     b"the header of a segment: %s", rota_scan_text(result))


cdef int segment_header_write(rota_handle *h, uint32_t file, uint64_t first_lsn, uint32_t epoch, uint32_t sub_epoch,
                              uint64_t generation, rota_error *error) noexcept nogil:
    """Begin a turn of the file.  Not durable before segment_sync, and nothing behind it is."""
    cdef char name[SEGMENT_NAME_BYTES]
    cdef rota_segment_header header
    cdef int status = segment_map(h, file, error)
    if status != ROTA_OK:
        return status
    memset(&header, 0, sizeof(header))
    header.magic = ROTA_SEGMENT_MAGIC
    header.version = ROTA_FORMAT_VERSION
    header.byte_order = ROTA_BYTE_ORDER
    header.file_number = file
    memcpy(header.uuid, h.uuid, 16)
    header.first_lsn = first_lsn
    header.epoch = epoch
    header.sub_epoch = sub_epoch
    header.generation = generation
    header.segment_size = h.segment_size
    header.created_at_ns = h.os.clock_wall_coarse_ns(h.os)
    header.crc = rota_segment_header_crc(h.salt_crc, &header)
    rota_record_store(h.os, h.segments[file].fd, 0, &header, sizeof(header))
    status = h.os.copy_guarded(h.os, h.segments[file].base, &header, sizeof(header))
    if status != ROTA_OK:
        segment_name(file, name)
        return rota_fail(error, status, name, 0, b"the header of a segment cannot be written")
    rota_failpoint(h.failpoints, ROTA_AT_SEGMENT_HEADER)
    return ROTA_OK


cdef int segment_sync(rota_handle *h, uint32_t file, rota_error *error) noexcept nogil:
    """Make durable what was stored before the call.  A file that cannot be opened is no failed sync."""
    cdef char name[SEGMENT_NAME_BYTES]
    cdef int status = segment_map(h, file, error)
    if status != ROTA_OK:
        return status
    status = h.os.sync(h.os, h.segments[file].fd)
    if status == 0:
        return ROTA_OK
    segment_name(file, name)
    rota_fail(error, ROTA_LOG_FAILED, name, 0, b"a sync of the log failed")
    if error != NULL:
        error.os_errno = -status
    return ROTA_LOG_FAILED


# --- directory -------------------------------------------------------------------------------------------------------


cdef int note_name(void *context, const char *name) noexcept nogil:
    """Mark one name of the directory in the array of found files."""
    cdef uint8_t *found = <uint8_t *>context
    cdef size_t length = strlen(name)
    cdef int i
    cdef uint32_t number = 0
    if length < NAME_LENGTH or strncmp(name, b"seg.", NAME_LENGTH - NAME_DIGITS) != 0:
        return 0
    for i in range(NAME_LENGTH - NAME_DIGITS, NAME_LENGTH):
        if name[i] < 48 or name[i] > 57:
            return 0
        number = number * 10 + <uint32_t>(name[i] - 48)
    if number >= ROTA_SEGMENT_COUNT_MAX:
        return 0
    if length == NAME_LENGTH:
        found[number] |= SEGMENT_PRESENT
    elif length == NAME_LENGTH + 4 and strncmp(name + NAME_LENGTH, b".new", 4) == 0:
        found[number] |= SEGMENT_LEFTOVER
    return 0


cdef int segment_list(rota_handle *h, uint8_t *found, rota_error *error) noexcept nogil:
    """found: ROTA_SEGMENT_COUNT_MAX bytes, one for each number."""
    cdef int status
    memset(found, 0, ROTA_SEGMENT_COUNT_MAX)
    status = h.os.list_directory(h.os, h.directory_fd, note_name, found)
    if status != 0:
        return rota_fail(error, status, NULL, 0, b"the directory cannot be listed")
    return ROTA_OK
