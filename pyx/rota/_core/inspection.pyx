"""Looking at a repository without opening it: no lock, no mapping, no write.

What holds:

1. An Inspector reads private copies through the same functions as recovery, so both see the same log.
2. What it hands out are plain tuples and bytes; rota.inspection makes sense of them.
3. layout() and recovery_table() are what the documentation's tables are compared with.
"""

import os

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from engine.control cimport *
from engine.crc32c cimport rota_crc32c
from engine.format cimport *
from engine.frame cimport *
from engine.handle cimport rota_handle
from engine.layout cimport ROTA_LAYOUT_COUNT, rota_layout
from engine.platform cimport rota_platform
from engine.recovery cimport *
from engine.scan cimport *
from engine.status cimport *

from rota._core.manifest cimport manifest_create, manifest_read, manifest_write
from rota._core.platform cimport failpoints, table
from rota._core.reader cimport NO_FILE, log_file, reader_bytes, reader_close, reader_find, reader_open
from rota._core.recovery cimport recovery, recovery_find_end
from rota._core.segment cimport SEGMENT_NAME_BYTES, segment_create, segment_name
from rota._core.walk cimport *


class InspectionError(Exception):
    """What stopped the inspection: status name, file, offset, expected, found, detail, errno."""


cdef object raised(rota_error *error):
    return InspectionError(rota_status_name(error.status).decode(), error.file.decode("utf-8", "replace"),
                           error.offset, error.expected, error.found, error.detail.decode("utf-8", "replace"),
                           error.os_errno)


cdef tuple header_tuple(const rota_commit_header *header):
    return (header.lsn, header.length, header.flags, header.op_bytes, header.message_count, header.op_count,
            header.epoch, header.sub_epoch, header.previous_chain, header.durable_lsn, header.base_id, header.time_ns,
            header.token_generation, header.token_number)


cdef list frame_tuples(const uint8_t *commit, const rota_commit_header *header, uint32_t salt_crc):
    """(id, queue, priority, flags, body_length, attributes, offset of the body, result, place in the block) of each."""
    cdef rota_frame frame
    cdef rota_block_memory memory
    cdef uint32_t index
    cdef uint64_t place = rota_commit_directory_offset(header)
    cdef uint64_t data = rota_commit_data_offset(header)
    cdef int result
    cdef list found = []
    memset(&memory, 0, sizeof(memory))
    for index in range(header.message_count):
        rota_frame_load(commit, header, index, &frame)
        if not rota_frame_fits(&frame, place + index * sizeof(frame), data, header.length,
                               header.flags & ROTA_COMMIT_COPIES != 0):
            found.append((rota_frame_id(header, &frame, index), 0, 0, 0, 0, b"", 0, ROTA_SCAN_DIRECTORY, 0))
            continue
        result = rota_frame_check(commit, header, &frame, salt_crc, &memory)
        found.append((rota_frame_id(header, &frame, index), frame.queue, frame.priority, frame.flags,
                      frame.body_length, (commit + frame.offset)[:frame.attribute_bytes],
                      frame.offset + frame.attribute_bytes, result, frame.id if frame.flags & ROTA_FRAME_BLOCK else 0))
    return found


