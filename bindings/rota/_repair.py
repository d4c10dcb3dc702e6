"""Save what is valid of a damaged repository into a new one.

What holds:

1. The damaged one is only read.  The output directory must not exist or must be empty.
2. A message is written only if its checksum matches and its id is certain: its commit's header, its own frame or the
   checkpoint together with its place names it.  Nothing is invented; what was lost is listed.
3. The checkpoint and the log from its begin on say what lives.  Without a valid checkpoint every commit that is left
   is read, and what was settled may come back; the same goes for settlements in a damaged part of the log.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rota import _image, _records
from rota._core.inspection import InspectionError, Inspector
from rota._live import Found, Replay, State, later, unpacked
from rota._rebuild import (
    Live,
    Messages,
    Writer,
    key_operations,
    queue_operations,
    registration_operations,
    stop_operations,
    without_block,
)
from rota._records import COMMIT_COPIES, FRAME_BLOCK, FRAME_DUE, FRAME_EXPIRES, GOOD, StoredMessage

CELL, SEGMENT_HEADER, HEADER_BYTES, FRAME_BYTES = 32, 4096, 96, 32
ID_ROUNDING = 1 << 20
DEFAULTS = {"max_messages": 0, "lease_ns": 30_000_000_000, "max_attempts": 0, "error_queue": None, "order": 0}
FLAGS = {
    "volatile": False,
    "is_error_queue": False,
    "count_handouts": False,
    "indexes": b"",
    "stopped": False,
    "fence": (0, 0),
}

Progress = Callable[[int, int], object]


@dataclass(slots=True)
class RepairReport:
    """What repair saved and what it could not.

    `commits` counts those of the damaged log that were read, `messages` those that were saved, `salvaged` the ones
    among them whose commit is damaged, `gaps` positions of the log that cannot be read.
    """

    output: str
    commits: int = 0
    messages: int = 0
    salvaged: int = 0
    lost_ids: list[int] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    queues: int = 0
    registrations: int = 0
    settled_may_return: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing that was proven durable is lost, and nothing settled comes back."""
        return not self.lost_ids and not self.gaps and not self.settled_may_return


