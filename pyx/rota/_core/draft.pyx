"""A commit while it is built: operations, directory and data in private memory, sealed outside the lock.

What holds:

1. The bytes of a body are copied once into the draft and summed there, so a user who writes to his array meanwhile
   spoils his message at worst, never the log.
2. draft_seal() joins the three parts, sets the places that depend on their sizes, and sums; after it only the header
   is left to be stamped, under the lock.
3. A failure (no memory) is kept in `failed` and returned by draft_seal; nothing was written.
"""

from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from engine.crc32c cimport rota_crc32c
from engine.encode cimport rota_encode_op
from engine.format cimport *
from engine.status cimport *

cdef enum:
    SPARES_MAX = 8
    SPARE_BYTES_MAX = 65536

cdef Draft spares[8]       # memory of drafts that ended; the GIL guards it
cdef uint32_t spare_count = 0


cdef void draft_begin(Draft *draft, rota_handle *h) noexcept nogil:
    memset(draft, 0, sizeof(Draft))
    draft.salt_crc = h.salt_crc


cdef void draft_end(Draft *draft) noexcept nogil:
    free(draft.ops)
    free(draft.frames)
    free(draft.data)
    free(draft.settles)
    free(draft.put_created)
    if draft.owned:
        free(draft.bytes)
    memset(draft, 0, sizeof(Draft))


cdef void draft_reset(Draft *draft, rota_handle *h) noexcept nogil:
    """Begin another one in the memory of one that ended."""
    cdef Draft old = draft[0]
    draft_begin(draft, h)
    draft.ops = old.ops
    draft.ops_size = old.ops_size
    draft.frames = old.frames
    draft.frames_size = old.frames_size
    draft.data = old.data
    draft.data_size = old.data_size
    draft.settles = old.settles
    draft.settle_size = old.settle_size
    draft.put_created = old.put_created
    draft.put_created_size = old.put_created_size
    if old.owned:
        draft.bytes = old.bytes
        draft.size = old.size
        draft.owned = 1


cdef void draft_restart(Draft *draft) noexcept nogil:
    """Forget its operations, and the replies that they gave; its messages stay."""
    if draft.answer_count:
        draft.message_count -= draft.answer_count
        draft.data_bytes = draft.answer_data
        draft.answer_count = 0
    draft.op_bytes = draft.op_count = draft.growing = draft.settle_count = draft.end_count = 0
    draft.registering = draft.deduping = draft.put_count = 0
    draft.token_generation = draft.token_number = 0


cdef bint reserve(uint8_t **memory, uint64_t *size, uint64_t wanted) noexcept nogil:
    """Grow by doubling; False when there is no memory."""
    cdef uint64_t larger = size[0] if size[0] else 1024
    cdef uint8_t *moved
    if wanted <= size[0]:
        return True
    while larger < wanted:
        larger *= 2
    moved = <uint8_t *>realloc(memory[0], larger)
    if moved == NULL:
        return False
    memory[0] = moved
    size[0] = larger
    return True


cdef int draft_op(Draft *draft, uint8_t kind, uint8_t detail, uint16_t queue, uint64_t id, uint64_t a, uint64_t b,
                  const void *extra, uint32_t extra_bytes) noexcept nogil:
    """Add one operation; its extra is padded with zeros to a whole cell."""
    cdef uint64_t padded = rota_pad(extra_bytes)
    cdef uint8_t *to
    if not reserve(&draft.ops, &draft.ops_size, draft.op_bytes + sizeof(rota_op) + padded):
        draft.failed = 1
        return ROTA_NO_MEMORY
    to = draft.ops + draft.op_bytes
    rota_encode_op(to, kind, detail, queue, id, a, b, extra_bytes)
    if padded:
        memset(to + sizeof(rota_op) + padded - ROTA_CELL, 0, ROTA_CELL)
        memcpy(to + sizeof(rota_op), extra, extra_bytes)
    draft.op_bytes += sizeof(rota_op) + padded
    draft.op_count += 1
    if kind != ROTA_OP_ACK and kind != ROTA_OP_ACK_LIST and kind != ROTA_OP_KILL and kind != ROTA_OP_EXPIRE \
            and kind != ROTA_OP_CHECKPOINT and not (kind == ROTA_OP_DEDUP and detail == ROTA_DEDUP_FORGET):
        draft.growing += 1
    if kind == ROTA_OP_KILL or kind == ROTA_OP_EXPIRE or (kind == ROTA_OP_MOVE and detail == ROTA_MOVE_EXPIRED):
        draft.end_count += 1
    if kind == ROTA_OP_DEDUP:
        draft.deduping += 1
    if kind == ROTA_OP_TAG or kind == ROTA_OP_REGISTER or kind == ROTA_OP_DEREGISTER:
        draft.registering += 1
    return ROTA_OK


cdef uint64_t message_room(uint64_t attribute_bytes, uint64_t length) noexcept nogil:
    """Bytes of data that a message takes: attributes and body, padded to 8."""
    return (attribute_bytes + length + 7) & ~<uint64_t>7


