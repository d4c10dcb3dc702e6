"""What the log says, as plain values: operations with names, messages with their attributes.

Numbers that mean a time are nanoseconds since the epoch, as they are stored.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from rota._core import inspection as _inspection
from rota._core.codec import decode_headers
from rota._core.inspection import Inspector

StoredOperation: TypeAlias = tuple[int, int, int, int, int, int, bytes]
StoredMessage: TypeAlias = tuple[int, int, int, int, int, bytes, int, int, int]

FRAME_BLOCK, FRAME_COPIED, FRAME_DUE, FRAME_EXPIRES = 1, 2, 4, 8
COMMIT_MARK, COMMIT_COPIES, COMMIT_CLOSE = 1, 2, 4
GOOD = 0
HEADER_BYTES, FRAME_BYTES = 96, 32

KINDS = {
    1: "put",
    2: "ack",
    3: "ack_list",
    4: "kill",
    5: "expire",
    6: "move",
    7: "return",
    8: "copy",
    9: "tag",
    10: "register",
    11: "deregister",
    12: "queue",
    13: "fence",
    14: "dedup",
    15: "saga",
    16: "checkpoint",
}
QUEUE_ACTIONS = ("create", "configure", "stop", "start", "destroy")
MOVE_REASONS = ("user", "attempts", "expired", "redrive")
ATTRIBUTES = {
    1: "key",
    2: "key",
    3: "headers",
    4: "due_ns",
    5: "expiry_ns",
    6: "client",
    7: "rid",
    8: "reply_to",
    9: "origin",
    10: "saga",
    11: "error",
    12: "dedup",
    13: "block",
    14: "put_at_ns",
    15: "status",
}
KEY_TEXT = 2
NUMBERS = {4: "<Q", 5: "<Q", 9: "<H", 13: "<I", 14: "<Q", 15: "<B"}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a commit; `fields` names what its kind stores."""

    kind: str
    queue: int
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message as its frame describes it; `damage` is empty when its checksum matches.

    `queue` is the number of the queue that holds it.  From live(), the fields from `handouts` on say what has happened
    to it; `due_ns` is 0 when it was never delayed.
    """

    id: int
    queue: int
    priority: int
    body_length: int
    attributes: Mapping[str, Any]
    copied: bool
    damage: str
    file: int
    offset: int
    block: int | None = field(default=None, repr=False)
    block_start: int = field(default=0, repr=False)
    place: int = field(default=0, repr=False)
    time_ns: int = 0
    handouts: int = 0
    excused: int = 0
    due_ns: int = 0
    suspect: bool = False
    parked: bool = False
    moved: bool = False
    in_error_queue: bool = False
    source: Inspector | None = field(default=None, repr=False, compare=False)

    @property
    def attempts(self) -> int:
        """Hand-outs that count."""
        return self.handouts - self.excused

    @property
    def key(self) -> bytes | str | None:
        """The key, as it was put."""
        found: bytes | str | None = self.attributes.get("key")
        return found

    @property
    def headers(self) -> dict[str, Any]:
        """The headers, a new dict; empty when they are malformed."""
        try:
            return dict(decode_headers(self.attributes.get("headers", b"")))
        except ValueError:
            return {}

    @property
    def expiry_ns(self) -> int:
        """When it expires, 0: never.  One that was moved does not."""
        return 0 if self.moved else int(self.attributes.get("expiry_ns", 0))

    @property
    def state(self) -> str:
        """parked, delayed or ready (which a claimed one is as well: the files do not know claims)."""
        return "parked" if self.parked else "delayed" if self.due_ns > time.time_ns() else "ready"


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: where it lies, when it was written, what it did."""

    lsn: int
    length: int
    epoch: int
    sub_epoch: int
    time_ns: int
    durable_lsn: int
    base_id: int
    token: tuple[int, int] | None
    is_mark: bool
    is_close: bool
    operations: tuple[Operation, ...]
    messages: tuple[Message, ...]
    file: int
    offset: int
    chain: int = field(repr=False)


