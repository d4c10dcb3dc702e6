"""Looking at a repository without opening it: no lock, no mapping, no write.

What holds:

1. An Inspector reads private copies through the same functions as recovery, so both see the same log.
2. What it hands out are plain tuples and bytes; rota.inspection makes sense of them.
3. layout() and recovery_table() are what the documentation's tables are compared with.
"""

import os

from rota.errors import RotaError

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

from rota._core.manifest cimport manifest_read
from rota._core.platform cimport failpoints, table
from rota._core.reader cimport NO_FILE, log_file, reader_bytes, reader_close, reader_find, reader_open
from rota._core.recovery cimport recovery, recovery_find_end
from rota._core.walk cimport *


class InspectionError(RotaError):
    """What stopped an inspection; `code` is the name of the status that an open would end with, `detail` the reason."""

    def __init__(self, str code="CORRUPT", file=None, offset=0, expected=0, found=0, str detail="", errno=0):
        super().__init__(detail, file=file or None, offset=offset, expected=expected, found=found, errno=errno)
        self.args = (code, file or "", offset, expected, found, detail, errno)  # what a copy is made from
        self.code = code
        self.detail = detail

    def __str__(self):
        where = f"{self.file} at byte {self.offset}" if self.file else ""
        text = f"{self.detail} ({os.strerror(self.errno)})" if self.errno else self.detail
        return f"{text} [{where}]" if where else text


InspectionError.__module__ = "rota.inspection"


cdef object raised(rota_error *error):
    return InspectionError(rota_status_name(error.status).decode(), error.file.decode("utf-8", "replace"),
                           error.offset, error.expected, error.found, error.detail.decode("utf-8", "replace"),
                           error.os_errno)


cdef tuple header_tuple(const rota_commit_header *header):
    return (header.lsn, header.length, header.flags, header.op_bytes, header.message_count, header.op_count,
            header.epoch, header.sub_epoch, header.previous_chain, header.durable_lsn, header.base_id, header.time_ns,
            header.token_generation, header.token_number)


cdef tuple frame_tuple(const uint8_t *commit, const rota_commit_header *header, const rota_frame *frame, uint32_t index,
                       int result):
    """(id, queue, priority, flags, body_length, attributes, offset of the body, result, place in the block)."""
    return (rota_frame_id(header, frame, index), frame.queue, frame.priority, frame.flags, frame.body_length,
            (commit + frame.offset)[:frame.attribute_bytes], frame.offset + frame.attribute_bytes, result,
            frame.id if frame.flags & ROTA_FRAME_BLOCK else 0)


cdef list frame_tuples(const uint8_t *commit, const rota_commit_header *header, uint32_t salt_crc):
    """A frame_tuple of each message."""
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
        found.append(frame_tuple(commit, header, &frame, index, result))
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


