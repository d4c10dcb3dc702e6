"""One source into one queue, from where it stopped to its end, each record once.

1. Records and the position after them are one commit (see `position`), so it can be killed at any point.
2. Nothing is committed for a record that was not seen whole: a stream that breaks off leaves the rest for
   later.
3. With parts, every process reads the whole source and puts the blocks of records that are its own; each
   part has a position of its own.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import click

import rota
from rota.cli.failures import Refused
from rota.cli.framing import cut
from rota.cli.places import commit_bytes
from rota.cli.position import TAIL_BYTES, Position, digest, held, registrant, remembered_plan
from rota.cli.records import BOM, BadRecord, Plan, Shaper, Splitter, parsed_row
from rota.cli.sources import HEAD_BYTES, Source

CHUNK_BYTES = 1 << 20
PART_BLOCK = 1000


@dataclass(frozen=True, slots=True)
class Settings:
    """How to ingest, apart from what a record is."""

    batch: int = 1000
    part: tuple[int, int] | None = None  # number from 1, of how many
    skip_bad: bool = False
    hold_partial: bool = False
    again: bool = False
    wait: bool = False

    @property
    def part_name(self) -> str:
        """What the part adds to the name of the source."""
        return "" if self.part is None else f"#{self.part[0]}/{self.part[1]}"

    def owns(self, number: int) -> bool:
        """Tell whether the record of this number, from 0, belongs to the part."""
        return self.part is None or number // PART_BLOCK % self.part[1] == self.part[0] - 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run did, and what all runs together did."""

    records: int
    skipped: int
    bytes: int
    seconds: float
    resumed_at: int
    offset: int
    records_total: int
    skipped_total: int


