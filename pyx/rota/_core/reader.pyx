"""Reading segment files: private copies of their bytes, and which of them count.

What holds:

1. Files are read, not mapped: a copy cannot fault and cannot change under a check.  A page that the disk does not give
   is taken for bytes that match no checksum.
2. One descriptor and one window are held, whatever the number and size of the files; the window grows to the longest
   commit that was asked for.
3. A file whose header cannot be trusted is listed, and holds no position.  One of another size is refused.
4. Of two files with one first LSN the higher (epoch, sub-epoch) counts, then the higher generation.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from engine.format cimport *
from engine.frame cimport ROTA_SCAN_FIELD, ROTA_SCAN_OK, ROTA_SCAN_VERSION
from engine.handle cimport rota_handle
from engine.platform cimport *
from engine.scan cimport rota_segment_header_check
from engine.status cimport *

from rota._core.segment cimport SEGMENT_LEFTOVER, SEGMENT_NAME_BYTES, SEGMENT_PRESENT, segment_list, segment_name

cdef enum:
    WINDOW_BYTES = 1 << 20
    STEP_BYTES = 4096  # what is read again by itself when a larger read fails
    ERRNO_INVAL = 22


cdef void close_file(log_reader *reader) noexcept nogil:
    if reader.fd >= 0:
        reader.h.os.close(reader.h.os, reader.fd)
    reader.fd = -1
    reader.fd_file = NO_FILE
    reader.window_length = 0


cdef int open_file(log_reader *reader, uint32_t file, rota_error *error) noexcept nogil:
    """Make it the file that reads go to."""
    cdef char name[SEGMENT_NAME_BYTES]
    cdef rota_facts facts
    cdef rota_handle *h = reader.h
    cdef int status
    if reader.fd >= 0 and reader.fd_file == file:
        return ROTA_OK
    close_file(reader)
    segment_name(file, name)
    reader.fd = h.os.open(h.os, h.directory_fd, name, ROTA_OPEN_DIRECT if reader.direct else ROTA_OPEN_READ, 0)
    if reader.fd == -ERRNO_INVAL and reader.direct:  # a file system without direct reads is memory
        reader.fd = h.os.open(h.os, h.directory_fd, name, ROTA_OPEN_READ, 0)
    if reader.fd < 0:
        return rota_fail(error, reader.fd, name, 0, b"a segment cannot be opened")
    reader.fd_file = file
    status = h.os.facts(h.os, reader.fd, &facts)
    if status != 0:
        return rota_fail(error, status, name, 0, b"a segment cannot be examined")
    if not facts.regular or facts.size != h.segment_size:
        return rota_fail_compared(error, ROTA_CORRUPT, name, 0, h.segment_size, facts.size,
                                  b"a segment is not a regular file of the right size")
    return ROTA_OK


cdef int grow_window(log_reader *reader, uint64_t needed, rota_error *error) noexcept nogil:
    cdef uint64_t size = rota_round_up(needed, WINDOW_BYTES)
    if needed <= reader.window_size:
        return ROTA_OK
    reader.h.os.memory_free(reader.h.os, reader.window)
    reader.window_size = 0
    reader.window_length = 0
    reader.window = <uint8_t *>reader.h.os.memory_allocate(reader.h.os, STEP_BYTES, size)
    if reader.window == NULL:
        return rota_fail(error, ROTA_NO_MEMORY, NULL, 0, b"no memory for a part of the log")
    reader.window_size = size
    return ROTA_OK


cdef void fill_window(log_reader *reader, uint64_t offset, uint64_t length) noexcept nogil:
    """Read; where that fails, page by page, and what the disk does not give becomes bytes that match nothing."""
    cdef rota_handle *h = reader.h
    cdef uint64_t at = 0
    reader.fills += 1
    if h.os.pread(h.os, reader.fd, reader.window, length, offset) == 0:
        return
    while at < length:
        if h.os.pread(h.os, reader.fd, reader.window + at, STEP_BYTES, offset + at) != 0:
            memset(reader.window + at, 0xff, STEP_BYTES)
            reader.unreadable_pages += 1
        at += STEP_BYTES


cdef int reader_bytes(log_reader *reader, uint32_t file, uint64_t offset, uint64_t length, const uint8_t **bytes,
                      rota_error *error) noexcept nogil:
    """offset and length lie in the file: the caller has compared them with the segment size."""
    cdef uint64_t start = offset - offset % STEP_BYTES
    cdef uint64_t size
    cdef int status = open_file(reader, file, error)
    if status != ROTA_OK:
        return status
    if offset < reader.window_offset or offset + length > reader.window_offset + reader.window_length:
        size = rota_round_up(offset + length - start, STEP_BYTES)
        if size < WINDOW_BYTES:
            size = WINDOW_BYTES
        if size > reader.h.segment_size - start:
            size = reader.h.segment_size - start
        status = grow_window(reader, size, error)
        if status != ROTA_OK:
            return status
        fill_window(reader, start, size)
        reader.window_offset = start
        reader.window_length = size
        reader.scanned_bytes += size
    bytes[0] = reader.window + (offset - reader.window_offset)
    return ROTA_OK


cdef int read_header(log_reader *reader, uint32_t file, rota_error *error) noexcept nogil:
    """Note what the header of one file says; one that cannot be trusted is noted as such."""
    cdef rota_segment_header header
    cdef log_file *entry = &reader.files[file]
    cdef char name[SEGMENT_NAME_BYTES]
    cdef int status = open_file(reader, file, error)
    if status != ROTA_OK:
        return status
    status = grow_window(reader, STEP_BYTES, error)
    if status != ROTA_OK:
        return status
    fill_window(reader, 0, STEP_BYTES)  # one page: the rest of most files is never looked at
    memcpy(&header, reader.window, sizeof(header))
    entry.header = rota_segment_header_check(&header, reader.h.salt_crc, reader.h.uuid, reader.h.segment_size)
    if entry.header == ROTA_SCAN_OK and header.file_number != file:
        entry.header = ROTA_SCAN_FIELD
    if entry.header == ROTA_SCAN_VERSION:
        segment_name(file, name)
        return rota_fail(error, ROTA_VERSION, name, 0, b"a segment was written by a newer version")
    if entry.header == ROTA_SCAN_OK:
        entry.first_lsn = header.first_lsn
        entry.generation = header.generation
        entry.epoch = header.epoch
        entry.sub_epoch = header.sub_epoch
    return ROTA_OK


cdef bint outranks(const log_file *one, const log_file *other) noexcept nogil:
    """Both begin at the same position; which of them counts."""
    if one.epoch != other.epoch:
        return one.epoch > other.epoch
    if one.sub_epoch != other.sub_epoch:
        return one.sub_epoch > other.sub_epoch
    if one.generation != other.generation:
        return one.generation > other.generation
    return one < other  # the lower number


cdef void sift(const log_file *files, uint32_t *order, uint32_t start, uint32_t count) noexcept nogil:
    """Heap sort's step: the file with the highest position goes to the top."""
    cdef uint32_t child, kept
    while 2 * start + 1 < count:
        child = 2 * start + 1
        if child + 1 < count and files[order[child]].first_lsn < files[order[child + 1]].first_lsn:
            child += 1
        if files[order[start]].first_lsn >= files[order[child]].first_lsn:
            return
        kept = order[start]
        order[start] = order[child]
        order[child] = kept
        start = child


