"""Replies that the engine itself gives: a request that is killed, expires or uses up its attempts is answered.

What holds:

1. The reply is put by the commit that ends the request or moves it to the error queue, so there is one exactly when
   that happened; that commit is refused when somebody else ended or moved the request first.
2. A reply is never refused because its queue is full or stopped (ROTA_PUT_ANSWER).
3. What lies in an error queue was answered when it came there: ending it there gives no second reply.
4. A message is a request when it names client, id and queue of the reply, and is no reply itself.  No reply can be given
   where that queue was destroyed, or the frame does not match its checksum.

Bernstein, Hsu and Mann, "Implementing Recoverable Requests Using Queues", SIGMOD 1990.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset, strlen

from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport *
from engine.status cimport *

from rota._core.draft cimport Draft, Envelope, draft_created, draft_message, draft_op
from rota._core.lane cimport queue_at
from rota._core.moving cimport message_attributes

cdef enum:
    NAME_BYTES_MAX = 255
    ERROR_BYTES_MAX = 1024
    ATTRIBUTE_HEAD = 4

# The attributes of a request, as far as its reply needs them.
ctypedef struct Asked:
    const uint8_t *client
    const uint8_t *rid
    const uint8_t *error
    uint32_t client_bytes
    uint32_t rid_bytes
    uint32_t error_bytes
    rota_reply_to reply_to
    bint is_reply


cdef bint read_request(const uint8_t *attributes, uint32_t length, Asked *asked) noexcept nogil:
    """Whether these are attributes of a request whose client waits for a reply."""
    cdef uint32_t at = 0, size
    cdef uint16_t stored
    memset(asked, 0, sizeof(Asked))
    while at + ATTRIBUTE_HEAD <= length:
        memcpy(&stored, attributes + at + 2, 2)
        size = stored
        if at + ATTRIBUTE_HEAD + size > length:
            return False
        if attributes[at] == ROTA_ATTRIBUTE_CLIENT:
            asked.client = attributes + at + ATTRIBUTE_HEAD
            asked.client_bytes = size
        elif attributes[at] == ROTA_ATTRIBUTE_RID:
            asked.rid = attributes + at + ATTRIBUTE_HEAD
            asked.rid_bytes = size
        elif attributes[at] == ROTA_ATTRIBUTE_ERROR:
            asked.error = attributes + at + ATTRIBUTE_HEAD
            asked.error_bytes = size if size < ERROR_BYTES_MAX else ERROR_BYTES_MAX
        elif attributes[at] == ROTA_ATTRIBUTE_REPLY_TO and size == sizeof(rota_reply_to):
            memcpy(&asked.reply_to, attributes + at + ATTRIBUTE_HEAD, sizeof(rota_reply_to))
        elif attributes[at] == ROTA_ATTRIBUTE_STATUS:
            asked.is_reply = True
        at += ATTRIBUTE_HEAD + size
    return not asked.is_reply and 0 < asked.client_bytes <= NAME_BYTES_MAX and 0 < asked.rid_bytes <= NAME_BYTES_MAX \
        and asked.reply_to.created_lsn != 0


cdef uint32_t write_attribute(uint8_t *to, uint8_t kind, const void *value, uint32_t length) noexcept nogil:
    cdef uint16_t stored = <uint16_t>length
    to[0] = kind
    to[1] = 0
    memcpy(to + 2, &stored, 2)
    memcpy(to + ATTRIBUTE_HEAD, value, length)
    return ATTRIBUTE_HEAD + length


cdef uint32_t write_reply(uint8_t *to, const Asked *asked, uint8_t status) noexcept nogil:
    """The attributes of the reply, as encode_reply() of request.pyx makes them."""
    cdef const char *text = "the request was killed"
    cdef uint32_t length = write_attribute(to, ROTA_ATTRIBUTE_KEY_BYTES, asked.client, asked.client_bytes)
    length += write_attribute(to + length, ROTA_ATTRIBUTE_CLIENT, asked.client, asked.client_bytes)
    length += write_attribute(to + length, ROTA_ATTRIBUTE_RID, asked.rid, asked.rid_bytes)
    length += write_attribute(to + length, ROTA_ATTRIBUTE_STATUS, &status, 1)
    if status == ROTA_REPLY_FAILED and asked.error_bytes:
        return length + write_attribute(to + length, ROTA_ATTRIBUTE_ERROR, asked.error, asked.error_bytes)
    if status == ROTA_REPLY_FAILED:
        text = "the attempts of the request are used up"
    elif status == ROTA_REPLY_EXPIRED:
        text = "the request expired before it was processed"
    return length + write_attribute(to + length, ROTA_ATTRIBUTE_ERROR, text, <uint32_t>strlen(text))


cdef bint takes_failures(rota_handle *h, const rota_queue *queue) noexcept nogil:
    """Whether it is the error queue of some queue."""
    cdef rota_queue *other
    cdef uint32_t number
    if queue.options.is_error_queue:
        return True
    for number in range(h.control.queue_count):
        other = queue_at(h, number)
        if other != NULL and other.options.error_queue == queue.number:
            return True
    return False


cdef int draft_answer(rota_handle *h, Draft *draft, uint32_t source, uint64_t id, uint8_t status) noexcept nogil:
    """Add the reply to what the operation just added sets aside, when it is a request; the lock is not held."""
    cdef uint8_t attributes[65536]
    cdef uint8_t reply[3 * (ATTRIBUTE_HEAD + NAME_BYTES_MAX) + 2 * ATTRIBUTE_HEAD + 1 + ERROR_BYTES_MAX]
    cdef rota_frame frame
    cdef Envelope envelope
    cdef Asked asked
    cdef rota_queue *queue = queue_at(h, source)
    if queue == NULL or takes_failures(h, queue) or not message_attributes(h, source, id, &frame, attributes) \
            or not read_request(attributes, frame.attribute_bytes, &asked):
        return ROTA_OK
    queue = queue_at(h, asked.reply_to.queue)
    if queue == NULL or queue.created_lsn != asked.reply_to.created_lsn:
        return ROTA_OK
    memset(&envelope, 0, sizeof(envelope))
    envelope.attributes = reply
    envelope.attribute_bytes = write_reply(reply, &asked, status)
    envelope.queue = asked.reply_to.queue
    if draft.answer_count == 0:
        draft.answer_data = draft.data_bytes
    draft.answer_count += 1
    draft_message(draft, &envelope, NULL, 0, 0)
    draft_op(draft, ROTA_OP_PUT, 0, asked.reply_to.queue, draft.message_count - 1, 1, ROTA_PUT_ANSWER, NULL, 0)
    draft_created(draft, asked.reply_to.created_lsn)
    rota_failpoint(h.failpoints, ROTA_AT_ANSWER_DRAFTED)
    return ROTA_OK
