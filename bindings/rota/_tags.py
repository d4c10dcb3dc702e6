"""What a clerk keeps in its two tags: what it sent and what it received.

What holds:

1. Each send has a number that rises by one; requests are told apart by it even if a client uses an id again.
2. The tag at the request queue lists what was outstanding when the last request was sent, that one included and last,
   and the number of the reply that was the last one received by then.
3. The tag at the reply queue has the number and id of the last reply, the checkpoint that came with it, and which
   requests of the list in 2 were received.  So what is outstanding is the one list without the other, and each tag is
   written with its own operation only.
4. A pair that no history of these operations leaves is refused: whoever goes on with it would lose or repeat a request.

The pair of tags is that of Bernstein, Hsu and Mann, "Implementing Recoverable Requests Using Queues", SIGMOD 1990; a
window above one is an addition.
"""

from __future__ import annotations

import functools
import struct
from typing import NamedTuple

VERSION = 1
WINDOW_MAX = 64
CHECKPOINT_BYTES_MAX = 4096
RID_BYTES_MAX = 200
_TAG_BYTES_MAX = 4608
_SENT = struct.Struct("<BBHQQ")  # version, requests listed, zero, integer of the last id, received before
_REQUEST = struct.Struct("<QQB")  # number, message, length of the id
_RECEIVED = struct.Struct("<BBBBQ")  # version, has a checkpoint, length of the id, requests listed, number
_NUMBER = struct.Struct("<I")  # low half of a number


class Request(NamedTuple):
    """A request that was sent; `message` is the id of its message, 0 while only the registration knows it."""

    number: int
    message: int
    rid: bytes


def low(number: int) -> int:
    """The half of a number that a tag lists."""
    return number & 0xFFFFFFFF


@functools.lru_cache(4 * WINDOW_MAX)  # one that stays outstanding is written with each send
def _encoded(request: Request) -> bytes:
    return _REQUEST.pack(request.number, request.message, len(request.rid)) + request.rid


class Sent(NamedTuple):
    """The tag at the request queue."""

    requests: tuple[Request, ...] = ()
    integer: int = 0
    received_before: int = 0

    @property
    def last(self) -> Request | None:
        """The last request that was sent."""
        return self.requests[-1] if self.requests else None

    @property
    def number(self) -> int:
        """The number of the last request, 0: there was none."""
        return self.requests[-1].number if self.requests else 0

    def encode(self) -> bytes:
        """As bytes.  Raises ValueError when the ids are too long for so many requests."""
        head = _SENT.pack(VERSION, len(self.requests), 0, self.integer, self.received_before)
        tag = head + b"".join(map(_encoded, self.requests))
        if len(tag) > _TAG_BYTES_MAX:
            raise ValueError(
                f"the ids of {len(self.requests)} outstanding requests take {len(tag)} bytes, and a tag has "
                f"{_TAG_BYTES_MAX}: use shorter ids or a smaller window"
            )
        return tag


class Received(NamedTuple):
    """The tag at the reply queue."""

    number: int = 0
    rid: bytes | None = None
    checkpoint: bytes | None = None
    numbers: tuple[int, ...] = ()  # low halves

    def encode(self) -> bytes:
        """As bytes: they fit."""
        rid = self.rid or b""
        head = _RECEIVED.pack(VERSION, self.checkpoint is not None, len(rid), len(self.numbers), self.number)
        return head + rid + b"".join(map(_NUMBER.pack, self.numbers)) + (self.checkpoint or b"")

    def has(self, request: Request) -> bool:
        """Whether this request, of the list that the tag belongs to, was received."""
        return low(request.number) in self.numbers


def decode_sent(tag: bytes, message: int) -> Sent:
    """Raises ValueError.  `message` is the id that the registration has, that of the last request when it has none."""
    try:
        version, count, _, integer, before = _SENT.unpack_from(tag)
        if version != VERSION or count == 0:
            raise ValueError("a tag of another version, or not of a clerk")
        at, requests = _SENT.size, []
        for _ in range(count):
            number, stored, length = _REQUEST.unpack_from(tag, at)
            at += _REQUEST.size
            requests.append(Request(number, stored, tag[at : at + length]))
            at += length
    except struct.error:
        raise ValueError("a tag that is not of a clerk") from None
    if at != len(tag):
        raise ValueError("a tag that is not of a clerk")
    if requests[-1].message == 0:
        requests[-1] = requests[-1]._replace(message=message)
    return Sent(tuple(requests), integer, before)


def decode_received(tag: bytes) -> Received:
    """Raises ValueError."""
    try:
        version, has_checkpoint, length, count, number = _RECEIVED.unpack_from(tag)
    except struct.error:
        raise ValueError("a tag that is not of a clerk") from None
    rest = _RECEIVED.size + length
    end = rest + _NUMBER.size * count
    if version != VERSION or len(tag) < end or length == 0 or (not has_checkpoint and len(tag) != end):
        raise ValueError("a tag of another version, or not of a clerk")
    numbers = tuple(found for (found,) in _NUMBER.iter_unpack(tag[rest:end]))
    return Received(number, tag[_RECEIVED.size : rest], tag[end:] if has_checkpoint else None, numbers)


def contradiction(sent: Sent, received: Received) -> str:
    """What is wrong with the pair, empty: nothing."""
    if received.number > sent.number:
        return "a reply was received to a request that was not sent"
    if received.number == sent.received_before:
        return ""
    for request in sent.requests:
        if request.number == received.number:
            return "" if request.rid == received.rid else "the last request and the last reply have different ids"
    return "the last reply is neither that to a request of the last ones nor the one before"


def integer_of(rid: bytes, otherwise: int) -> int:
    """The integer that an id is, written in decimal digits; else the other one."""
    if rid.isdigit() and len(rid) <= 18 and (rid == b"0" or not rid.startswith(b"0")):
        return int(rid)
    return otherwise
