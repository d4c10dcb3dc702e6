"""Write a state, live messages with their queues and registrations, as the log of a new repository.

What holds:

1. Messages keep their ids, queues, priorities, attributes and bodies.  What happened to them stands behind them as the
   operations that would have done it, so the new log replays to the old state and needs no checkpoint.
2. Ids ascend through the log.  A moved message is put where it can be moved from, and moved before the first message
   that came after it.
3. Sums, chain and positions are new, under a new salt and uuid: no piece of the old files is taken for one of the new.
"""

from __future__ import annotations

import os
import secrets
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rota._core.inspection_builder import Builder
from rota._image import Key, Registration
from rota._records import COMMIT_CLOSE, COMMIT_MARK, FRAME_BLOCK, FRAME_EXPIRES

HEADER = struct.Struct("<IHHQIIIIIIQQQQQQII")
FRAME = struct.Struct("<IIIIQHHBBH")
OPERATION = struct.Struct("<BBHIQQQ")
OPTIONS = struct.Struct("<QQIHHBBBBHH")
BLOCK = struct.Struct("<IIII")
ATTRIBUTE = struct.Struct("<BBH")
PUT, MOVE, RETURN, TAG, REGISTER, QUEUE, FENCE, DEDUP = 1, 6, 7, 9, 10, 12, 13, 14
ENTER = 1
CREATE, STOP = 0, 2
ATTRIBUTE_BLOCK, NO_QUEUE = 13, 0xFFFF
CELL, SEGMENT_HEADER = 32, 4096
COMMIT_BYTES, COMMIT_MESSAGES, OPERATION_BYTES = 1 << 20, 4096, 16 << 10
SEGMENTS_MAX, SPARE_SEGMENTS = 4096, 4


@dataclass(slots=True)
class Live:
    """A message to write; `block` is its raw length and stored bytes when it cannot be written unpacked."""

    id: int
    queue: int
    level: int
    flags: int
    attributes: bytes
    body: bytes
    time_ns: int
    block: tuple[int, bytes] | None = None
    block_start: int = 0
    body_length: int = 0
    handouts: int = 0
    excused: int = 0
    suspect: bool = False
    parked: bool = False
    due_ns: int = 0
    due_put_ns: int = 0
    order: int = 0
    home: int = 0

    @property
    def stored(self) -> int:
        """Bytes in the data of a commit, at most."""
        data = len(self.body) if self.block is None else BLOCK.size + 16 + len(self.block[1])
        return len(self.attributes) + data


Operation = tuple[int, int, int, int, int, int, bytes]


@dataclass(slots=True)
class Group:
    """The messages of one commit: ids in a row, one time."""

    time_ns: int = 0
    messages: list[Live] = field(default_factory=list)
    size: int = 0

    def takes(self, message: Live, limit: int) -> bool:
        """Whether the message can be the next one."""
        if not self.messages:
            return True
        follows = message.id == self.messages[-1].id + 1 and message.time_ns == self.time_ns
        return follows and self.size + message.stored + 96 <= limit and len(self.messages) < COMMIT_MESSAGES

    def add(self, message: Live) -> None:
        self.time_ns = message.time_ns
        self.messages.append(message)
        self.size += message.stored + 96

    def operations(self) -> list[Operation]:
        """One PUT for each run of one lane, then what has happened to them."""
        ops: list[Operation] = []
        start = 0
        for index, message in enumerate(self.messages):
            following = self.messages[index + 1] if index + 1 < len(self.messages) else None
            if following is None or (following.home, following.level) != (message.home, message.level):
                irregular = int(any(other.flags & ~FRAME_BLOCK for other in self.messages[start : index + 1]))
                ops.append((PUT, message.level, message.home, start, index + 1 - start, irregular, b""))
                start = index + 1
        ops += [back(message) for message in self.messages if message.home == message.queue and changed(message)]
        return ops


def changed(message: Live) -> bool:
    """Whether more than its PUT has happened to it."""
    counts = message.handouts or message.excused
    return bool(counts or message.suspect or message.parked or message.due_ns != message.due_put_ns)


def back(message: Live) -> Operation:
    """The RETURN that leads to its state."""
    detail = int(message.suspect) | int(message.parked) << 1
    counts = message.handouts | message.excused << 32
    return RETURN, detail, message.queue, message.id, counts, message.due_ns, b""


def encoded(ops: Iterable[Operation]) -> bytes:
    """Operations as a commit stores them."""
    data = bytearray()
    for kind, detail, queue, id, a, b, extra in ops:
        data += OPERATION.pack(kind, detail, queue, len(extra), id, a, b) + extra
        data += bytes(-len(data) % CELL)
    return bytes(data)