def _ids(extra: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(extra) // 8}Q", extra)


def _counts(value: int) -> dict[str, int]:
    return {"handouts": value & 0xFFFFFFFF, "excused": value >> 32}


def _tag(extra: bytes) -> dict[str, Any]:
    name_length, tag_length, home = struct.unpack_from("<HHH", extra)
    name = extra[8 : 8 + name_length]
    return {
        "name": name.decode("utf-8", "surrogateescape"),
        "home": home - 1 if home else None,
        "tag": extra[8 + name_length : 8 + name_length + tag_length],
    }


def queue_fields(extra: bytes) -> dict[str, Any]:
    """The options of a queue, its name, and what it indexes, as stored."""
    names = ("max_messages", "lease_ns", "max_attempts", "error_queue", "name_length", "order")
    fields: dict[str, Any] = dict(zip(names, struct.unpack_from("<QQIHHB", extra), strict=True))
    end = 32 + fields.pop("name_length")
    fields["name"] = extra[32:end].decode("utf-8", "surrogateescape")
    fields["indexes"] = extra[end : end + int.from_bytes(extra[28:30], "little")]
    fields["volatile"], fields["is_error_queue"], fields["count_handouts"] = map(bool, extra[25:28])
    fields["error_queue"] = None if fields["error_queue"] == 0xFFFF else fields["error_queue"]
    return fields


def _queue(detail: int, extra: bytes) -> dict[str, Any]:
    return {"action": QUEUE_ACTIONS[detail], **(queue_fields(extra) if extra else {})}


def operation(kind: int, detail: int, queue: int, id: int, a: int, b: int, extra: bytes) -> Operation:
    """Give one stored operation its names."""
    name = KINDS.get(kind, str(kind))
    fields: dict[str, Any]
    if name in ("put", "copy"):
        fields = {"priority": detail, "first": id, "count": a}
    elif name == "ack":
        fields = {"priority": detail, "first_id": id, "last_id": a, "count": b}
    elif name in ("ack_list", "expire"):
        fields = {"ids": _ids(extra)}
    elif name == "move":
        fields = {"id": id, "target": a, "reason": MOVE_REASONS[detail], **_counts(b)}
    elif name == "return":
        fields = {
            "id": id,
            "due_ns": b,
            "suspect": bool(detail & 1),
            "parked": bool(detail & 2),
            **_counts(a),
        }
    elif name in ("tag", "register", "deregister"):
        fields = {"id": id, "detail": detail, "epoch": a, "expected_lsn": b, **_tag(extra)}
    elif name == "queue":
        fields = _queue(detail, extra)
    elif name == "fence":
        fields = {"generation": a, "number": b}
    elif name == "dedup":
        fields = {
            "id": id,
            "detail": detail,
            "digest": struct.pack("<QQ", a, b),
            "put_ns": int.from_bytes(extra, "little"),
        }
    elif name == "checkpoint":
        fields = {"block": id, "begin_lsn": a, "length": len(extra)}
    else:
        fields = {"id": id}
    return Operation(name, queue, MappingProxyType(fields))


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return value.decode("utf-8", "replace")


def attributes(stored: bytes) -> dict[str, Any]:
    """Take the attributes of a message apart; what is malformed ends them."""
    found: dict[str, Any] = {}
    offset = 0
    while offset + 4 <= len(stored):
        kind, _, length = struct.unpack_from("<BBH", stored, offset)
        value: Any = stored[offset + 4 : offset + 4 + length]
        if kind in NUMBERS and len(value) == struct.calcsize(NUMBERS[kind]):
            (value,) = struct.unpack(NUMBERS[kind], value)
        elif kind == KEY_TEXT:
            value = _text(value)
        found[ATTRIBUTES.get(kind, f"attribute_{kind}")] = value
        offset += 4 + length
    return found


def message(file: int, offset: int, stored: StoredMessage, place: int = 0, time_ns: int = 0) -> Message:
    """Describe one message of the commit at that offset of that file."""
    id, queue, priority, flags, body_length, attribute_bytes, body, result, raw = stored
    named = attributes(attribute_bytes)
    block = named.pop("block", None) if flags & FRAME_BLOCK else None
    return Message(
        id=id,
        queue=queue,
        priority=priority,
        body_length=body_length,
        attributes=MappingProxyType(named),
        copied=bool(flags & FRAME_COPIED),
        damage="" if result == GOOD else _inspection.scan_text(result),
        file=file,
        offset=offset + body,
        block=None if block is None else offset + block,
        block_start=raw,
        place=place,
        time_ns=time_ns,
    )


def commit(
    file: int,
    offset: int,
    chain: int,
    header: tuple[int, ...],
    operations: list[StoredOperation],
    messages: list[StoredMessage],
) -> Commit:
    """Describe one commit."""
    lsn, length, flags, _, _, _, epoch, sub_epoch, _, durable_lsn, base_id, time_ns, generation, number = header
    directory = offset + HEADER_BYTES + header[3]
    return Commit(
        lsn=lsn,
        length=length,
        epoch=epoch,
        sub_epoch=sub_epoch,
        time_ns=time_ns,
        durable_lsn=durable_lsn,
        base_id=base_id,
        token=(generation, number) if generation or number else None,
        is_mark=bool(flags & COMMIT_MARK),
        is_close=bool(flags & COMMIT_CLOSE),
        operations=tuple(operation(*stored) for stored in operations),
        messages=tuple(
            message(file, offset, stored, directory + FRAME_BYTES * index, time_ns)
            for index, stored in enumerate(messages)
        ),
        file=file,
        offset=offset,
        chain=chain,
    )
