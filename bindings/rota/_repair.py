"""Save what is valid of a damaged repository into a new one.

What holds:

1. The damaged one is only read.  The output directory must not exist or must be empty.
2. A message is written only if its checksum matches and its id is certain: its commit's header, or its own
   frame, names it.  Nothing is invented; what was lost is listed.
3. Commits keep their order, their ids and their operations; positions, chain and sums are new, under a new
   salt and uuid, so no piece of the old files is ever taken for one of the new.
4. Settlements that were lost with a damaged commit bring their messages back: delivered again, never lost
   without a word.
"""

from __future__ import annotations

import os
import secrets
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rota._core.inspection import Builder, InspectionError, Inspector
from rota._records import COMMIT_CLOSE, COMMIT_MARK, FRAME_BLOCK, FRAME_COPIED, GOOD, StoredMessage

HEADER = struct.Struct("<IHHQIIIIIIQQQQQQII")
FRAME = struct.Struct("<IIIIQHHBBH")
OPERATION = struct.Struct("<BBHIQQQ")
PUT, KILL, COPY, CHECKPOINT = 1, 4, 8, 16
CELL, SEGMENT_HEADER = 32, 4096
ID_ROUNDING = 1 << 20


@dataclass(slots=True)
class RepairReport:
    """What repair saved and what it could not."""

    output: str
    commits: int = 0
    messages: int = 0
    salvaged: int = 0
    lost_ids: list[int] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether nothing below the proven end was lost."""
        return not self.lost_ids and not self.gaps


@dataclass(slots=True)
class Piece:
    """A commit to write: its old bytes, or operations and messages made from what was left of one."""

    base_id: int
    time_ns: int
    token: tuple[int, int]
    flags: int
    whole: bytearray


class Writer:
    """Appends sealed commits to the segments of a new repository."""

    def __init__(self, output: str, source: dict[str, int], segments: int) -> None:
        self.output = output
        self.size = source["segment_size"]
        self.builder = Builder(
            output,
            secrets.token_bytes(16),
            secrets.randbits(64),
            self.size,
            max(source["capacity"], segments * self.size),
            source["sync_unit"],
            source["compression"],
            time.time_ns(),
        )
        self.tail, self.chain, self.file, self.fd = SEGMENT_HEADER, 0, -1, -1

    def _roll(self, first_lsn: int) -> None:
        self._close()
        self.file += 1
        header = self.builder.segment(self.file, first_lsn)
        self.fd = os.open(os.path.join(self.output, f"seg.{self.file:06d}"), os.O_RDWR | os.O_CLOEXEC)
        os.pwrite(self.fd, header, 0)
        self.tail = first_lsn

    def _close(self) -> None:
        if self.fd >= 0:
            os.fsync(self.fd)
            os.close(self.fd)
        self.fd = -1

    def append(self, piece: Piece, durable_lsn: int = 0) -> None:
        """Stamp, sum and write one commit."""
        length = len(piece.whole)
        turn = self.tail - self.tail % self.size
        if self.fd < 0:
            self._roll(self.tail)
        elif self.tail % self.size == 0 or self.tail % self.size + length > self.size:
            first = self.tail if self.tail % self.size == 0 else turn + self.size
            self._roll(first + SEGMENT_HEADER)
        old = HEADER.unpack_from(piece.whole)
        fixed = (self.tail, length, old[5], old[6], old[7], 1, 0, self.chain, durable_lsn, piece.base_id)
        HEADER.pack_into(piece.whole, 0, 0, 0, piece.flags, *fixed, piece.time_ns, *piece.token, 0, 0)
        sealed, self.chain = self.builder.seal(piece.whole)
        os.pwrite(self.fd, sealed, self.tail % self.size)
        self.tail += length

    def finish(self, next_id: int) -> None:
        """Close the log as a clean close would, durably."""
        mark = bytearray(HEADER.size)
        HEADER.pack_into(mark, 0, 0, 0, 0, 0, HEADER.size, *([0] * 13))
        self.append(Piece(0, time.time_ns(), (0, 0), COMMIT_MARK | COMMIT_CLOSE, mark), self.tail)
        self._close()
        self.builder.finish(next_id)


def operations_of(ops: list[tuple[int, int, int, int, int, int, bytes]]) -> bytes:
    """Encode operations as a commit stores them."""
    encoded = bytearray()
    for kind, detail, queue, id, a, b, extra in ops:
        encoded += OPERATION.pack(kind, detail, queue, len(extra), id, a, b) + extra
        encoded += bytes(-len(encoded) % CELL)
    return bytes(encoded)


def commit_of(
    ops: list[tuple[int, int, int, int, int, int, bytes]],
    frames: list[tuple[int, int, int, bytes, bytes]],
) -> bytearray:
    """Lay out a commit without its sums; a frame is (queue, priority, flags, attributes, body)."""
    encoded = operations_of(ops)
    data = HEADER.size + len(encoded) + FRAME.size * len(frames)
    directory, rest = bytearray(), bytearray()
    for queue, priority, flags, attributes, body in frames:
        directory += FRAME.pack(
            0, len(body), data + len(rest), 0, 0, len(attributes), queue, priority, flags, 0
        )
        rest += attributes + body
    whole = bytearray(HEADER.size) + encoded + directory + rest
    whole += bytes(-len(whole) % CELL)
    header = (0, 0, 0, 0, len(whole), len(encoded), len(frames), len(ops))
    HEADER.pack_into(whole, 0, *header, *([0] * 10))
    return whole


class Rescue:
    """One run of repair: what is read, what it becomes."""

    def __init__(self, path: str, report: RepairReport) -> None:
        self.source = Inspector(path)
        self.report = report
        self.manifest = self.source.manifest()
        self.next_id = self.manifest["next_id_floor"]
        if self.manifest["checkpoint"][0]:
            raise InspectionError("VERSION", "manifest", 0, 0, 0, "repair reads no checkpoint yet", 0)
        _, _, self.end, self.proven, *_ = self.source.judge()
        self.source.restart()

    def pieces(self) -> Iterator[Piece]:
        """Yield what is to be written, in the order of the old log."""
        while True:
            found = self.source.step()
            if found is None:
                lsn, _ = self.source.where()
                if lsn >= self.proven:
                    return
                yield from self._broken()
                if self.source.where()[0] == lsn and not self._skip(lsn):
                    return
                continue
            file, offset, _, header, operations, messages = found
            bad = [index for index, stored in enumerate(messages) if stored[7] != GOOD]
            if bad and header[0] >= self.proven:
                self.report.notes.append(f"the log is cut at {header[0]}, where its unproven end is torn")
                return
            if operations and all(operation[0] == CHECKPOINT for operation in operations):
                continue
            self._count(header, messages)
            yield self._copy(file, offset, header, operations, messages, bad)
            yield from self._kills(header, operations, messages, bad)

    def _count(self, header: tuple[int, ...], messages: list[StoredMessage]) -> None:
        self.report.commits += 1
        self.report.messages += sum(stored[7] == GOOD for stored in messages)
        if messages:
            self.next_id = max(self.next_id, max(stored[0] for stored in messages) + 1)

    def _copy(
        self,
        file: int,
        offset: int,
        header: tuple[int, ...],
        operations: list[tuple[int, int, int, int, int, int, bytes]],
        messages: list[StoredMessage],
        bad: list[int],
    ) -> Piece:
        """The commit as it is; a bad message leaves an empty entry, so that the ids of the others stay."""
        whole = bytearray(self.source.bytes_at(file, offset, header[1]))
        directory = HEADER.size + header[3]
        data = directory + FRAME.size * header[4]
        for index in bad:
            id, queue, priority, flags, *_ = messages[index]
            copied = flags & FRAME_COPIED
            entry = (0, 0, data, 0, id if copied else 0, 0, queue, priority, copied, 0)
            FRAME.pack_into(whole, directory + FRAME.size * index, *entry)
        return Piece(header[10], header[11], (header[12], header[13]), header[2] & ~COMMIT_CLOSE, whole)

    def _kills(
        self,
        header: tuple[int, ...],
        operations: list[tuple[int, int, int, int, int, int, bytes]],
        messages: list[StoredMessage],
        bad: list[int],
    ) -> Iterator[Piece]:
        """End the messages whose bodies are lost, so that nobody is ever shown an empty one."""
        ops = []
        for index in bad:
            id, queue = messages[index][:2]
            for kind, _, named, first, count, *_ in operations:
                if kind == PUT and first <= index < first + count:
                    queue = named
            ops.append((KILL, 0, queue, id, 0, 0, b""))
            self.report.lost_ids.append(id)
        if ops:
            yield Piece(0, header[11], (0, 0), 0, commit_of(ops, []))

    def _broken(self) -> Iterator[Piece]:
        """Save single messages of a commit whose header is whole and names the right predecessor."""
        size = self.manifest["segment_size"]
        lsn, chain = self.source.where()
        for place in self.source.places():
            file = self.source.file_of(place)
            if file is None:
                continue
            _, header, operations, messages, own = self.source.probe(file, place % size)
            if header is None or messages is None or header[0] != place or header[8] != chain:
                continue
            self.report.gaps.append((lsn, header[0] + header[1]))
            if operations is None and not header[2]:
                self.report.notes.append(f"the operations of the commit at {place} are lost")
                yield from self._salvage(file, place % size, header, messages)
            self.source.follow(header[0] + header[1], own)
            return

    def _salvage(
        self, file: int, offset: int, header: tuple[int, ...], messages: list[StoredMessage]
    ) -> Iterator[Piece]:
        for index, stored in enumerate(messages):
            id, queue, priority, flags, length, attributes, body, result, _ = stored
            if result != GOOD or flags & FRAME_BLOCK:
                self.report.lost_ids.append(header[10] + index)
                continue
            content = self.source.bytes_at(file, offset + body, length)
            ops = [(PUT, priority, queue, 0, 1, int(bool(flags)), b"")]
            self.report.salvaged += 1
            self.report.messages += 1
            self.next_id = max(self.next_id, id + 1)
            whole = commit_of(ops, [(queue, priority, flags, attributes, content)])
            yield Piece(id, header[11], (0, 0), 0, whole)

    def _skip(self, lsn: int) -> bool:
        """Find the next commit behind a place where not even a header is left."""
        size, unit = self.manifest["segment_size"], self.manifest["sync_unit"]
        starts = sorted(
            first for _, first, *_, chosen in self.source.files() if chosen and first + size > lsn
        )
        for first in starts:
            file = self.source.file_of(first)
            place = max(first, -(-(lsn + 1) // unit) * unit)
            while file is not None and place < first - SEGMENT_HEADER + size:
                result, header, *_ = self.source.probe(file, place % size)
                if header is None or result != GOOD or header[0] != place:
                    place += unit
                    continue
                if self.source.epoch_at(place) in (0, header[6]):
                    self.report.gaps.append((lsn, place))
                    self.source.follow(place, header[8])
                    return True
                place += unit
        self.report.gaps.append((lsn, self.proven))
        return False


def repair(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    progress: Callable[[int, int], object] | None = None,
) -> RepairReport:
    """Build a new repository in `output` from what is valid of the one at `path`; report the rest."""
    target = os.fspath(output)
    report = RepairReport(target)
    rescue = Rescue(os.fspath(path), report)
    os.makedirs(target, mode=0o700, exist_ok=True)
    if os.listdir(target):
        raise FileExistsError(f"{target} is not empty")
    writer = Writer(target, rescue.manifest, len(rescue.source.files()) + 1)
    for piece in rescue.pieces():
        writer.append(piece)
        if progress is not None:
            progress(min(rescue.source.where()[0], rescue.end), rescue.end)
    jump = rescue.manifest["capacity"] // CELL + 1
    writer.finish(-(-(rescue.next_id + jump) // ID_ROUNDING) * ID_ROUNDING)
    return report