def laid_out(ops: list[Operation], messages: list[Live]) -> bytearray:
    """A commit without its sums."""
    operations = encoded(ops)
    data = HEADER.size + len(operations) + FRAME.size * len(messages)
    directory, rest = bytearray(), bytearray()
    for message in messages:
        attributes, body, length, start = message.attributes, message.body, len(message.body), 0
        offset = data + len(rest)
        if message.block is not None:
            place = offset + len(attributes) + 8
            padding = -place % 8
            raw_length, stored = message.block
            attributes += ATTRIBUTE.pack(ATTRIBUTE_BLOCK, 0, 4) + struct.pack("<I", place + padding)
            body = bytes(padding) + BLOCK.pack(0, raw_length, len(stored), 1) + stored
            length, start = message.body_length, message.block_start
        lane = (len(attributes), message.home, message.level, message.flags, 0)
        directory += FRAME.pack(0, length, offset, 0, start, *lane)
        rest += attributes + body
    whole = bytearray(HEADER.size) + operations + directory + rest
    whole += bytes(-len(whole) % CELL)
    HEADER.pack_into(whole, 0, 0, 0, 0, 0, len(whole), len(operations), len(messages), len(ops), *([0] * 10))
    return whole


def without_block(attributes: bytes) -> bytes:
    """Attributes without the one that says where a compressed block lies."""
    kept, at = bytearray(), 0
    while at + ATTRIBUTE.size <= len(attributes):
        kind, _, length = ATTRIBUTE.unpack_from(attributes, at)
        if kind != ATTRIBUTE_BLOCK:
            kept += attributes[at : at + ATTRIBUTE.size + length]
        at += ATTRIBUTE.size + length
    return bytes(kept)


class Writer:
    """Appends sealed commits to the segments of a new repository."""

    def __init__(self, output: str, source: dict[str, Any]) -> None:
        self.output = output
        self.size, self.capacity = source["segment_size"], source["capacity"]
        created = time.time_ns()
        rest = (self.size, self.capacity, source["sync_unit"], source["compression"], created)
        self.builder = Builder(output, secrets.token_bytes(16), secrets.randbits(64), *rest)
        self.tail, self.chain, self.file, self.fd = SEGMENT_HEADER, 0, -1, -1
        self.time_ns, self.commits = source["created_at_ns"], 0

    @property
    def room(self) -> int:
        """Bytes of the longest commit."""
        return int(self.size) - SEGMENT_HEADER

    def _roll(self, first_lsn: int) -> None:
        self._close()
        self.file += 1
        if self.file >= SEGMENTS_MAX:
            raise OSError("what is valid does not fit into a repository")
        header = self.builder.segment(self.file, first_lsn)
        self.fd = os.open(os.path.join(self.output, f"seg.{self.file:06d}"), os.O_RDWR | os.O_CLOEXEC)
        os.pwrite(self.fd, header, 0)
        self.tail = first_lsn

    def _close(self) -> None:
        if self.fd >= 0:
            os.fsync(self.fd)
            os.close(self.fd)
        self.fd = -1

    def append(self, whole: bytearray, base_id: int = 0, time_ns: int = 0, flags: int = 0, durable: int = 0) -> None:
        """Stamp, sum and write one commit."""
        length = len(whole)
        turn = self.tail - self.tail % self.size
        if self.fd < 0:
            self._roll(self.tail)
        elif self.tail % self.size == 0 or self.tail % self.size + length > self.size:
            first = self.tail if self.tail % self.size == 0 else turn + self.size
            self._roll(first + SEGMENT_HEADER)
        self.time_ns = max(self.time_ns, time_ns)
        old = HEADER.unpack_from(whole)
        fixed = (self.tail, length, old[5], old[6], old[7], 1, 0, self.chain, durable, base_id, self.time_ns)
        HEADER.pack_into(whole, 0, 0, 0, flags, *fixed, 0, 0, 0, 0)
        sealed, self.chain = self.builder.seal(whole)
        os.pwrite(self.fd, sealed, self.tail % self.size)
        self.tail += length
        self.commits += 1

    def operations(self, ops: Iterable[Operation]) -> None:
        """Write operations without messages, some in each commit."""
        some: list[Operation] = []
        size = 0
        for op in ops:
            if some and size + len(op[6]) + 64 > OPERATION_BYTES:
                self.append(laid_out(some, []))
                some, size = [], 0
            some.append(op)
            size += len(op[6]) + 64
        if some:
            self.append(laid_out(some, []))

    def finish(self, next_id: int) -> None:
        """Close the log as a clean close would, durably."""
        mark = bytearray(HEADER.size)
        HEADER.pack_into(mark, 0, 0, 0, 0, 0, HEADER.size, *([0] * 13))
        self.append(mark, 0, time.time_ns(), COMMIT_MARK | COMMIT_CLOSE, self.tail)
        self._close()
        used = self.file + 1 + SPARE_SEGMENTS
        self.builder.finish(next_id, max(self.capacity, min(used, SEGMENTS_MAX) * self.size))


