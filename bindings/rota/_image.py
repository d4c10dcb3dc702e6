"""The image of a checkpoint, read from the blocks in the log without trusting a byte of it.

What holds:

1. A block counts only if its commit matches its checksums and the sum of the stream up to its end is right.  What
   comes before a bad or missing block is a valid beginning; Image.problem says what is wrong with the rest.
2. Every number is checked where it is used: a stream that contradicts itself ends there, and nothing is made up.
3. It says where messages are, not what they are: the frame at the place has a checksum of its own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from rota import _records
from rota._core.inspection import Inspector

MAGIC = 0x49544F52
HEADER = struct.Struct("<IIQQQQQQQ")
SEGMENT = struct.Struct("<QQIIQ")
OPTIONS_BYTES = 32
CHECKPOINT, LAST = 16, 1
GAP, FILE, DETAILS = 1, 2, 4
COUNTS, DUE, EXPIRY, ORDER, TERMS = 1, 2, 4, 8, 16
FRESH, RETURNED, DELAYED, PARKED, WAITING = 1, 2, 3, 4, 5
SCORE = 15
SUSPECT = 4
QUEUES_MAX, SEGMENTS_MAX, LEVELS = 8192, 4096, 10
CELL, SEGMENT_HEADER = 32, 4096
NAME_MAX, TAG_MAX = 255, 4608
GOOD = 0


class Malformed(ValueError):
    """The stream ends, or says what cannot be."""


@dataclass(slots=True)
class Entry:
    """One run of messages: ids and cells in a row; details only for a single one."""

    queue: int
    level: int
    id: int
    count: int
    file: int
    cell: int
    state: int = FRESH
    flags: int = 0
    handouts: int = 0
    excused: int = 0
    due_ns: int = 0
    order: int = 0


@dataclass(slots=True)
class Registration:
    """A registrant of a queue and its last tagged operation."""

    queue: int
    name: bytes
    stable: bool = False
    epoch: int = 0
    lsn: int = 0
    kind: int = 0
    id: int = 0
    tag: bytes = b""


@dataclass(slots=True)
class Key:
    """The dedup key of a put: its digest, and the message that came with it."""

    queue: int
    digest: bytes
    id: int
    put_ns: int


@dataclass(slots=True)
class Segment:
    """What the image says of a segment below its begin, and the file that holds it now (None: it is gone)."""

    first_lsn: int
    end_lsn: int
    frames: int
    now: int | None
    live: int = 0


@dataclass(slots=True)
class Image:
    """What could be read; `problem` is empty when that is all of it."""

    begin: int = 0
    next_id: int = 1
    time_ns: int = 0
    messages: int = 0
    stragglers_told: int = 0
    problem: str = ""
    segments: dict[int, Segment] = field(default_factory=dict)
    queues: dict[int, dict[str, Any]] = field(default_factory=dict)
    stragglers: list[Entry] = field(default_factory=list)
    runs: list[Entry] = field(default_factory=list)
    registrations: list[Registration] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)


class Stream:
    """A cursor over the joined blocks."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, length: int) -> bytes:
        """So many bytes."""
        end = self.at + length
        if length < 0 or end > len(self.data):
            raise Malformed("it ends too early")
        found = self.data[self.at : end]
        self.at = end
        return found

    def byte(self) -> int:
        return self.take(1)[0]

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def number(self) -> int:
        """Seven bits a byte, low first."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF
        raise Malformed("a number does not end")


def demand(condition: bool, what: str) -> None:
    """Refuse what cannot be."""
    if not condition:
        raise Malformed(what)


def join_blocks(inspector: Inspector) -> tuple[bytes, str]:
    """The stream as far as its blocks are there and right, and what is wrong with the next one."""
    manifest = inspector.manifest()
    begin, place, end = manifest["checkpoint"]
    size = manifest["segment_size"]
    stream = bytearray()
    sums: int | None = None
    number = 0
    while place < end:
        file = inspector.file_of(place)
        offset = None if file is None else inspector.find(file, place % size)
        if file is None or offset is None:
            place = place - place % size + size + SEGMENT_HEADER
            continue
        _, header, operations, _, _ = inspector.probe(file, offset)
        assert header is not None
        place = header[0] + header[1]
        for kind, detail, _, id, a, b, extra in operations or ():
            if kind != CHECKPOINT or a != begin or header[0] >= end:
                continue
            sums = inspector.sum(extra, sums)
            if id != number or sums != b & 0xFFFFFFFF:
                return bytes(stream), f"block {number} is missing or does not match its checksum"
            stream += extra
            number += 1
            if detail & LAST:
                whole = b >> 32 == number and len(stream) >= HEADER.size
                return bytes(stream), "" if whole else "the number of blocks is wrong"
    return bytes(stream), f"block {number} is missing"


def read_segments(stream: Stream, image: Image, count: int, inspector: Inspector) -> None:
    size = inspector.manifest()["segment_size"]
    demand(count <= SEGMENTS_MAX, "it names too many segments")
    for _ in range(count):
        first, end, file, frames, _ = SEGMENT.unpack(stream.take(SEGMENT.size))
        good = file < SEGMENTS_MAX and first % size == SEGMENT_HEADER and first <= end <= image.begin
        demand(
            good and end - first <= size - SEGMENT_HEADER and file not in image.segments,
            "a segment cannot be",
        )
        image.segments[file] = Segment(first, end, frames, inspector.file_of(first))


def read_queues(stream: Stream, image: Image) -> None:
    while number := stream.number():
        state, created, generation, fence = stream.byte(), stream.u64(), stream.u64(), stream.u64()
        options = stream.take(OPTIONS_BYTES)
        length = int.from_bytes(options[22:24], "little")
        demand(number <= QUEUES_MAX and state in (1, 2) and 0 < length <= NAME_MAX, "a queue cannot be")
        fields = _records.queue_fields(
            options + stream.take(length) + stream.take(int.from_bytes(options[28:30], "little"))
        )
        fields.update(created_lsn=created, stopped=state == 2, fence=(generation, fence))
        image.queues[number - 1] = fields


def read_details(stream: Stream, entry: Entry) -> None:
    entry.state, entry.flags, has = stream.byte(), stream.byte(), stream.byte()
    if has & COUNTS:
        entry.handouts, entry.excused = stream.number() & 0xFFFFFFFF, stream.number() & 0xFFFFFFFF
    if has & DUE:
        entry.due_ns = stream.u64()
    if has & EXPIRY:
        stream.u64()  # as in the frame
    if has & ORDER:
        entry.order = stream.number()
    if has & TERMS:  # the engine's index, derived from the frame
        for _ in range(stream.byte()):
            if stream.u64() == SCORE:
                stream.u64()
    demand(FRESH <= entry.state <= WAITING, "the details of a message cannot be")


def note_place(image: Image, entry: Entry) -> None:
    """Check that ids and cells can be."""
    segment = image.segments.get(entry.file)
    demand(segment is not None, "a message lies in no segment")
    assert segment is not None
    limit = (segment.end_lsn - segment.first_lsn + SEGMENT_HEADER) // CELL
    good = entry.count > 0 and SEGMENT_HEADER // CELL <= entry.cell <= limit - entry.count
    demand(good and 0 < entry.id <= image.next_id - entry.count, "a message cannot be where it should")
    segment.live += entry.count


def read_stragglers(stream: Stream, image: Image) -> None:
    while number := stream.number():
        entry = Entry(number - 1, stream.byte(), stream.number(), 1, stream.number(), stream.number())
        read_details(stream, entry)
        demand(
            number <= QUEUES_MAX and entry.level < LEVELS and entry.state != FRESH,
            "a moved message cannot be",
        )
        entry.order = entry.order or entry.id
        note_place(image, entry)
        image.stragglers.append(entry)


def read_lane(stream: Stream, image: Image, queue: int, level: int, moved: set[int]) -> None:
    id, cell_end, file = 0, 0, SEGMENTS_MAX
    while head := stream.number():
        count = head >> 3
        if head & GAP:
            id += stream.number()
        if head & FILE:
            file, cell = stream.number(), stream.number()
        else:
            distance = stream.number()
            cell = cell_end + (distance >> 1 ^ -(distance & 1))
        entry = Entry(queue, level, id, count, file, cell)
        if head & DETAILS:
            demand(count == 1, "details of several messages")
            read_details(stream, entry)
        note_place(image, entry)
        passed = (
            sum(other in moved for other in range(id, id + count))
            if moved and count < len(moved)
            else sum(id <= other < id + count for other in moved)
        )
        image.segments[file].live -= passed  # a straggler counts where it lies among them
        image.messages += count
        image.runs.append(entry)
        id += count
        cell_end = cell + count


def read_lanes(stream: Stream, image: Image) -> None:
    moved = {entry.id for entry in image.stragglers}
    seen = set()
    while number := stream.number():
        level = stream.byte()
        demand(number <= QUEUES_MAX and level < LEVELS and (number, level) not in seen, "a lane cannot be")
        seen.add((number, level))
        read_lane(stream, image, number - 1, level, moved)


def read_registrations(stream: Stream, image: Image) -> None:
    while number := stream.number():
        kind, stable, id, lsn, epoch = stream.byte(), stream.byte(), stream.u64(), stream.u64(), stream.u64()
        name_length, tag_length = struct.unpack("<HH", stream.take(4))
        good = number <= QUEUES_MAX and 0 < name_length <= NAME_MAX and tag_length <= TAG_MAX
        demand(good, "a registration cannot be")
        name, tag = stream.take(name_length), stream.take(tag_length)
        image.registrations.append(Registration(number - 1, name, bool(stable & 1), epoch, lsn, kind & 0x7F, id, tag))


def read_keys(stream: Stream, image: Image) -> None:
    """An image of a repository that has none ends before them."""
    while stream.at < len(stream.data) and (number := stream.number()):
        id, put_ns, digest = stream.u64(), stream.u64(), stream.take(16)
        demand(number <= QUEUES_MAX and id < image.next_id, "the key of a put cannot be")
        image.keys.append(Key(number - 1, digest, id, put_ns))


def read_stream(stream: Stream, image: Image, inspector: Inspector, whole: bool) -> None:
    """The parts in their order; Malformed where one cannot be."""
    magic, segments, begin, next_id, time_ns, messages, stragglers, length, reserved = HEADER.unpack(
        stream.take(HEADER.size)
    )
    good = magic & ~0x20 == MAGIC & ~0x20 and begin == inspector.manifest()["checkpoint"][0]
    demand(good and next_id > 0 and reserved == 0, "its header cannot be")
    demand(not whole or length == len(stream.data), "its length is wrong")
    image.begin, image.next_id, image.time_ns, image.stragglers_told = begin, next_id, time_ns, stragglers
    read_segments(stream, image, segments, inspector)
    read_queues(stream, image)
    read_stragglers(stream, image)
    demand(
        len(image.stragglers) == stragglers,
        f"it holds {len(image.stragglers)} moved messages, not {stragglers}",
    )
    read_lanes(stream, image)
    demand(image.messages == messages, f"its lanes hold {image.messages} messages, not {messages}")
    read_registrations(stream, image)
    read_keys(stream, image)
    demand(stream.at == len(stream.data), "it ends elsewhere")


def read_image(inspector: Inspector) -> Image | None:
    """The checkpoint that the manifest names, as far as it is valid; None when it names none."""
    if not inspector.manifest()["checkpoint"][0]:
        return None
    data, problem = join_blocks(inspector)
    image = Image()
    try:
        read_stream(Stream(data), image, inspector, not problem)
    except Malformed as error:
        problem = problem or f"it contradicts itself: {error}"
    if not problem and any(segment.live > segment.frames for segment in image.segments.values()):
        problem = "it contradicts itself: a segment holds more messages than frames"
    image.problem = problem
    return image
