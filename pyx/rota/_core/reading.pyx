"""Reading a message: from a slot to its bytes, verified.

What holds:

1. A reader loads the slot, copies the bytes, verifies id and checksum of the copy, and loads the slot again when they
   do not match: a message that moved meanwhile is read again, a claim that ended is LeaseLost, else it is Corrupt.
2. Every access to a mapping is guarded, every offset checked before.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.atomics cimport *
from engine.control cimport *
from engine.crc32c cimport rota_crc32c
from engine.format cimport *
from engine.frame cimport rota_block_check
from engine.handle cimport rota_handle
from engine.pool cimport *
from engine.status cimport *

from rota._core.store cimport Store
from rota._core.tombs cimport was_killed

from rota import errors

cdef enum:
    TRIES = 16


cdef int corrupt(Store store, uint32_t file, uint64_t offset, uint64_t id, str what) except -1:
    raise errors.Corrupt(f"message {id}: {what}; run `rota verify {store.path}`", path=store.path,
                         file=f"seg.{file:06d}", offset=offset)


cdef bint load_frame(Store store, const uint8_t *base, uint64_t offset, Reading *reading) noexcept:
    """Copy the frame header at `offset` and the header of its commit; False when they make no sense."""
    cdef rota_handle *h = store.h
    cdef rota_frame *frame = &reading.frame
    if offset + sizeof(rota_frame) > h.segment_size:
        return False
    if h.os.frame_guarded(h.os, base, offset, frame, &reading.header) != 0:
        return False
    reading.commit = base + offset - frame.back
    return reading.header.magic == ROTA_COMMIT_MAGIC \
        and offset - frame.back + reading.header.length <= h.segment_size \
        and <uint64_t>frame.offset + frame.attribute_bytes \
        + (0 if frame.flags & ROTA_FRAME_BLOCK else frame.body_length) <= reading.header.length


cdef uint64_t id_of(const Reading *reading) noexcept:
    if reading.frame.flags & ROTA_FRAME_COPIED:
        return reading.frame.id
    return reading.header.base_id + (reading.frame.back - sizeof(rota_commit_header) - reading.header.op_bytes) // 32


cdef bytes block_body(Store store, Reading *reading, bytes attributes):
    """The body of a message in a compressed block; the last block is kept by the store."""
    cdef rota_handle *h = store.h
    cdef rota_block block
    cdef uint64_t place = 0
    cdef uint32_t at = 0
    import struct

    from rota._core.codec import decode_attributes
    found = decode_attributes(attributes).get(ROTA_ATTRIBUTE_BLOCK, b"")
    if len(found) != 4:
        return None
    at = struct.unpack("<I", found)[0]
    if at + sizeof(rota_block) > reading.header.length:
        return None
    key = (<size_t>reading.commit, reading.header.lsn, at)
    if store.block_cache is None or store.block_cache[0] != key:
        stored = PyBytes_FromStringAndSize(NULL, reading.header.length - at)
        if h.os.copy_guarded(h.os, PyBytes_AS_STRING(stored), reading.commit + at, reading.header.length - at) != 0:
            return None
        if rota_block_check(<const uint8_t *>PyBytes_AS_STRING(stored), len(stored), h.salt_crc, &block) != 0:
            return None
        import lz4.block
        try:
            raw = lz4.block.decompress(stored[sizeof(rota_block):sizeof(rota_block) + block.stored_length],
                                       uncompressed_size=block.raw_length)
        except Exception:  # lz4's own error class is private; the bytes passed their checksum, so this is damage
            return None
        store.block_cache = (key, raw)
    raw = store.block_cache[1]
    if reading.frame.id + reading.frame.body_length > <uint64_t>len(raw):
        return None
    return raw[reading.frame.id:reading.frame.id + reading.frame.body_length]


cdef bytes read_copy(Store store, Reading *reading):
    """Copy attributes (to store.attributes) and body and verify their sum; None when it is bad."""
    cdef rota_handle *h = store.h
    cdef rota_frame *frame = &reading.frame
    cdef const uint8_t *data = reading.commit + frame.offset
    cdef uint32_t sum = rota_crc32c(h.salt_crc, <uint8_t *>frame + 4, sizeof(rota_frame) - 4)
    cdef bytes copied = None
    store.attributes = None
    if frame.attribute_bytes:
        copied = PyBytes_FromStringAndSize(NULL, frame.attribute_bytes)
        if h.os.copy_crc_guarded(h.os, sum, PyBytes_AS_STRING(copied), data, frame.attribute_bytes, &sum) != 0:
            return None
        store.attributes = copied
    if frame.flags & ROTA_FRAME_BLOCK:
        return block_body(store, reading, copied) if sum == frame.crc and copied is not None else None
    copied = PyBytes_FromStringAndSize(NULL, frame.body_length)
    if frame.body_length and h.os.copy_crc_guarded(h.os, sum, PyBytes_AS_STRING(copied),
                                                   data + frame.attribute_bytes, frame.body_length, &sum) != 0:
        return None
    return copied if sum == frame.crc else None


cdef bytes read_slot(Store store, rota_slot_ref ref, uint64_t id, Reading *reading):
    """Read the message of a slot.  Raises LeaseLost when the slot is another's by now, Corrupt when bytes are bad."""
    cdef rota_handle *h = store.h
    cdef rota_slot *slot = rota_slot_at(h, ref)
    cdef uint64_t word, offset = 0
    cdef uint32_t file = 0
    cdef int tries
    cdef bytes body
    for tries in range(TRIES):
        word = rota_load_acquire_u64(&slot.word)
        file = rota_slot_file(word) % ROTA_SEGMENT_COUNT_MAX
        offset = rota_slot_cell(word) * ROTA_CELL
        if h.segments[file].base == NULL:
            store.map_segment(file)
        if offset >= ROTA_SEGMENT_HEADER_SIZE and load_frame(store, h.segments[file].base, offset, reading) \
                and id_of(reading) == id:
            body = read_copy(store, reading)
            if body is not None:
                return body
        reading.commit = NULL
        rota_fence_acquire()
        if slot.id != id or not rota_slot_live(rota_load_acquire_u64(&slot.word)):  # its segment may be in use again
            if was_killed(h, id):
                raise errors.Killed(f"message {id} was killed", path=store.path, expected=id)
            raise errors.LeaseLost(f"message {id} is not held any more", path=store.path, expected=id)
        if rota_slot_place(rota_load_acquire_u64(&slot.word)) == rota_slot_place(word):
            break
    corrupt(store, file, offset, id, "its stored bytes do not match their checksum")