def queue_operations(queues: dict[int, dict[str, Any]]) -> Iterable[Operation]:
    """What makes the queues, their fences included."""
    for number, options in sorted(queues.items()):
        name = options["name"].encode("utf-8", "surrogateescape")
        target = NO_QUEUE if options["error_queue"] is None else options["error_queue"]
        bounds = (options["max_messages"], options["lease_ns"], options["max_attempts"], target, len(name))
        marks = (
            options["order"],
            options["volatile"],
            options["is_error_queue"],
            options["count_handouts"],
            len(options["indexes"]),
            0,
        )
        yield QUEUE, CREATE, number, 0, 0, 0, OPTIONS.pack(*bounds, *marks) + name + options["indexes"]
        if options["fence"] != (0, 0):
            yield FENCE, 0, number, 0, *options["fence"], b""


def registration_operations(registrations: Iterable[Registration]) -> Iterable[Operation]:
    """What makes the registrations and their tags."""
    for found in registrations:
        lengths = struct.pack("<HHI", len(found.name), 0, 0)
        yield REGISTER, int(found.stable), found.queue, 0, found.epoch, 0, lengths + found.name
        if found.kind or found.tag:
            lengths = struct.pack("<HHI", len(found.name), len(found.tag), 0)
            yield TAG, found.kind, found.queue, found.id, 0, 0, lengths + found.name + found.tag


def key_operations(keys: Iterable[Key]) -> Iterable[Operation]:
    """What enters the dedup keys, in the order of their puts; the engine forgets those beyond the window."""
    for found in sorted(keys, key=lambda key: key.id):
        a, b = struct.unpack("<QQ", found.digest)
        yield DEDUP, ENTER, found.queue, found.id, a, b, struct.pack("<Q", found.put_ns)


def stop_operations(queues: dict[int, dict[str, Any]]) -> Iterable[Operation]:
    """What stops those that were stopped."""
    for number, options in sorted(queues.items()):
        if options["stopped"]:
            yield QUEUE, STOP, number, 0, 0, 0, b""


class Messages:
    """Writes messages in the order of their ids, and moves in the order in which they came."""

    def __init__(self, writer: Writer, moves: list[tuple[int, int]], queues: dict[int, dict[str, Any]]) -> None:
        self.writer, self.queues, self.options = writer, sorted(queues), queues
        self.moves = sorted(moves, reverse=True)
        self.written: dict[int, Live] = {}
        self.group = Group()
        self.limit = min(COMMIT_BYTES, writer.room // 4)

    def flush(self) -> None:
        """Write the group."""
        if self.group.messages:
            whole = laid_out(self.group.operations(), self.group.messages)
            self.writer.append(whole, self.group.messages[0].id, self.group.time_ns)
        self.group = Group()

    def move_before(self, id: int | None) -> None:
        """Move what came before the message of that id; None: all the rest."""
        ops: list[Operation] = []
        while self.moves and (id is None or self.moves[-1][0] <= id):
            message = self.written.pop(self.moves.pop()[1], None)
            if message is not None and message.home != message.queue:
                counts = message.handouts | message.excused << 32
                options = self.options[message.queue]
                terms = self.writer.builder.terms(options["indexes"], options["order"], message.attributes)
                ops.append((MOVE, 0, message.home, message.id, message.queue, counts, terms))
                if message.suspect or message.parked or message.due_ns:
                    ops.append(back(message))
        if ops:
            self.flush()
            self.writer.operations(ops)

    def add(self, message: Live) -> None:
        """Write one message; ids ascend."""
        self.move_before(message.id)
        if message.order:
            others = [number for number in self.queues if number != message.queue]
            if message.home == message.queue or message.home not in self.queues:
                message.home = others[0] if others else message.queue
            self.written[message.id] = message
        else:
            message.home = message.queue
        if message.order and message.home == message.queue:
            message.flags &= ~FRAME_EXPIRES
        message.time_ns = max(message.time_ns or self.writer.time_ns, self.group.time_ns, self.writer.time_ns)
        if not self.group.takes(message, self.limit):
            self.flush()
        self.group.add(message)

    def finish(self) -> None:
        """Write what is left."""
        self.move_before(None)
        self.flush()
