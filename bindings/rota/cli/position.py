"""How far a source has been taken: the tag that is committed with its records, and the lock beside it.

1. The tag of a registration of the target queue holds the position; the records of a batch and the position
   after them are one commit, so at any time, whatever was killed, they agree.
2. The registration is named after the source, so another source, or another queue, has a position of its own.
3. A source is taken on only if it still is what it was: the digest of its first bytes, and of the last ones
   before the position, are in the tag. What follows the position may have grown.
4. One process at a time ingests one source into one queue: a byte of the repository's lock file, chosen
   by the name, is locked before the position is read and until the end. The kernel frees it when the
   process dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pathlib
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from rota.cli.failures import Refused
from rota.cli.records import Plan
from rota.cli.text import printable

TAIL_BYTES = 4 << 10
NAME_BYTES_MAX = 200
SHORT_NAME = 120  # characters; escaped for JSON they are at most six times as many bytes
# Far above the bytes that stand for the gate and the process slots.
LOCK_BASE = 1 << 60
LOCK_FORMAT = "hhqqi0q"


def digest(data: bytes) -> str:
    """Return the digest that a tag keeps of some bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Position:
    """How far a source has been taken, and how to tell that it is still the same."""

    offset: int = 0  # of the decompressed stream; the next record starts here
    seen: int = 0  # records before the offset, whether put or not
    put: int = 0
    skipped: int = 0
    unterminated: bool = False  # the last record had no newline behind it
    head: tuple[int, str] = (0, "")  # length and digest of the first bytes
    tail: tuple[int, str] = (0, "")  # of the last bytes before the offset
    plan: dict[str, Any] = field(default_factory=dict)

    def tag(self, source: str) -> bytes:
        """Return what the registration keeps: JSON, so that a person can read it in a dump."""
        return json.dumps({"source": printable(source)[-SHORT_NAME:], **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def of_tag(cls, tag: bytes, source: str) -> Position:
        """Return the position that a tag holds; the tag is as untrusted as any file."""
        try:
            fields = json.loads(tag)
            del fields["source"]
            position = cls(**fields)
            numbers = (position.offset, position.seen, position.put, position.skipped)
            lengths = (position.head[0], position.tail[0])
            if not all(isinstance(number, int) and number >= 0 for number in (*numbers, *lengths)):
                raise ValueError
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            raise Refused(
                f"what is kept of {source} is no position ({printable(tag, 60)}); give another --source NAME"
            ) from None
        return position

    def check_plan(self, plan: Plan, source: str) -> None:
        """Refuse to go on by other options than those it was begun with."""
        for name, value in remembered_plan(plan).items():
            if name in self.plan and self.plan[name] != value:
                raise Refused(
                    f"{source} was begun with {name.replace('_', ' ')} {self.plan[name]!r}, not {value!r}; "
                    "give the same options, or another --source NAME to take all of it again"
                )


def remembered_plan(plan: Plan) -> dict[str, Any]:
    """Return the options that a tag keeps; a tag has an upper limit, so a long name is cut."""
    fields = asdict(plan)
    if plan.key_column is not None:
        fields["key_column"] = printable(plan.key_column)[:SHORT_NAME]
    return fields


def registrant(source: str, part: str = "", *, kind: str = "ingest") -> str:
    """Return the name of the registration: the source's own where it fits, else its end and a digest."""
    name = printable(source) + part
    if len(name.encode()) > NAME_BYTES_MAX:
        name = f"{digest((source + part).encode('utf-8', 'surrogatepass'))}:…{name[-NAME_BYTES_MAX // 4 :]}"
    return f"{kind}:{name}"


@contextmanager
def held(directory: pathlib.Path, queue: str, name: str, *, wait: bool) -> Iterator[None]:
    """Hold the right to ingest a source into a queue; refused at once, or waited for, when another has it."""
    key = hashlib.blake2b(f"{queue}\0{name}".encode("utf-8", "surrogatepass"), digest_size=6).digest()
    lock = struct.pack(LOCK_FORMAT, fcntl.F_WRLCK, os.SEEK_SET, LOCK_BASE + int.from_bytes(key, "big"), 1, 0)
    file = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, lock)
        except BlockingIOError:
            raise Refused("another process is ingesting it (--wait waits for the end of that)") from None
        yield
    finally:
        os.close(file)