cdef tuple inspect_frame(const uint8_t *commit, rota_commit_header *header, const rota_frame *frame, uint64_t offset,
                         uint64_t length, bint trusted, uint32_t salt_crc):
    """What message_at returns, once `length` bytes of the commit are there."""
    cdef rota_block_memory memory
    cdef rota_block block
    cdef int result = ROTA_SCAN_DIRECTORY
    cdef uint32_t at, index = (frame.back - <uint32_t>sizeof(rota_commit_header) - header.op_bytes) // 32
    cdef tuple named = header_tuple(header)
    memset(&memory, 0, sizeof(memory))
    header.length = <uint32_t>length
    if rota_frame_fits(frame, frame.back, frame.back + sizeof(rota_frame), length,
                       frame.flags & ROTA_FRAME_COPIED != 0):
        result = rota_frame_check(commit, header, frame, salt_crc, &memory)
    else:
        return result, offset, named, trusted, None, None
    message = frame_tuple(commit, header, frame, index, result)
    if result != ROTA_SCAN_OK:
        return result, offset, named, trusted, message, None
    if not frame.flags & ROTA_FRAME_BLOCK:
        at = frame.offset + frame.attribute_bytes
        return result, offset, named, trusted, message, (commit + at)[:frame.body_length]
    at = rota_frame_block(commit, header, frame)
    memcpy(&block, commit + at, sizeof(block))
    return (result, offset, named, trusted, message,
            (block.raw_length, (commit + at + sizeof(block))[:block.stored_length]))


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
            "compression": found.compression, "reached_turns": found.reached_turns,
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

    def find(self, uint32_t file, uint64_t offset):
        """Where the first commit at or behind `offset` starts whose header and metadata check and name this turn, or None."""
        cdef rota_commit_header header
        cdef const uint8_t *bytes = NULL
        cdef uint64_t size = self.h.segment_size
        cdef uint64_t turn
        if file >= ROTA_SEGMENT_COUNT_MAX or not self.r.reader.files[file].present:
            return None
        turn = self.r.reader.files[file].first_lsn - ROTA_SEGMENT_HEADER_SIZE
        offset = rota_round_up(offset if offset > ROTA_SEGMENT_HEADER_SIZE else ROTA_SEGMENT_HEADER_SIZE, ROTA_CELL)
        while offset + sizeof(header) <= size:
            check(reader_bytes(&self.r.reader, file, offset, sizeof(header), &bytes, &self.error), &self.error)
            if (<const uint32_t *>bytes)[0] == ROTA_COMMIT_MAGIC and rota_commit_check(
                    bytes, size - offset, self.h.salt_crc, turn + offset, &header) == ROTA_SCAN_OK:
                check(reader_bytes(&self.r.reader, file, offset, header.length, &bytes, &self.error), &self.error)
                if rota_commit_meta_check(bytes, &header, self.h.salt_crc) == ROTA_SCAN_OK:
                    return offset
            offset += ROTA_CELL
        return None

    def message_at(self, uint32_t file, uint64_t place):
        """(result, offset of the commit, its header or None, trusted, message or None, content) of one frame header.

        trusted: the commit's header matches its checksum.  content: the body, or (raw length, stored bytes) of the
        block that it lies in; None when it does not match its checksum.
        """
        cdef rota_commit_header header
        cdef rota_frame frame
        cdef const uint8_t *bytes = NULL
        cdef uint64_t size = self.h.segment_size
        cdef uint64_t offset, length
        cdef bint trusted
        if file >= ROTA_SEGMENT_COUNT_MAX or not self.r.reader.files[file].present or place + sizeof(frame) > size:
            return ROTA_SCAN_SHORT, 0, None, False, None, None
        check(reader_bytes(&self.r.reader, file, place, sizeof(frame), &bytes, &self.error), &self.error)
        memcpy(&frame, bytes, sizeof(frame))
        if frame.back < sizeof(header) or frame.back + ROTA_SEGMENT_HEADER_SIZE > place:
            return ROTA_SCAN_DIRECTORY, 0, None, False, None, None
        offset = place - frame.back
        check(reader_bytes(&self.r.reader, file, offset, sizeof(header), &bytes, &self.error), &self.error)
        trusted = rota_commit_check(bytes, size - offset, self.h.salt_crc, 0, &header) == ROTA_SCAN_OK
        if trusted:
            trusted = rota_commit_directory_offset(&header) <= frame.back < rota_commit_data_offset(&header)
        memcpy(&header, bytes, sizeof(header))
        if trusted:
            length = header.length
        else:  # its frame may be whole all the same
            length = <uint64_t>frame.offset + frame.attribute_bytes + frame.body_length
            if frame.flags & ROTA_FRAME_BLOCK or length > size - offset or frame.offset < frame.back + sizeof(frame):
                return ROTA_SCAN_DIRECTORY, offset, header_tuple(&header), False, None, None
        check(reader_bytes(&self.r.reader, file, offset, length, &bytes, &self.error), &self.error)
        return inspect_frame(bytes, &header, &frame, offset, length, trusted, self.h.salt_crc)

    def bytes_at(self, uint32_t file, uint64_t offset, uint64_t length):
        """A copy of some bytes of a segment."""
        cdef const uint8_t *bytes = NULL
        if file >= ROTA_SEGMENT_COUNT_MAX or not self.r.reader.files[file].present \
                or offset > self.h.segment_size or length > self.h.segment_size - offset:
            raise ValueError("outside the segment")
        check(reader_bytes(&self.r.reader, file, offset, length, &bytes, &self.error), &self.error)
        return bytes[:length]

    def sum(self, bytes data, so_far=None):
        """The salted checksum of the data, or of what came before and the data."""
        cdef uint32_t start = self.h.salt_crc if so_far is None else so_far
        return rota_crc32c(start, <const uint8_t *>data, len(data))

    def epoch_at(self, uint64_t lsn):
        """The epoch that the manifest has for a position; 0 for one before the first that it lists."""
        return epoch_at(&self.h.manifest, lsn)


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
