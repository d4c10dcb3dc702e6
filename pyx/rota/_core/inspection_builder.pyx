"""Building a repository directory whose log somebody else writes: for repair.

What holds:

1. Every byte of the log comes from the caller, every sum is made here, and what would not be read back is refused.
2. The manifest is durable before the first segment, and its floor of the ids is written last.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from engine.crc32c cimport rota_crc32c
from engine.format cimport *
from engine.frame cimport *
from engine.scan cimport *
from engine.term cimport *

from rota._core.index cimport write_terms
from rota._core.inspection cimport Directory, check
from rota._core.manifest cimport manifest_create, manifest_write
from rota._core.segment cimport segment_create


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

    def terms(self, bytes definitions, unsigned order, bytes attributes):
        """The extra of a move: what the index of a queue with these definitions has of such a message."""
        cdef const uint8_t *text = definitions
        cdef const uint8_t *bare = attributes
        cdef uint8_t extra[136]
        cdef rota_terms terms
        cdef int mask = rota_index_mask(text, <uint32_t>len(definitions), order)
        if mask < 0:
            raise ValueError("the definitions of an index cannot be")
        rota_terms_find(self.h.salt, text, <uint32_t>len(definitions), <uint32_t>mask, bare,
                        <uint32_t>len(attributes), &terms)
        return (<const uint8_t *>extra)[:write_terms(&terms, extra)]

    def finish(self, uint64_t next_id, uint64_t capacity):
        """Write the capacity and the floor of the ids, durably."""
        cdef rota_manifest_sector following = self.h.manifest
        following.capacity = capacity
        following.next_id_floor = next_id
        check(manifest_write(self.h, &following, &self.error), &self.error)
