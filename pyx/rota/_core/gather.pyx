"""Many bodies at once: frame headers under one guard, then the bodies under another, in groups.

What holds:

1. What can be read plainly (one segment, no attributes, no compressed block, a sum that matches) is; a place in the
   list that stays None is left to the careful way, read_slot().
2. The header of a commit is checked once; the caller compares its claims at the end, as for any batch.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.atomics cimport *
from engine.control cimport *
from engine.crc32c cimport rota_crc32c
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.platform cimport rota_piece
from engine.pool cimport rota_slot_at

from rota._core.reading cimport Reading
from rota._core.store cimport Store

cdef enum:
    GROUP = 64

ctypedef struct Group:
    uint8_t *base           # of the segment that all of them lie in
    uint64_t offsets[64]    # of the frame headers
    rota_frame frames[64]
    rota_piece pieces[64]
    uint32_t places[64]     # in the group, of each piece
    uint32_t count
    uint32_t piece_count


cdef uint32_t load_frames(Store store, const uint64_t *refs, uint32_t count, Group *group) noexcept:
    """Copy the frame headers of the next messages that lie in one segment; 0 when they cannot be had."""
    cdef rota_handle *h = store.h
    cdef uint32_t i, file = 0
    cdef uint64_t word, offset
    group.count = 0
    for i in range(count if count < GROUP else GROUP):
        word = rota_load_acquire_u64(&rota_slot_at(h, refs[i]).word)
        offset = rota_slot_cell(word) * ROTA_CELL
        if i == 0:
            file = rota_slot_file(word) % ROTA_SEGMENT_COUNT_MAX
        if rota_slot_file(word) != file or offset < ROTA_SEGMENT_HEADER_SIZE or offset + ROTA_CELL > h.segment_size:
            break
        group.offsets[i] = offset
        group.count += 1
    group.base = h.segments[file].base
    if group.count == 0 or group.base == NULL:
        return 0
    for i in range(group.count):
        group.pieces[i].to = &group.frames[i]
        group.pieces[i].source = group.base + group.offsets[i]
        group.pieces[i].length = sizeof(rota_frame)
    if h.os.gather_guarded(h.os, group.base, h.segment_size, group.pieces, group.count, False) != 0:
        return 0
    return group.count


cdef bint in_commit(Store store, Group *group, uint32_t i, Reading *reading) noexcept:
    """Whether the header of the frame's commit is there (it is loaded when it is another than before) and fits."""
    cdef rota_handle *h = store.h
    cdef rota_frame *frame = &group.frames[i]
    cdef const uint8_t *commit
    if frame.back > group.offsets[i] - ROTA_SEGMENT_HEADER_SIZE or frame.back < sizeof(rota_commit_header):
        return False
    commit = group.base + group.offsets[i] - frame.back
    if reading.commit != commit:
        reading.commit = NULL
        if h.os.copy_guarded(h.os, &reading.header, commit, sizeof(rota_commit_header)) != 0:
            return False
        reading.commit = commit
    return reading.header.magic == ROTA_COMMIT_MAGIC \
        and group.offsets[i] - frame.back + reading.header.length <= h.segment_size \
        and <uint64_t>frame.offset + frame.body_length <= reading.header.length


cdef inline bint is_plain(const rota_frame *frame, const rota_commit_header *header, uint64_t id) noexcept:
    return frame.attribute_bytes == 0 and frame.flags & (ROTA_FRAME_BLOCK | ROTA_FRAME_COPIED) == 0 \
        and header.base_id + (frame.back - sizeof(rota_commit_header) - header.op_bytes) // ROTA_CELL == id


cdef int gather_bodies(Store store, const uint64_t *ids, const uint64_t *refs, uint32_t count, Reading *reading,
                       list bodies, uint32_t at) except -1:
    """Fill bodies[at:] with what can be read plainly; returns how many places were looked at."""
    cdef rota_handle *h = store.h
    cdef Group group
    cdef rota_frame *frame
    cdef rota_piece *piece
    cdef object body
    cdef list made = []
    cdef uint32_t i
    if load_frames(store, refs, count, &group) == 0:
        return 1
    group.piece_count = 0
    for i in range(group.count):
        frame = &group.frames[i]
        if not in_commit(store, &group, i, reading) or not is_plain(frame, &reading.header, ids[i]):
            continue
        body = PyBytes_FromStringAndSize(NULL, frame.body_length)
        made.append(body)
        piece = &group.pieces[group.piece_count]
        piece.to = PyBytes_AS_STRING(body)
        piece.source = reading.commit + frame.offset
        piece.length = frame.body_length
        piece.sum = rota_crc32c(h.salt_crc, <uint8_t *>frame + 4, sizeof(rota_frame) - 4)
        group.places[group.piece_count] = i
        group.piece_count += 1
    if h.os.gather_guarded(h.os, group.base, h.segment_size, group.pieces, group.piece_count, True) != 0:
        return group.count
    for i in range(group.piece_count):
        if group.pieces[i].sum == group.frames[group.places[i]].crc:
            body = <object>made[i]
            bodies[at + group.places[i]] = body
    return group.count
