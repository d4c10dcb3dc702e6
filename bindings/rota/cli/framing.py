"""Records from a stream, and back to one: ended by a delimiter, or led by their length.

1. Every byte of the input belongs to one record or delimiter; a last record needs no delimiter after it.
2. A record is handed on as soon as it has come in, so a slow writer at the other end of a pipe waits for
   nothing.
3. A length prefix is four bytes, the highest first.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import click

from rota.cli.failures import FAILED, Failure, Refused

CHUNK_BYTES = 1 << 20
RECORD_BYTES_MAX = 256 << 20
OVERHEAD_BYTES = 192  # of a message beside its body: header, key, padding
PREFIX = struct.Struct(">I")
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Readable(Protocol):
    """What a stream must do: return the bytes that are there, b"" at the end."""

    def read1(self, size: int, /) -> bytes:
        """Return at most `size` bytes, waiting only when there are none."""


def framing_options(function: Decorated) -> Decorated:
    """Add --delimiter, --null and --length-prefixed to a command."""
    function = click.option("--length-prefixed", is_flag=True, help="Records are led by 4 bytes of length.")(function)
    function = click.option("--null", is_flag=True, help="Records end with a NUL byte, as of `find -print0`.")(function)
    return click.option(
        "--delimiter",
        metavar="TEXT",
        help=r"Records end with this; \n, \t, \0, \xff are understood. [a newline]",
    )(function)


def unescape(text: str) -> bytes:
    r"""Return the bytes a delimiter stands for: \n, \r, \t, \0, \\ and \xff are understood."""

    def one(match: re.Match[str]) -> str:
        if match[1] in ESCAPES:
            return ESCAPES[match[1]]
        code = int(match[1][1:], 16)
        # A byte that is no ASCII travels as the surrogate that stands for it.
        return chr(code if code < 0x80 else 0xDC00 + code)

    return re.sub(r"\\(x[0-9a-fA-F]{2}|[nrt0\\])", one, text).encode("utf-8", "surrogateescape")


def chosen_delimiter(delimiter: str | None, null: bool, length_prefixed: bool) -> bytes | None:
    """Return the delimiter that the options ask for, or None for length prefixes."""
    if (delimiter is not None) + null + length_prefixed > 1:
        raise click.UsageError("--delimiter, --null and --length-prefixed exclude each other.")
    if length_prefixed:
        return None
    if null:
        return b"\0"
    if delimiter is None:
        return b"\n"
    if not delimiter:
        raise click.UsageError("--delimiter must not be empty.")
    return unescape(delimiter)


def read_records(stream: Readable, delimiter: bytes | None) -> Iterator[list[bytes]]:
    """Yield the records of a stream, those of one read together."""
    return length_prefixed_records(stream) if delimiter is None else delimited_records(stream, delimiter)


def delimited_records(stream: Readable, delimiter: bytes) -> Iterator[list[bytes]]:
    """Yield the records between delimiters."""
    pending = bytearray()
    while chunk := stream.read1(CHUNK_BYTES):
        # A delimiter of several bytes may lie across the seam; no byte is searched twice.
        unsearched = max(0, len(pending) - len(delimiter) + 1)
        pending += chunk
        if pending.find(delimiter, unsearched) >= 0:
            *records, rest = bytes(pending).split(delimiter)
            pending = bytearray(rest)
            yield records
        elif len(pending) > RECORD_BYTES_MAX:
            raise Refused(f"a record is longer than {RECORD_BYTES_MAX >> 20} MiB; is the delimiter right?")
    if pending:
        yield [bytes(pending)]


def length_prefixed_records(stream: Readable) -> Iterator[list[bytes]]:
    """Yield the records of a stream of lengths and bodies."""
    buffer = bytearray()
    taken = 0
    while chunk := stream.read1(CHUNK_BYTES):
        buffer += chunk
        records, start = [], 0
        while start + PREFIX.size <= len(buffer):
            (length,) = PREFIX.unpack_from(buffer, start)
            if length > RECORD_BYTES_MAX:
                raise Refused(f"the record at byte {taken + start} claims {length:,} bytes: not length-prefixed?")
            if start + PREFIX.size + length > len(buffer):
                break
            start += PREFIX.size
            records.append(bytes(buffer[start : start + length]))
            start += length
        del buffer[:start]
        taken += start
        if records:
            yield records
    if buffer:
        raise Failure(FAILED, f"the input ends in the middle of the record at byte {taken}; all before it were put")


def framed(body: bytes, delimiter: bytes | None) -> bytes:
    """Return a record with its delimiter or its length."""
    return PREFIX.pack(len(body)) + body if delimiter is None else body + delimiter


def cut(pieces: Iterable[bytes], count: int, size: int) -> Iterator[list[bytes]]:
    """Yield the pieces in batches: so many at most, and so many bytes unless one alone has more."""
    batch: list[bytes] = []
    weight = 0
    for piece in pieces:
        own = len(piece) + OVERHEAD_BYTES
        if batch and (len(batch) == count or weight + own > size):
            yield batch
            batch, weight = [], 0
        batch.append(piece)
        weight += own
    if batch:
        yield batch