cdef list operation_tuples(const uint8_t *commit, const rota_commit_header *header):
    """(kind, detail, queue, id, a, b, extra) of each operation of a checked commit."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra = NULL
    cdef list found = []
    rota_op_begin(&cursor, commit, header)
    while rota_op_next(&cursor, &op, &extra):
        found.append((op.kind, op.detail, op.queue, op.id, op.a, op.b, extra[:op.extra_bytes]))
    return found


cdef int check(int status, rota_error *error) except -1:
    if status != ROTA_OK:
        raise raised(error)
    return 0


@cython.final
@cython.no_gc
cdef class Directory:
    """A handle with nothing shared behind it: the directory of a repository and its manifest."""

    def __cinit__(self, path):
        self.h = <rota_handle *>calloc(1, sizeof(rota_handle))
        if self.h == NULL:
            raise MemoryError
        self.h.directory_fd = -1
        self.h.manifest_fd = -1
        self.h.os = <rota_platform *>table()
        self.h.failpoints = failpoints()
        self.h.read_only = 1
        self.h.directory_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __dealloc__(self):
        if self.h == NULL:
            return
        if self.h.manifest_fd >= 0:
            self.h.os.close(self.h.os, self.h.manifest_fd)
        if self.h.directory_fd >= 0:
            self.h.os.close(self.h.os, self.h.directory_fd)
        free(self.h)

    cdef void take_manifest(self) noexcept:
        memcpy(self.h.uuid, self.h.manifest.uuid, 16)
        self.h.salt = self.h.manifest.salt
        self.h.salt_crc = rota_salt_seed(self.h.salt)
        self.h.segment_size = self.h.manifest.segment_size
        self.h.capacity = self.h.manifest.capacity

    def manifest(self):
        """The newest generation as a dictionary."""
        cdef rota_manifest_sector *found = &self.h.manifest
        return {
            "sequence": found.sequence, "uuid": found.uuid[:16], "salt": found.salt,
            "segment_size": found.segment_size, "capacity": found.capacity, "sync_unit": found.sync_unit,
            "epochs": [(found.epochs[i].epoch, found.epochs[i].start_lsn) for i in range(found.epoch_count)],
            "checkpoint": (found.checkpoint_begin, found.checkpoint_block, found.checkpoint_end),
            "next_id_floor": found.next_id_floor, "created_at_ns": found.created_at_ns,
            "compression": found.compression,
        }


@cython.final
@cython.no_gc
cdef class Inspector:
    """One look at the files of a repository, which may be open elsewhere."""

    def __cinit__(self, path):
        self.directory = Directory(path)
        self.h = self.directory.h
        check(manifest_read(self.h, &self.error), &self.error)
        self.directory.take_manifest()
        check(reader_open(&self.r.reader, self.h, False, &self.error), &self.error)
        walk_begin(&self.r.reader, &self.position)

    def __dealloc__(self):
        reader_close(&self.r.reader)

    def manifest(self):
        """The newest generation as a dictionary."""
        return self.directory.manifest()

    def files(self):
        """(number, first_lsn, epoch, sub_epoch, generation, result of the header's check, chosen) of each segment."""
        cdef log_file *entry
        cdef list found = []
        for file in range(ROTA_SEGMENT_COUNT_MAX):
            entry = &self.r.reader.files[file]
            if entry.present:
                found.append((file, entry.first_lsn, entry.epoch, entry.sub_epoch, entry.generation, entry.header,
                              bool(entry.chosen)))
        return found

    def judge(self):
        """(case number, refused, end, proven position, reason, file of the reason, where, InspectionError or None)."""
        cdef int status = recovery_find_end(&self.r, &self.error)
        if status != ROTA_OK and (self.r.row == NULL or self.r.row.action != ROTA_RECOVERY_REFUSE):
            raise raised(&self.error)
        self.position = self.r.end
        return (self.r.row.number, status != ROTA_OK, self.r.end.lsn,
                max(self.r.proven_lsn, self.r.beyond_durable), self.r.why.kind,
                self.r.why.file, self.r.why.lsn, raised(&self.error) if status != ROTA_OK else None)

    def restart(self):
        """Begin the walk where a recovery would."""
        walk_begin(&self.r.reader, &self.position)

    def follow(self, uint64_t lsn, uint64_t chain):
        """Go on behind a gap: the next commit is one at or after lsn with that predecessor."""
        self.position.lsn = lsn
        self.position.chain = chain
        self.position.epoch = 0
        self.position.sub_epoch = 0

    def step(self):
        """(file, offset, chain, header, operations, messages) of the next commit, or None at the end of the log."""
        cdef log_commit commit
        cdef log_end end
        cdef int status = walk_next(&self.r.reader, &self.position, &commit, &end, 0, &self.error)
        if status < 0:
            raise raised(&self.error)
        if status == 0:
            return None
        return (commit.file, commit.offset, self.position.chain, header_tuple(&commit.header),
                operation_tuples(commit.bytes, &commit.header),
                frame_tuples(commit.bytes, &commit.header, self.h.salt_crc))

    def where(self):
        """(position, chain id) behind the last step."""
        return self.position.lsn, self.position.chain

    def places(self):
        """Where the next commit may start."""
        cdef uint64_t size = self.h.segment_size
        cdef uint64_t lsn = self.position.lsn
        cdef uint64_t turn = lsn - lsn % size
        if lsn % size < ROTA_SEGMENT_HEADER_SIZE:
            return [turn + ROTA_SEGMENT_HEADER_SIZE]
        return [lsn, rota_round_up(lsn, self.h.manifest.sync_unit), turn + size + ROTA_SEGMENT_HEADER_SIZE]

    def file_of(self, uint64_t lsn):
        """The segment that holds a position, or None."""
        cdef int file = reader_find(&self.r.reader, lsn)
        return None if file < 0 else file

    def probe(self, uint32_t file, uint64_t offset):
        """(result, header or None, operations or None, messages or None, chain) of what lies there, trusted or not."""
        cdef rota_commit_header header
        cdef const uint8_t *bytes = NULL
        cdef uint64_t size = self.h.segment_size
        cdef int result
        if file >= ROTA_SEGMENT_COUNT_MAX or not self.r.reader.files[file].present or offset >= size:
            return ROTA_SCAN_SHORT, None, None, None, 0
        if size - offset < sizeof(header):
            return ROTA_SCAN_SHORT, None, None, None, 0
        check(reader_bytes(&self.r.reader, file, offset, sizeof(header), &bytes, &self.error), &self.error)
        result = rota_commit_check(bytes, size - offset, self.h.salt_crc, 0, &header)
        if result != ROTA_SCAN_OK:
            return result, None, None, None, 0
        if header.lsn % size != offset:
            return ROTA_SCAN_LSN, None, None, None, 0
        check(reader_bytes(&self.r.reader, file, offset, header.length, &bytes, &self.error), &self.error)
        result = rota_commit_meta_check(bytes, &header, self.h.salt_crc)
        return (result, header_tuple(&header), operation_tuples(bytes, &header) if result == ROTA_SCAN_OK else None,
                frame_tuples(bytes, &header, self.h.salt_crc), rota_commit_chain(self.h.salt, &header))

    def bytes_at(self, uint32_t file, uint64_t offset, uint64_t length):
        """A copy of some bytes of a segment."""
        cdef const uint8_t *bytes = NULL
        if file >= ROTA_SEGMENT_COUNT_MAX or not self.r.reader.files[file].present \
                or offset > self.h.segment_size or length > self.h.segment_size - offset:
            raise ValueError("outside the segment")
        check(reader_bytes(&self.r.reader, file, offset, length, &bytes, &self.error), &self.error)
        return bytes[:length]

    def epoch_at(self, uint64_t lsn):
        """The epoch that the manifest has for a position; 0 for one before the first that it lists."""
        return epoch_at(&self.h.manifest, lsn)


cdef void seal_block(uint8_t *commit, uint64_t offset, uint64_t length, uint32_t salt_crc) noexcept:
    """Sum one compressed block again; a place outside the commit is left to the check that follows."""
    cdef rota_block block
    if offset == 0 or offset + sizeof(block) > length:
        return
    memcpy(&block, commit + offset, sizeof(block))
    if block.stored_length > length - offset - sizeof(block):
        return
    block.crc = rota_crc32c(salt_crc, <uint8_t *>&block + 4, sizeof(block) - 4)
    block.crc = rota_crc32c(block.crc, commit + offset + sizeof(block), block.stored_length)
    memcpy(commit + offset, &block, sizeof(block))


@cython.final
@cython.no_gc
cdef class Builder:
    """A new repository directory whose log is written by repair: every byte comes from the caller, every sum is new."""

    def __cinit__(self, path, bytes uuid, uint64_t salt, uint64_t segment_size, uint64_t capacity, uint32_t sync_unit,
                  uint32_t compression, uint64_t created_at_ns):
        cdef rota_manifest_sector *fresh
        self.directory = Directory(path)
        self.h = self.directory.h
        fresh = &self.h.manifest
        self.h.read_only = 0
        memcpy(fresh.uuid, <const uint8_t *>uuid, 16 if len(uuid) == 16 else 0)
        fresh.salt = salt
        fresh.segment_size = segment_size
        fresh.capacity = capacity
        fresh.sync_unit = sync_unit
        fresh.compression = compression
        fresh.created_at_ns = created_at_ns
        fresh.next_id_floor = 1
        fresh.epoch_count = 1
        fresh.epochs[0].epoch = 1
        fresh.epochs[0].start_lsn = ROTA_SEGMENT_HEADER_SIZE
        check(manifest_create(self.h, &self.error), &self.error)
        self.directory.take_manifest()

    def segment(self, uint32_t file, uint64_t first_lsn):
        """Create a segment and return the bytes of its header."""
        cdef rota_segment_header header
        check(segment_create(self.h, file, True, &self.error), &self.error)
        memset(&header, 0, sizeof(header))
        header.magic = ROTA_SEGMENT_MAGIC
        header.version = ROTA_FORMAT_VERSION
        header.byte_order = ROTA_BYTE_ORDER
        header.file_number = file
        memcpy(header.uuid, self.h.uuid, 16)
        header.first_lsn = first_lsn
        header.epoch = 1
        header.generation = 1
        header.segment_size = self.h.segment_size
        header.created_at_ns = self.h.manifest.created_at_ns
        header.crc = rota_segment_header_crc(self.h.salt_crc, &header)
        return (<const uint8_t *>&header)[:sizeof(header)]

    def seal(self, bytearray commit):
        """Sum a commit whose header lacks only its sums: (its bytes, its chain id)."""
        cdef rota_commit_header header
        cdef rota_frame frame
        cdef uint8_t *data = commit
        cdef uint64_t place
        cdef uint32_t index
        if <uint64_t>len(commit) < sizeof(header):
            raise ValueError("shorter than a header")
        memcpy(&header, data, sizeof(header))
        if header.length != <uint64_t>len(commit) or rota_commit_data_offset(&header) > header.length:
            raise ValueError("the lengths contradict each other")
        header.magic = ROTA_COMMIT_MAGIC
        header.version = ROTA_FORMAT_VERSION
        for index in range(header.message_count):
            place = rota_commit_directory_offset(&header) + index * sizeof(frame)
            memcpy(&frame, data + place, sizeof(frame))
            frame.back = <uint32_t>place
            if not rota_frame_fits(&frame, place, rota_commit_data_offset(&header), header.length,
                                   header.flags & ROTA_COMMIT_COPIES != 0):
                raise ValueError("a message does not fit")
            frame.crc = rota_frame_crc(self.h.salt_crc, &frame, data + frame.offset)
            memcpy(data + place, &frame, sizeof(frame))
            if frame.flags & ROTA_FRAME_BLOCK:
                seal_block(data, rota_frame_block(data, &header, &frame), header.length, self.h.salt_crc)
        header.meta_crc = rota_crc32c(self.h.salt_crc, data + sizeof(header),
                                      rota_commit_data_offset(&header) - sizeof(header))
        header.header_crc = rota_commit_header_crc(self.h.salt_crc, &header)
        memcpy(data, &header, sizeof(header))
        if rota_commit_check(data, header.length, self.h.salt_crc, header.lsn, &header) != ROTA_SCAN_OK \
                or rota_commit_meta_check(data, &header, self.h.salt_crc) != ROTA_SCAN_OK:
            raise ValueError("the commit would not be read back")
        return bytes(commit), rota_commit_chain(self.h.salt, &header)

    def finish(self, uint64_t next_id):
        """Write the floor of the ids, durably."""
        cdef rota_manifest_sector following = self.h.manifest
        following.next_id_floor = next_id
        check(manifest_write(self.h, &following, &self.error), &self.error)


def layout():
    """{structure: (size, [(field, offset, size)])} of everything that is stored."""
    cdef int i
    cdef dict found = {}
    for i in range(ROTA_LAYOUT_COUNT):
        fields = found.setdefault(rota_layout[i].structure.decode(), (rota_layout[i].structure_size, []))[1]
        fields.append((rota_layout[i].field.decode(), rota_layout[i].offset, rota_layout[i].size))
    return found


def recovery_table():
    """(number, name, meaning, needs, excludes, action) of each row."""
    cdef int i
    cdef list rows = []
    for i in range(ROTA_RECOVERY_CASE_COUNT):
        rows.append((rota_recovery_cases[i].number, rota_recovery_cases[i].name.decode(),
                     rota_recovery_cases[i].meaning.decode(), rota_recovery_cases[i].needs,
                     rota_recovery_cases[i].excludes, rota_recovery_cases[i].action))
    return rows


def recovery_case(uint32_t found):
    """The number of the row that the engine chooses for these conditions."""
    if found >= ROTA_FOUND_COMBINATIONS:
        raise ValueError("no such combination")
    return rota_recovery_choose(found).number


def scan_text(int result):
    """What a result of a check means."""
    return rota_scan_text(result).decode()
