"""Moves between queues: the operation, with the terms of the message in the index of its target.

What holds:

1. The terms are read from the frame before the commit, outside the lock, so that applying a move reads no frame and a
   replay does what the append did.
2. A frame that does not match its checksum has no terms: the message moves, and the target's index does not have it.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from engine.control cimport *
from engine.crc32c cimport rota_crc32c
from engine.format cimport *
from engine.status cimport *
from engine.term cimport rota_terms

from rota._core.draft cimport draft_op
from rota._core.index cimport queue_terms, write_terms
from rota._core.lane cimport Found, find, queue_at
from rota._core.lock cimport lock_enter, lock_leave
from rota._core.segment cimport segment_base, segment_map


cdef enum:
    LOOKS = 8


cdef bint frame_attributes(rota_handle *h, uint64_t word, rota_frame *frame, uint8_t *attributes) noexcept nogil:
    """The frame header and the attributes (at most 64 KiB) at the place of a slot; False when they do not check."""
    cdef rota_error ignored
    cdef uint32_t file = rota_slot_file(word), sum
    cdef uint64_t place = rota_slot_cell(word) * ROTA_CELL, start
    cdef uint8_t *base
    if place + sizeof(rota_frame) > h.segment_size or segment_map(h, file, &ignored) != ROTA_OK:
        return False
    base = segment_base(h, file)
    if h.os.copy_guarded(h.os, frame, base + place, sizeof(rota_frame)) != ROTA_OK or frame.back > place:
        return False
    start = place - frame.back + frame.offset
    if start + frame.attribute_bytes + (0 if frame.flags & ROTA_FRAME_BLOCK else frame.body_length) > h.segment_size:
        return False
    sum = rota_crc32c(h.salt_crc, <uint8_t *>frame + 4, sizeof(rota_frame) - 4)
    if h.os.copy_crc_guarded(h.os, sum, attributes, base + start, frame.attribute_bytes, &sum) != ROTA_OK:
        return False
    if not frame.flags & ROTA_FRAME_BLOCK and h.os.crc_guarded(h.os, sum, base + start + frame.attribute_bytes,
                                                               frame.body_length, &sum) != ROTA_OK:
        return False
    return sum == frame.crc


cdef bint frame_is(rota_handle *h, uint64_t word, const rota_frame *frame, uint64_t id) noexcept nogil:
    """Whether the frame at the place of a slot is that of this message."""
    cdef rota_commit_header header
    cdef uint64_t start = rota_slot_cell(word) * ROTA_CELL - frame.back
    if frame.flags & ROTA_FRAME_COPIED:
        return frame.id == id
    return h.os.copy_guarded(h.os, &header, segment_base(h, rota_slot_file(word)) + start, sizeof(header)) == ROTA_OK \
        and header.base_id + (frame.back - sizeof(header) - header.op_bytes) // ROTA_CELL == id


cdef uint64_t place_of(rota_handle *h, uint32_t source, uint64_t id, bint locked) noexcept nogil:
    """The slot's word of a live message, or 0.  Without the lock it may be anything: the frame says whose it is."""
    cdef rota_queue *queue
    cdef rota_error ignored
    cdef Found found
    cdef uint64_t word = 0
    if locked and lock_enter(h, &ignored) != ROTA_OK:
        return 0
    queue = queue_at(h, source)
    if queue != NULL and find(h, queue, id, &found) and found.slot.id == id and rota_slot_live(found.slot.word):
        word = found.slot.word
    if locked:
        lock_leave(h)
    return word


cdef bint message_attributes(rota_handle *h, uint32_t source, uint64_t id, rota_frame *frame,
                             uint8_t *attributes) noexcept nogil:
    """The attributes (at most 64 KiB) of a live message of that queue; the lock is not held.  One that is copied
    meanwhile is looked for again; the lock, which the caller may have to wait for with the GIL, is the last resort."""
    cdef uint64_t word
    cdef int i
    for i in range(LOOKS):
        word = place_of(h, source, id, i == LOOKS - 1)
        if word and frame_attributes(h, word, frame, attributes) and frame_is(h, word, frame, id):
            return True
    return False


cdef bint terms_for(rota_handle *h, uint32_t source, uint64_t id, const rota_queue *target,
                    rota_terms *terms) noexcept nogil:
    """The terms of a message in the index of that queue."""
    cdef uint8_t attributes[65536]
    cdef rota_frame frame
    if not message_attributes(h, source, id, &frame, attributes):
        return False
    queue_terms(h, target, attributes, frame.attribute_bytes, terms)
    return True


cdef int draft_move(rota_handle *h, Draft *draft, uint32_t source, uint64_t id, uint32_t target, uint64_t counts,
                    uint8_t reason) noexcept nogil:
    """Add the move of one message; the lock is not held."""
    cdef rota_queue *queue = queue_at(h, target)
    cdef uint8_t extra[136]
    cdef rota_terms terms
    cdef uint32_t length = 0
    if queue != NULL and queue.index_mask and terms_for(h, source, id, queue, &terms):
        length = write_terms(&terms, extra)
    return draft_op(draft, ROTA_OP_MOVE, reason, <uint16_t>source, id, target, counts, extra, length)