class Rescue:
    """What is left of a repository, found by reading on behind what is damaged."""

    def __init__(self, source: Inspector, report: RepairReport) -> None:
        self.source, self.report = source, report
        self.manifest = source.manifest()
        self.size = self.manifest["segment_size"]
        self.replay = Replay()
        self.salvaged: set[int] = set()
        self.image = _image.read_image(source)
        self.whole_log = self.image is not None and bool(self.image.problem)
        self.begin = self.manifest["checkpoint"][0]
        self.proven = source.judge()[3]
        self.epoch = max((epoch for epoch, _ in self.manifest["epochs"]), default=0)

    def collect(self, progress: Progress | None) -> Replay:
        """Find what lives."""
        self.source.restart()
        if self.image is not None and not self.whole_log:
            self.replay.load(self.image, self.size // CELL)
        elif self.image is not None:
            self._without_checkpoint(self.image)
        self._walk(progress)
        if self.whole_log or self.report.gaps or self.image is None:
            self._name_queues()  # what named them may be in the damaged part
        if self.report.gaps:
            self.report.settled_may_return = True
            self.report.notes.append("messages that were settled in the damaged part of the log may come back")
        return self.replay

    def _without_checkpoint(self, image: _image.Image) -> None:
        """Begin at the oldest commit that is left; of the checkpoint only what came before the damage is used."""
        self.report.settled_may_return = True
        self.report.notes.append(f"the checkpoint is damaged: {image.problem}; settled messages may come back")
        self.report.notes.append(
            "segments that were freed are among the gaps: only a checkpoint tells them from lost ones"
        )
        self.replay.queues.update(image.queues)
        for found in image.registrations:
            self.replay.registrations[found.queue, found.name] = found
        for key in image.keys:
            self.replay.keys[key.queue, key.digest] = key
        self._resync(SEGMENT_HEADER - CELL)

    def _overlay(self) -> None:
        """At the begin: what the readable part of a damaged checkpoint says of messages."""
        assert self.image is not None
        self.replay.load(self.image, self.size // CELL)

    def _name_queues(self) -> None:
        """Give queues to messages whose queue nothing names any more."""
        for state in self.replay.states.values():
            if state.queue not in self.replay.queues:
                name = f"recovered.{state.queue}"
                self.replay.queues[state.queue] = {**DEFAULTS, **FLAGS, "name": name, "created_lsn": 0}
                self.report.notes.append(f"nothing tells the name of queue {state.queue}: it is called {name!r}")

    # --- the log

    def _walk(self, progress: Progress | None) -> None:
        """Apply every commit that can be read; go on behind damage while the log was proven to go on."""
        overlaid = not self.whole_log
        while True:
            lsn, _ = self.source.where()
            if not overlaid and lsn >= self.begin:
                overlaid = True
                self._overlay()
            found: Found | None = self.source.step() or later(self.source, self.epoch)
            if found is None:
                if lsn >= self.proven or not (self._broken() or self._resync(lsn)):
                    return
                continue
            if found[3][6] > self.epoch:
                self.epoch = found[3][6]
                self.proven = max(self.proven, lsn)
                self.report.notes.append(f"the manifest is older than the log: it does not know epoch {self.epoch}")
            header, messages = found[3], found[5]
            if header[0] >= self.proven and any(stored[7] != GOOD for stored in messages):
                self.report.notes.append(f"the log is cut at {header[0]}, where its unproven end is torn")
                return
            self.report.commits += 1
            commit = _records.commit(*found)
            if self.whole_log:
                self._adopt(commit)
            self.replay.apply(commit)
            if progress is not None:
                progress(min(commit.lsn, self.proven), max(self.proven, 1))

    def _adopt(self, commit: _records.Commit) -> None:
        """A copy may be all that is left of a message whose first commit is gone."""
        for message in commit.messages if commit.messages and commit.messages[0].copied else ():
            if message.id not in self.replay.states:
                lsn = commit.lsn - commit.offset + message.place
                self.replay.states[message.id] = State(
                    message.queue, message.priority, message.file, message.place, lsn, fresh=False
                )

    def _broken(self) -> bool:
        """Save single messages of a commit whose header is whole and names the right predecessor."""
        lsn, chain = self.source.where()
        for place in self.source.places():
            file = self.source.file_of(place)
            if file is None:
                continue
            _, header, operations, messages, own = self.source.probe(file, place % self.size)
            if header is None or messages is None or header[0] != place or header[8] != chain:
                continue
            if self.source.epoch_at(place) not in (0, header[6]):
                continue
            self.report.gaps.append((lsn, header[0] + header[1]))
            if operations is None and not header[2] & COMMIT_COPIES and messages:
                self.report.notes.append(f"the operations of the commit at {place} are lost")
                self._salvage(file, place, header, messages)
            self.source.follow(header[0] + header[1], own)
            return True
        return False

    def _salvage(self, file: int, lsn: int, header: tuple[int, ...], messages: list[StoredMessage]) -> None:
        """Where the directory lies is certain: the header is."""
        directory = lsn % self.size + HEADER_BYTES + header[3]
        for index, stored in enumerate(messages):
            id, queue, level, _, _, attributes, _, result, _ = stored
            if result != GOOD:
                self.report.lost_ids.append(header[10] + index)
                continue
            due = int(_records.attributes(attributes).get("due_ns", 0))
            place = directory + FRAME_BYTES * index
            at = lsn - lsn % self.size + place
            self.replay.states[id] = State(queue, level, file, place, at, not due, due_ns=due)
            self.replay.next_id = max(self.replay.next_id, id + 1)
            self.salvaged.add(id)

    def _resync(self, lsn: int) -> bool:
        """Find the next commit behind a place where the log cannot be followed."""
        chosen = [(first, number) for number, first, *_, chosen in self.source.files() if chosen and first]
        for first, file in sorted(chosen):
            turn = first - SEGMENT_HEADER
            offset: int | None = max(SEGMENT_HEADER, lsn + CELL - turn)
            while offset is not None and offset < self.size:
                offset = self.source.find(file, offset)
                if offset is None:
                    break
                _, header, *_ = self.source.probe(file, offset)
                if header is not None and self.source.epoch_at(turn + offset) in (0, header[6]):
                    if turn + offset > lsn + CELL:
                        self.report.gaps.append((lsn, turn + offset))
                    self.source.follow(turn + offset, header[8])
                    return True
                offset += CELL
        if lsn < self.proven:
            self.report.gaps.append((lsn, self.proven))
        return False

    # --- what becomes of it

    def message(self, id: int, room: int) -> Live | None:
        """The message as it is to be written; None when it is not proven."""
        state = self.replay.states[id]
        found, content, stored, trusted = self.replay.read(self.source, id)
        if content is None or stored is None:
            return None
        try:
            body = unpacked(content, found)
        except ValueError:
            return None
        if not trusted:
            self.salvaged.add(id)
        due = int(found.attributes.get("due_ns", 0)) if stored[3] & FRAME_DUE else 0
        message = Live(
            id,
            state.queue,
            state.level,
            stored[3] & (FRAME_DUE | FRAME_EXPIRES),
            without_block(stored[5]),
            body,
            0 if found.copied else found.time_ns,
            handouts=state.handouts,
            excused=state.excused,
            suspect=state.suspect,
            parked=state.parked,
            due_ns=state.due_ns,
            due_put_ns=due if due > found.time_ns else 0,
            order=max(state.order, id + 1) if state.order else 0,
            home=stored[1],
        )
        if message.stored + HEADER_BYTES + FRAME_BYTES * 4 > room and not isinstance(content, bytes):
            message.block, message.block_start, message.body_length = (
                content,
                found.block_start,
                found.body_length,
            )
            message.flags |= FRAME_BLOCK
            message.body = b""
        return message


def write(rescue: Rescue, writer: Writer) -> None:
    """Write what lives, and count."""
    replay, report = rescue.replay, rescue.report
    writer.operations(queue_operations(replay.queues))
    moves = [(max(state.order, id + 1), id) for id, state in replay.states.items() if state.order]
    messages = Messages(writer, moves, replay.queues)
    for id in sorted(replay.states):
        if replay.states[id].queue not in replay.queues:
            report.lost_ids.append(id)
            continue
        message = rescue.message(id, writer.room)
        if message is None:
            report.lost_ids.append(id)
            continue
        messages.add(message)
        report.messages += 1
    messages.finish()
    known = [found for found in replay.registrations.values() if found.queue in replay.queues]
    writer.operations(registration_operations(known))
    writer.operations(key_operations(key for key in replay.keys.values() if key.queue in replay.queues))
    writer.operations(stop_operations(replay.queues))
    report.salvaged = len(rescue.salvaged & replay.states.keys())
    report.queues, report.registrations = len(replay.queues), len(known)
    report.lost_ids = sorted(set(report.lost_ids))


@contextlib.contextmanager
def readable(path: str, target: str, report: RepairReport) -> Iterator[Inspector]:
    """An inspector of the files; through copies of the right length when a segment has another."""
    try:
        yield Inspector(path)
        return
    except InspectionError as error:
        if not (error.file or "").startswith("seg.") or not error.expected:
            raise
        size = error.expected
    short: dict[int, int] = {}
    with tempfile.TemporaryDirectory(prefix=".rota-repair-", dir=os.path.dirname(os.path.abspath(target))) as copy:
        for entry in os.scandir(path):
            wrong = entry.name.startswith("seg.") and entry.is_file() and entry.stat().st_size != size
            if not entry.is_file(follow_symlinks=False) or not entry.name.startswith(("seg.", "manifest")):
                continue
            place = os.path.join(copy, entry.name)
            if not wrong:
                try:
                    os.link(entry.path, place)
                except OSError:
                    shutil.copyfile(entry.path, place)
                continue
            shutil.copyfile(entry.path, place)
            os.truncate(place, size)
            if entry.stat().st_size < size:
                short[int(entry.name[4:10])] = entry.stat().st_size
            report.notes.append(f"{entry.name} has {entry.stat().st_size} bytes instead of {size}")
        source = Inspector(copy)
        for number, first, *_ in source.files():
            if number in short:  # without a header nobody knows where it lay
                turn = first - SEGMENT_HEADER if first else 0
                report.gaps.append((turn + short[number], turn + size))
        yield source


def repair(
    path: str | os.PathLike[str], output: str | os.PathLike[str], progress: Progress | None = None
) -> RepairReport:
    """Build a new repository in `output` from what is valid of the one at `path`; report the rest.

    Raises InspectionError when not even a manifest is left, FileExistsError when `output` is not empty.
    """
    target = os.fspath(output)
    report = RepairReport(target)
    with readable(os.fspath(path), target, report) as source:
        rescue = Rescue(source, report)
        rescue.collect(progress)
        os.makedirs(target, mode=0o700, exist_ok=True)
        if os.listdir(target):
            raise FileExistsError(f"{target} is not empty")
        writer = Writer(target, rescue.manifest)
        write(rescue, writer)
    next_id = max(rescue.replay.next_id, rescue.manifest["next_id_floor"])
    jump = rescue.manifest["capacity"] // CELL + 1
    writer.finish(-(-(next_id + jump) // ID_ROUNDING) * ID_ROUNDING)
    return report
