"""What requests and their replies carry, to bytes and back.

What holds:

1. A request names its client, its id and the queue of its reply; the reply has client and id again, so a reply is
   matched by what it carries, never by where it lies.
2. The client is the key of its reply, as bytes: several clients may share one queue, each finding its own.
3. A queue is named by its number and its making: a reply never goes to another queue that got the number later.

Bernstein, Hsu and Mann, "Implementing Recoverable Requests Using Queues", SIGMOD 1990.
"""

import struct

from libc.stdint cimport uint64_t

from engine.format cimport *

from rota._core.message cimport Message
from rota._core.put cimport new_receipt
from rota._core.queue cimport Queue

from rota._core.codec import decode_attributes, encode_attributes
from rota._core.directory import queue_numbered

_REPLY_TO = struct.Struct("<QH6x")
_NAME_BYTES = 255
STATUSES = ("ok", "failed", "cancelled", "expired")


cdef bytes checked(str what, object value):
    """bytes of 1 to 255 bytes.  Raises TypeError, ValueError."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{what} is bytes, not {type(value).__name__}")
    found = bytes(value)
    if not 0 < len(found) <= _NAME_BYTES:
        raise ValueError(f"{what} has 1 to {_NAME_BYTES} bytes, not {len(found)}")
    return found


def encode_request(client, rid, Queue reply_to=None, key=None, headers=None, uint64_t due_ns=0, uint64_t expiry_ns=0):
    """Attributes of a request; client and rid have 1 to 255 bytes; without `reply_to` nobody waits for a reply.

    Raises TypeError, ValueError.
    """
    extra = [(ROTA_ATTRIBUTE_CLIENT, checked("client", client)), (ROTA_ATTRIBUTE_RID, checked("rid", rid))]
    if reply_to is not None:
        extra.append((ROTA_ATTRIBUTE_REPLY_TO, _REPLY_TO.pack(reply_to.created_lsn, reply_to.number)))
    return encode_attributes(key, headers, due_ns, expiry_ns, extra)


def encode_reply(client, rid, status="ok", error=None, headers=None):
    """Attributes of a reply: status is one of STATUSES, `error` a text.  Raises TypeError, ValueError."""
    if status not in STATUSES:
        raise ValueError(f"a reply is {', '.join(STATUSES)}, not {status!r}")
    client = checked("client", client)
    extra = [(ROTA_ATTRIBUTE_CLIENT, client), (ROTA_ATTRIBUTE_RID, checked("rid", rid)),
             (ROTA_ATTRIBUTE_STATUS, bytes([STATUSES.index(status)]))]
    if error is not None:
        extra.append((ROTA_ATTRIBUTE_ERROR, error.encode("utf-8", "surrogatepass")[:4096]))
    return encode_attributes(client, headers, 0, 0, extra)


def attributes_in(Message message not None):
    """The stored attributes of a message: a dict of kind -> bytes."""
    if message._body is None:
        message.load(True)
    return decode_attributes(message._attributes) if message._attributes is not None else {}


def carried_by(Message message not None):
    """(client, rid, (number, making) of the queue of the reply or None) of a request; None when it is none."""
    found = attributes_in(message)
    client, rid = found.get(ROTA_ATTRIBUTE_CLIENT), found.get(ROTA_ATTRIBUTE_RID)
    if not client or not rid or ROTA_ATTRIBUTE_STATUS in found:
        return None
    reply_to = found.get(ROTA_ATTRIBUTE_REPLY_TO, b"")
    if len(reply_to) != _REPLY_TO.size:
        return client, rid, None
    created_lsn, number = _REPLY_TO.unpack(reply_to)
    return client, rid, (number, created_lsn)


def waiting_for(Message message not None, repository):
    """(queue of the reply, client, rid) when somebody waits for a reply to this message, else None.

    None too when the queue was destroyed: then nobody can receive it any more.
    """
    cdef Queue queue
    carried = carried_by(message)
    if carried is None or carried[2] is None:
        return None
    client, rid, (number, created_lsn) = carried
    queue = queue_numbered(message.store, repository, number)
    if queue is None or queue.created_lsn != <uint64_t>created_lsn:
        return None
    return queue, client, rid


def reply_of(Message message not None):
    """(client, rid, status, error or None) of a reply; None when it is none, or was written by a newer version."""
    found = attributes_in(message)
    client, rid = found.get(ROTA_ATTRIBUTE_CLIENT), found.get(ROTA_ATTRIBUTE_RID)
    status = found.get(ROTA_ATTRIBUTE_STATUS, b"")
    if not client or not rid or len(status) != 1 or status[0] >= len(STATUSES):
        return None
    error = found.get(ROTA_ATTRIBUTE_ERROR)
    return client, rid, STATUSES[status[0]], None if error is None else error.decode("utf-8", "replace")


def receipt_of(Queue queue not None, uint64_t id, uint64_t lsn):
    """The Receipt of one message that was put there before; `lsn` is that of its commit, or of a later one."""
    return new_receipt(queue.store, id, 1, lsn)