cdef int draft_message(Draft *draft, const Envelope *envelope, const void *body, uint64_t length,
                       uint64_t explicit_id) noexcept nogil:
    """Add one message to the directory and the data; the operation that names it is added apart."""
    cdef uint64_t room = message_room(envelope.attribute_bytes, length)
    cdef rota_frame *frame
    cdef uint8_t *to
    if not reserve(&draft.frames, &draft.frames_size, (draft.message_count + 1) * sizeof(rota_frame)) \
            or not reserve(&draft.data, &draft.data_size, draft.data_bytes + room):
        draft.failed = 1
        return ROTA_NO_MEMORY
    frame = <rota_frame *>draft.frames + draft.message_count
    memset(frame, 0, sizeof(rota_frame))
    frame.body_length = <uint32_t>length
    frame.offset = <uint32_t>draft.data_bytes
    frame.id = explicit_id
    frame.attribute_bytes = <uint16_t>envelope.attribute_bytes
    frame.queue = envelope.queue
    frame.priority = envelope.priority
    frame.flags = envelope.flags
    to = draft.data + draft.data_bytes
    if room:
        memset(to + room - 8, 0, 8)
    if envelope.attribute_bytes:
        memcpy(to, envelope.attributes, envelope.attribute_bytes)
    if length:
        memcpy(to + envelope.attribute_bytes, body, length)
    draft.data_bytes += room
    draft.message_count += 1
    draft.put_bytes += length
    return ROTA_OK


cdef int draft_data(Draft *draft, const void *bytes, uint64_t length) noexcept nogil:
    """Add bytes that no frame owns by itself (a compressed block), padded to 8."""
    cdef uint64_t room = message_room(0, length)
    if not reserve(&draft.data, &draft.data_size, draft.data_bytes + room):
        draft.failed = 1
        return ROTA_NO_MEMORY
    if room:
        memset(draft.data + draft.data_bytes + room - 8, 0, 8)
    memcpy(draft.data + draft.data_bytes, bytes, length)
    draft.data_bytes += room
    return ROTA_OK


cdef int draft_settle(Draft *draft, const Settle *settle) noexcept nogil:
    cdef uint64_t size = draft.settle_size * sizeof(Settle)
    if not reserve(<uint8_t **>&draft.settles, &size, (draft.settle_count + 1) * sizeof(Settle)):
        draft.failed = 1
        return ROTA_NO_MEMORY
    draft.settle_size = <uint32_t>(size // sizeof(Settle))
    draft.settles[draft.settle_count] = settle[0]
    draft.settle_count += 1
    if settle.token_generation > draft.token_generation \
            or (settle.token_generation == draft.token_generation and settle.token_number > draft.token_number):
        draft.token_generation = settle.token_generation
        draft.token_number = settle.token_number
    return ROTA_OK


cdef int draft_created(Draft *draft, uint64_t created) noexcept nogil:
    """Note which queue the PUT that was just added means."""
    if not reserve(<uint8_t **>&draft.put_created, &draft.put_created_size, (draft.put_count + 1) * sizeof(uint64_t)):
        draft.failed = 1
        return ROTA_NO_MEMORY
    draft.put_created[draft.put_count] = created
    draft.put_count += 1
    return ROTA_OK


cdef int draft_seal(Draft *draft) noexcept nogil:
    """Join the parts.  ROTA_NO_MEMORY or ROTA_TRANSACTION_TOO_LARGE, or the commit is ready to be stamped."""
    cdef uint64_t directory = sizeof(rota_commit_header) + draft.op_bytes
    cdef uint64_t data = directory + <uint64_t>draft.message_count * sizeof(rota_frame)
    cdef rota_frame *frame
    cdef uint32_t i
    if draft.failed:
        return ROTA_NO_MEMORY
    draft.length = rota_pad(data + draft.data_bytes)
    if draft.length >> 32:
        return ROTA_TRANSACTION_TOO_LARGE
    if not reserve(&draft.bytes, &draft.size, draft.length):
        return ROTA_NO_MEMORY
    draft.owned = 1
    memset(draft.bytes + draft.length - ROTA_CELL, 0, ROTA_CELL)
    memcpy(draft.bytes + sizeof(rota_commit_header), draft.ops, draft.op_bytes)
    memcpy(draft.bytes + directory, draft.frames, <size_t>draft.message_count * sizeof(rota_frame))
    memcpy(draft.bytes + data, draft.data, draft.data_bytes)
    for i in range(draft.message_count):
        frame = <rota_frame *>(draft.bytes + directory) + i
        frame.offset += <uint32_t>data
        frame.back = <uint32_t>(directory + i * sizeof(rota_frame))
        frame.crc = rota_crc32c(draft.salt_crc, <uint8_t *>frame + 4, sizeof(rota_frame) - 4)
        frame.crc = rota_crc32c(frame.crc, draft.bytes + frame.offset, frame.attribute_bytes
                                + (0 if frame.flags & ROTA_FRAME_BLOCK else frame.body_length))
    (<rota_commit_header *>draft.bytes).meta_crc = rota_crc32c(
        draft.salt_crc, draft.bytes + sizeof(rota_commit_header), data - sizeof(rota_commit_header))
    return ROTA_OK


cdef void take_draft(Draft *draft, rota_handle *h) noexcept:
    global spare_count
    if spare_count:
        spare_count -= 1
        draft[0] = spares[spare_count]
        draft_reset(draft, h)
    else:
        draft_begin(draft, h)


cdef void give_draft(Draft *draft) noexcept:
    global spare_count
    if spare_count < SPARES_MAX and draft.bytes != NULL and draft.size + draft.data_size + draft.frames_size \
            + draft.ops_size + draft.settle_size * sizeof(Settle) < SPARE_BYTES_MAX:
        spares[spare_count] = draft[0]
        spare_count += 1
        draft.owned = 0
        draft.bytes = draft.ops = draft.frames = draft.data = NULL
        draft.settles = NULL
        draft.put_created = NULL
    draft_end(draft)