cdef void put_in_order(log_reader *reader) noexcept nogil:
    """Sort the used files by position and keep one for each."""
    cdef uint32_t i, file, kept, count = 0
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        if reader.files[file].present and reader.files[file].first_lsn != 0:
            reader.order[count] = file
            count += 1
    for i in range(count // 2):
        sift(reader.files, reader.order, count // 2 - 1 - i, count)
    for i in range(count, 1, -1):
        kept = reader.order[i - 1]
        reader.order[i - 1] = reader.order[0]
        reader.order[0] = kept
        sift(reader.files, reader.order, 0, i - 1)
    reader.order_count = 0
    for i in range(count):
        file = reader.order[i]
        if reader.order_count != 0:
            kept = reader.order[reader.order_count - 1]
            if reader.files[kept].first_lsn == reader.files[file].first_lsn:
                if outranks(&reader.files[file], &reader.files[kept]):
                    reader.files[kept].chosen = 0
                    reader.files[file].chosen = 1
                    reader.order[reader.order_count - 1] = file
                continue
        reader.files[file].chosen = 1
        reader.order[reader.order_count] = file
        reader.order_count += 1


cdef int reader_open(log_reader *reader, rota_handle *h, bint direct, rota_error *error) noexcept nogil:
    """The manifest of the handle was read.  After an error reader_close is still to be called."""
    cdef uint8_t found[4096]
    cdef uint32_t file
    cdef int status
    memset(reader, 0, sizeof(log_reader))
    reader.h = h
    reader.direct = direct
    reader.fd = -1
    reader.fd_file = NO_FILE
    reader.files = <log_file *>h.os.memory_allocate(h.os, 64, ROTA_SEGMENT_COUNT_MAX * sizeof(log_file))
    reader.order = <uint32_t *>h.os.memory_allocate(h.os, 64, ROTA_SEGMENT_COUNT_MAX * sizeof(uint32_t))
    if reader.files == NULL or reader.order == NULL:
        return rota_fail(error, ROTA_NO_MEMORY, NULL, 0, b"no memory for the list of segments")
    status = segment_list(h, found, error)
    if status != ROTA_OK:
        return status
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        reader.files[file].leftover = found[file] & SEGMENT_LEFTOVER
        if not found[file] & SEGMENT_PRESENT:
            continue
        reader.files[file].present = 1
        reader.present_count += 1
        status = read_header(reader, file, error)
        if status != ROTA_OK:
            return status
    close_file(reader)
    put_in_order(reader)
    return ROTA_OK


cdef void reader_close(log_reader *reader) noexcept nogil:
    """Give back what the reader holds; once."""
    if reader.h == NULL:
        return
    close_file(reader)
    reader.h.os.memory_free(reader.h.os, reader.window)
    reader.h.os.memory_free(reader.h.os, reader.files)
    reader.h.os.memory_free(reader.h.os, reader.order)
    memset(reader, 0, sizeof(log_reader))


cdef int reader_find(log_reader *reader, uint64_t lsn) noexcept nogil:
    """The number of the file that holds the position, or -1."""
    cdef uint64_t size = reader.h.segment_size
    cdef uint64_t first = lsn - lsn % size + ROTA_SEGMENT_HEADER_SIZE
    cdef uint32_t low = 0
    cdef uint32_t high = reader.order_count
    cdef uint32_t middle
    while low < high:
        middle = (low + high) // 2
        if reader.files[reader.order[middle]].first_lsn < first:
            low = middle + 1
        else:
            high = middle
    if low < reader.order_count and reader.files[reader.order[low]].first_lsn == first:
        return <int>reader.order[low]
    return -1
