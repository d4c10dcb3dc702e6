"""Where a record of a line-based format ends, and what it holds.

1. Pieces are lossless: joined with newlines they are the stream again, so a position is a sum of lengths.
2. A CSV record ends at the first newline that is not inside quotes, by the rules of the csv module: a quote
   opens only at the start of a field, two inside quotes are one, and after the closing one anything goes.
3. Nothing is decoded to find the ends: newline, quote and separator are bytes that no UTF-8 sequence
   contains.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

RECORD_BYTES_MAX = 256 << 20
BOM = b"\xef\xbb\xbf"
FORMATS = ("csv", "jsonl", "lines")
ENDINGS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonlines": "jsonl",
}

csv.field_size_limit(RECORD_BYTES_MAX)


class BadRecord(ValueError):
    """A record that cannot be turned into a message."""


class Splitter:
    """Cuts a stream into pieces without their newlines; with a separator, newlines inside quotes stay."""

    def __init__(self, separator: bytes | None = None) -> None:
        self.separator = separator
        self.partial: list[bytes] = []  # of the unfinished line
        self.size = 0  # of all that is unfinished
        self.open: list[bytes] = []  # lines of a record whose quote is not closed yet
        self.quoted = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the pieces that this chunk completes."""
        first, newline, rest = chunk.partition(b"\n")
        self.partial.append(first)
        self.size += len(first)
        if self.size > RECORD_BYTES_MAX:
            raise BadRecord(f"it is longer than {RECORD_BYTES_MAX >> 20} MiB, or has a quote that never ends")
        if not newline:
            return []
        lines = rest.split(b"\n")
        lines.insert(0, b"".join(self.partial))
        self.partial = [lines.pop()]
        if self.separator is None or not (self.open or any(b'"' in line for line in lines)):
            self.size = len(self.partial[0])
            return lines
        pieces = list(self.whole(lines, self.separator))
        self.size = len(self.partial[0]) + sum(map(len, self.open))
        return pieces

    def whole(self, lines: Iterable[bytes], separator: bytes) -> Iterator[bytes]:
        """Yield lines, those of one quoted record joined."""
        for line in lines:
            if not self.quoted and b'"' not in line:
                yield line
                continue
            self.quoted = ends_quoted(line, separator, self.quoted)
            self.open.append(line)
            if not self.quoted:
                yield b"\n".join(self.open)
                self.open = []

    def finish(self) -> bytes | None:
        """Return what stands after the last newline that ended a record, or None for nothing."""
        lines = [*self.open, b"".join(self.partial)]
        rest = b"\n".join(lines)
        if self.separator is not None and (self.quoted or b'"' in lines[-1]):
            self.quoted = ends_quoted(lines[-1], self.separator, self.quoted)
        return rest or None


def ends_quoted(line: bytes, separator: bytes, quoted: bool) -> bool:
    """Tell whether the end of a line lies inside quotes; `quoted`: its start does."""
    place, starts_field = 0, not quoted
    while True:
        if quoted:
            place = line.find(b'"', place)
            if place < 0:
                return True
            if line[place + 1 : place + 2] == b'"':
                place += 2
                continue
            quoted = False
        elif starts_field and line[place : place + 1] == b'"':
            place += 1
            quoted, starts_field = True, False
            continue
        place = line.find(separator, place)
        if place < 0:
            return False
        place, starts_field = place + len(separator), True


@dataclass(frozen=True, slots=True)
class Plan:
    """How pieces become messages; a source is ingested by one plan from its start to its end."""

    format: str
    separator: str = ","
    header: bool = True
    as_json: bool = False
    key_column: str | None = None

    def splitter(self) -> Splitter:
        """Return what cuts the stream for this format."""
        return Splitter(self.separator.encode() if self.format == "csv" else None)


class Shaper:
    """Turns pieces into bodies and keys."""

    def __init__(self, plan: Plan, columns: Sequence[str] | None) -> None:
        self.plan = plan
        self.columns = columns
        self.key_index = self.found_key() if plan.format == "csv" and plan.key_column is not None else None

    def found_key(self) -> int:
        """Return the index of the key column, by name or, without a header, by number from 1."""
        wanted = self.plan.key_column
        if self.columns is None:
            if wanted is None or not wanted.isdecimal() or int(wanted) < 1:
                raise LookupError("without a header a key column is a number, from 1")
            return int(wanted) - 1
        if wanted not in self.columns:
            raise LookupError(f"there is no column {wanted!r}; there are {', '.join(self.columns)}")
        return self.columns.index(wanted)

    def shape(self, piece: bytes) -> tuple[bytes, bytes | str | None] | None:
        """Return body and key of a piece, or None for a blank one; BadRecord says what is wrong with it."""
        if self.plan.format == "lines":
            return piece, None
        piece = piece.removesuffix(b"\r")
        if not piece:
            return None
        if not self.plan.as_json and self.plan.key_column is None:
            return piece, None
        return self.csv_row(piece) if self.plan.format == "csv" else self.json_value(piece)

    def csv_row(self, piece: bytes) -> tuple[bytes, bytes | str | None]:
        """Return the raw record or its JSON, and the value of the key column."""
        row = parsed_row(piece, self.plan.separator)
        if self.columns is not None and len(row) != len(self.columns):
            raise BadRecord(f"it has {len(row)} fields, the header {len(self.columns)}")
        key = None
        if self.key_index is not None:
            if self.key_index >= len(row):
                raise BadRecord(f"it has {len(row)} fields, the key is in field {self.key_index + 1}")
            key = plain(row[self.key_index])
        if not self.plan.as_json:
            return piece, key
        value = row if self.columns is None else dict(zip(self.columns, row, strict=True))
        return dense_json(value), key

    def json_value(self, piece: bytes) -> tuple[bytes, bytes | str | None]:
        """Return the raw line or the value written anew, and the value of the key field."""
        try:
            value = json.loads(piece)
        except (ValueError, RecursionError) as error:
            raise BadRecord(f"it is no JSON ({error})") from None
        key = None
        if self.plan.key_column is not None:
            if not isinstance(value, dict) or self.plan.key_column not in value:
                raise BadRecord(f"it has no field {self.plan.key_column!r}")
            found = value[self.plan.key_column]
            key = None if found is None else plain(found if isinstance(found, str) else json.dumps(found))
        return dense_json(value) if self.plan.as_json else piece, key


def parsed_row(piece: bytes, separator: str) -> list[str]:
    """Return the fields of one CSV record; bytes that are no UTF-8 come back as lone surrogates."""
    text = piece.decode("utf-8", "surrogateescape")
    try:
        return next(csv.reader([text], delimiter=separator))
    except csv.Error as error:
        raise BadRecord(str(error)) from None


def plain(text: str) -> bytes | str:
    """Return text as a key; where it stands for bytes that are no text, as those."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        pass
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text


def dense_json(value: Any) -> bytes:
    """Return a value as JSON without spaces; what is no valid Unicode is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def format_of(name: str) -> str:
    """Return the format that the ending of a name tells; lines when it tells none."""
    return next((form for ending, form in ENDINGS.items() if name.lower().endswith(ending)), "lines")