class Ingestion:
    """The way of one source into a queue."""

    def __init__(self, repository: rota.Repository, queue: rota.Queue, plan: Plan, settings: Settings) -> None:
        self.repository, self.queue = repository, queue
        self.plan, self.settings = plan, settings
        self.plan_fields = remembered_plan(plan)
        self.position = Position()
        self.complaints: Callable[[str], None] = lambda text: None
        self.progress: Callable[[int, int], None] = lambda done, count: None
        self.unterminated = False
        self.commit_bytes = commit_bytes(repository)

    def run(self, source: Source) -> Outcome:
        """Take all that is new; the lock is held from before the position is read."""
        started = time.monotonic()
        name = registrant(source.name, self.settings.part_name)
        with held(pathlib.Path(self.repository.path), self.queue.name, name, wait=self.settings.wait):
            self.registration = self.queue.register(name, stable=True)
            before = self.position = self.remembered(source)
            self.take(source)
        return Outcome(
            records=self.position.put - before.put,
            skipped=self.position.skipped - before.skipped,
            bytes=self.position.offset - before.offset,
            seconds=time.monotonic() - started,
            resumed_at=before.offset,
            offset=self.position.offset,
            records_total=self.position.put,
            skipped_total=self.position.skipped,
        )

    def remembered(self, source: Source) -> Position:
        """Return the position that the last commit of this source left."""
        last = self.registration.last
        if last is None or not last.tag or self.settings.again:
            return Position()
        position = Position.of_tag(last.tag, str(source))
        position.check_plan(self.plan, str(source))
        return position

    def take(self, source: Source) -> None:
        """Read from the position to the end, commit by commit."""
        # Not more than was taken before: a pipe may have no more to give yet.
        seen = source.read_fully(min(HEAD_BYTES, self.position.offset)) or source.read(HEAD_BYTES)
        self.check_head(source)
        if not seen:
            return
        columns, start = self.header(source)
        first = self.reach(source, self.position.offset or start)
        if self.position.offset == 0:
            self.position = replace(self.position, offset=start)
        if first is None:
            return
        try:
            shaper = Shaper(self.plan, columns)
        except LookupError as error:
            raise click.UsageError(f"{source}: {error.args[0]}.") from None
        splitter = self.plan.splitter()
        taken_before = self.position.put
        for pieces in self.pieces(source, splitter, first):
            for batch in cut(pieces, self.settings.batch, self.commit_bytes):
                self.commit(source, shaper, batch, last=self.unterminated and batch[-1] is pieces[-1])
                self.progress(source.progress(), self.position.put - taken_before)

    def check_head(self, source: Source) -> None:
        """Refuse a source whose first bytes are not those of the one that was begun."""
        length, known = self.position.head
        if len(source.head) < length or (length and digest(source.head[:length]) != known):
            raise Refused(
                f"{source} has changed: its first {length:,} bytes are not those that were ingested; "
                "give another --source NAME to take it as a new one"
            )

    def header(self, source: Source) -> tuple[list[str] | None, int]:
        """Return the columns of a CSV header, or None, and where the first record starts."""
        while len(source.head) < len(BOM) and source.read(len(BOM)):
            pass
        start = len(BOM) if self.plan.format != "lines" and source.head.startswith(BOM) else 0
        if self.plan.format != "csv" or not self.plan.header:
            return None, start
        splitter = self.plan.splitter()
        pieces = splitter.feed(source.head[start:])
        while not pieces and (chunk := source.read(HEAD_BYTES - source.position)):
            pieces = splitter.feed(chunk)
        if not pieces and source.position == HEAD_BYTES:
            raise Refused(f"{source}: the header is longer than {HEAD_BYTES:,} bytes")
        line = pieces[0] if pieces else splitter.finish() or b""
        try:
            columns = parsed_row(line.removesuffix(b"\r"), self.plan.separator) if line else []
        except BadRecord as error:
            raise Refused(f"{source}: the header cannot be read: {error}") from None
        if self.plan.as_json and len(set(columns)) < len(columns):
            raise Refused(f"{source}: the header names a column twice, so its rows cannot become JSON objects")
        return columns, start + len(line) + bool(pieces)

    def reach(self, source: Source, start: int) -> bytes | None:
        """Go to a position, check the bytes before it, and return those behind it that were read already."""
        length, known = self.position.tail
        before = start - length
        if before >= source.position:
            tail = source.read_fully(length) if source.skip_to(before) else b""
            first = b""
        else:
            # Until now no more was read than the head.
            data = source.head + source.read_fully(max(0, start - source.position))
            tail, first = data[max(0, before) : start], data[start:]
        if len(tail) < length:
            raise Refused(f"{source} is shorter than the {start:,} bytes that were taken from it: it has changed")
        if length and digest(tail) != known:
            raise Refused(f"{source} has changed before byte {start:,}, where its ingestion had stopped")
        return self.after_unterminated(source, first) if self.position.unterminated else first

    def after_unterminated(self, source: Source, first: bytes) -> bytes | None:
        """Pass the newline that the last record lacked; None when there still is nothing behind it."""
        while first in (b"", b"\r") and (more := source.read(1)):
            first += more
        if not first:
            return None
        newline = next((end for end in (b"\n", b"\r\n") if first.startswith(end)), None)
        if newline is None:
            raise Refused(
                f"{source}: the last record that was taken had no newline, and now it goes on; "
                "--hold-partial leaves such a record until its newline is there"
            )
        self.position = replace(self.position, offset=self.position.offset + len(newline), unterminated=False)
        return first[len(newline) :]

    def pieces(self, source: Source, splitter: Splitter, first: bytes) -> Iterator[list[bytes]]:
        """Yield the pieces of the rest of the source; `unterminated` is set with one that has no newline."""
        try:
            while chunk := first or source.read(CHUNK_BYTES):
                first = b""
                if pieces := splitter.feed(chunk):
                    yield pieces
        except BadRecord as error:
            raise self.refusal(source, error, self.position.seen) from None
        rest = splitter.finish()
        if rest is None or self.settings.hold_partial:
            return
        if splitter.quoted:
            raise self.refusal(source, BadRecord("it has a quote that never ends"), self.position.seen)
        self.unterminated = True
        yield [rest]

    def refusal(self, source: Source, error: BadRecord, number: int) -> Refused:
        """Return what to say of a bad record."""
        return Refused(f"{source}: record {number + 1:,} is refused: {error}; all before it were taken")

    def commit(self, source: Source, shaper: Shaper, pieces: list[bytes], *, last: bool) -> None:
        """Put the records of some pieces together with the position behind them."""
        bodies: list[bytes] = []
        keys: list[bytes | str | None] = []
        skipped, refused = 0, None
        for place, piece in enumerate(pieces):
            number = self.position.seen + place
            if not self.settings.owns(number):
                continue
            try:
                shaped = shaper.shape(piece)
            except BadRecord as error:
                refused = self.refusal(source, error, number)
                if not self.settings.skip_bad:
                    pieces, last = pieces[:place], False
                    break
                self.complaints(str(refused.message))
                skipped, refused = skipped + 1, None
                continue
            if shaped is not None:
                bodies.append(shaped[0])
                keys.append(shaped[1])
        after = self.moved(source, pieces, len(bodies), skipped, unterminated=last)
        if bodies:
            self.put(bodies, keys if shaper.plan.key_column is not None else None, after.tag(source.name))
        self.position = after
        if refused is not None:
            raise refused

    def moved(self, source: Source, pieces: list[bytes], put: int, skipped: int, *, unterminated: bool) -> Position:
        """Return the position behind some pieces."""
        before = self.position
        if not pieces:
            return before
        offset = before.offset + sum(map(len, pieces)) + len(pieces) - unterminated
        head_length = min(len(source.head), offset)
        head = before.head
        if head[0] != head_length:
            head = (head_length, digest(source.head[:head_length]))
        raw = b"\n".join(last_pieces(pieces, TAIL_BYTES)) + (b"" if unterminated else b"\n")
        return Position(
            offset=offset,
            seen=before.seen + len(pieces),
            put=before.put + put,
            skipped=before.skipped + skipped,
            unterminated=unterminated,
            head=head,
            tail=(len(raw[-TAIL_BYTES:]), digest(raw[-TAIL_BYTES:])),
            plan=self.plan_fields,
        )

    def put(self, bodies: list[bytes], keys: list[bytes | str | None] | None, tag: bytes) -> None:
        """Commit bodies and tag together; while there is no room it waits."""
        with self.repository.transaction() as transaction:
            transaction.put_many(self.queue, bodies, keys=keys)
            transaction.tag(self.registration, tag)


def last_pieces(pieces: list[bytes], size: int) -> list[bytes]:
    """Return the pieces at the end that have this many bytes together, or all."""
    for place in range(len(pieces) - 1, -1, -1):
        size -= len(pieces[place]) + 1
        if size <= 0:
            return pieces[place:]
    return pieces
