"""The messages that are not settled at the end of a log, found by replaying it without the engine.

What holds:

1. The rules are the engine's, in a few lines: a range of ids settles only messages that were never handed
   out one by one, a moved message belongs to its new queue, a copied one lies at its new place.
2. A checkpoint gives the messages below its begin; the log from there on is replayed on top.
3. It serves dump and repair, where the engine must not be trusted with the files.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any, TypeAlias

from rota import _image, _records
from rota._core import inspection as _inspection
from rota._core.inspection import InspectionError, Inspector
from rota._image import CELL, Entry, Image, Key, Registration
from rota._records import GOOD, Commit, Message, Operation, StoredMessage

Content: TypeAlias = bytes | tuple[int, bytes]
Found: TypeAlias = tuple[int, int, int, tuple[int, ...], list[_records.StoredOperation], list[StoredMessage]]

GROUP, HIGHEST = 1, 3
ENTER = 1  # of DEDUP: it is no forgetting
MISPLACED = "another message lies at its place"
HEADER_DAMAGE = "the header of its commit does not match its checksum"


@dataclasses.dataclass(slots=True)
class State:
    """What is known of one live message besides its frame; `order` is not 0 when it was moved."""

    queue: int
    level: int
    file: int | None
    place: int
    lsn: int
    fresh: bool
    handouts: int = 0
    excused: int = 0
    suspect: bool = False
    parked: bool = False
    due_ns: int = 0
    order: int = 0


class Replay:
    """The live messages, queues and registrations, as far as what was loaded and applied says."""

    def __init__(self) -> None:
        self.states: dict[int, State] = {}
        self.queues: dict[int, dict[str, Any]] = {}
        self.registrations: dict[tuple[int, bytes], Registration] = {}
        self.keys: dict[tuple[int, bytes], Key] = {}
        self.next_id = 1

    # --- from a checkpoint

    def load(self, image: Image, cells: int) -> None:
        """Take in an image, or what there is of it; `cells` are those of a segment."""
        self.queues.update(image.queues)
        self.next_id = max(self.next_id, image.next_id)
        for run in image.runs:
            self._load(image, run, cells)
        for straggler in image.stragglers:
            self._load(image, straggler, cells)
        for found in image.registrations:
            self.registrations[found.queue, found.name] = dataclasses.replace(found)
        for key in image.keys:
            self.keys[key.queue, key.digest] = dataclasses.replace(key)

    def _load(self, image: Image, entry: Entry, cells: int) -> None:
        if entry.queue not in self.queues:
            return
        segment = image.segments[entry.file]
        base = segment.first_lsn - _image.SEGMENT_HEADER
        for index in range(entry.count):
            place = (entry.cell + index) * CELL
            self.states[entry.id + index] = State(
                entry.queue,
                entry.level,
                segment.now,
                place,
                base + place,
                entry.state == _image.FRESH,
                entry.handouts,
                entry.excused,
                bool(entry.flags & _image.SUSPECT),
                entry.state == _image.PARKED,
                entry.due_ns,
                entry.order,
            )

    # --- from commits

    def apply(self, commit: Commit) -> None:
        """Take one commit in."""
        for operation in commit.operations:
            handler = getattr(self, f"_{operation.kind}", None)
            if handler is not None:
                handler(operation, commit)
        if commit.messages and not commit.messages[0].copied:
            self.next_id = max(self.next_id, commit.messages[-1].id + 1)

    def _put(self, operation: Operation, commit: Commit) -> None:
        first, count = operation.fields["first"], operation.fields["count"]
        for message in commit.messages[first : first + count]:
            due = int(message.attributes.get("due_ns", 0))
            due = due if due > commit.time_ns else 0
            self.states[message.id] = State(
                operation.queue,
                operation.fields["priority"],
                message.file,
                message.place,
                commit.lsn - commit.offset + message.place,
                fresh=not due and not self._ordered(operation.queue, message),
                due_ns=due,
            )

    def _ordered(self, queue: int, message: Message) -> bool:
        """Whether the order of its queue keeps a message out of ranges: one with a key in "group", all in "highest"."""
        order = self.queues.get(queue, {}).get("order", 0)
        return order == HIGHEST or (order == GROUP and "key" in message.attributes)

    def _copy(self, operation: Operation, commit: Commit) -> None:
        first, count = operation.fields["first"], operation.fields["count"]
        for message in commit.messages[first : first + count]:
            state = self.states.get(message.id)
            if state is not None:
                state.file, state.place = message.file, message.place
                state.lsn = commit.lsn - commit.offset + message.place

    def _ack(self, operation: Operation, commit: Commit) -> None:
        first, last = operation.fields["first_id"], operation.fields["last_id"]
        if first == last:
            self._end(operation.queue, first)
            return
        candidates = range(first, last + 1) if last - first < len(self.states) else list(self.states)
        lane = (operation.queue, operation.fields["priority"])
        for id in candidates:
            state = self.states.get(id)
            if state is not None and first <= id <= last and state.fresh and (state.queue, state.level) == lane:
                del self.states[id]

    def _held(self, queue: int, id: int) -> State | None:
        state = self.states.get(id)
        return state if state is not None and state.queue == queue else None

    def _end(self, queue: int, id: int) -> None:
        if self._held(queue, id) is not None:
            del self.states[id]

    def _ack_list(self, operation: Operation, commit: Commit) -> None:
        for id in operation.fields["ids"]:
            self._end(operation.queue, id)

    _expire = _ack_list

    def _kill(self, operation: Operation, commit: Commit) -> None:
        self._end(operation.queue, operation.fields["id"])

    def _purge(self, operation: Operation, commit: Commit) -> None:
        for id in [id for id in self.states if id < operation.fields["id"]]:
            self._end(operation.queue, id)

    def _move(self, operation: Operation, commit: Commit) -> None:
        state = self._held(operation.queue, operation.fields["id"])
        if state is not None and operation.fields["target"] in self.queues:
            state.queue, state.order = operation.fields["target"], self.next_id
            state.handouts, state.excused = operation.fields["handouts"], operation.fields["excused"]
            state.fresh = state.suspect = state.parked = False
            state.due_ns = 0

    def _return(self, operation: Operation, commit: Commit) -> None:
        state = self._held(operation.queue, operation.fields["id"])
        if state is not None:
            state.fresh, state.due_ns = False, operation.fields["due_ns"]
            state.handouts, state.excused = operation.fields["handouts"], operation.fields["excused"]
            state.suspect, state.parked = operation.fields["suspect"], operation.fields["parked"]

    def _queue(self, operation: Operation, commit: Commit) -> None:
        action, number = operation.fields["action"], operation.queue
        known = self.queues.get(number)
        if action in ("create", "configure"):
            fields = {name: value for name, value in operation.fields.items() if name != "action"}
            if known is None:
                self.queues[number] = {**fields, "created_lsn": commit.lsn, "stopped": False, "fence": (0, 0)}
            else:
                self.queues[number] = {**known, **fields, "name": known["name"] or fields["name"]}
        elif known is not None and known["created_lsn"] <= commit.lsn:
            known["stopped"] = action == "stop"
            if action == "destroy":
                del self.queues[number]
                for id in [id for id, state in self.states.items() if state.queue == number]:
                    del self.states[id]
                for key in [key for key in self.registrations if key[0] == number]:
                    del self.registrations[key]
                for entered in [entered for entered in self.keys if entered[0] == number]:
                    del self.keys[entered]

    def _of_queue(self, operation: Operation, commit: Commit) -> bool:
        """Whether the queue that it names is the one of that number: an image may know a later one."""
        known = self.queues.get(operation.queue)
        return known is not None and bool(known["created_lsn"] <= commit.lsn)

    def _fence(self, operation: Operation, commit: Commit) -> None:
        if operation.queue in self.queues:
            self.queues[operation.queue]["fence"] = (
                operation.fields["generation"],
                operation.fields["number"],
            )

    def _key(self, operation: Operation) -> tuple[int, bytes]:
        return operation.queue, operation.fields["name"].encode("utf-8", "surrogateescape")

    def _register(self, operation: Operation, commit: Commit) -> None:
        if not self._of_queue(operation, commit):
            return
        key, end = self._key(operation), commit.lsn + commit.length
        found = self.registrations.setdefault(key, Registration(*key, lsn=end))
        if end >= found.lsn:
            found.stable = found.stable or bool(operation.fields["detail"] & 1)
            found.epoch = max(found.epoch, operation.fields["epoch"])
            found.lsn = end

    def _deregister(self, operation: Operation, commit: Commit) -> None:
        found = self.registrations.get(self._key(operation))
        if found is not None and self._of_queue(operation, commit) and commit.lsn + commit.length >= found.lsn:
            del self.registrations[self._key(operation)]

    def _tag(self, operation: Operation, commit: Commit) -> None:
        found = self.registrations.get(self._key(operation))
        if found is not None and self._of_queue(operation, commit) and commit.lsn + commit.length >= found.lsn:
            detail, id = operation.fields["detail"], operation.fields["id"]
            found.kind, found.tag = detail & 0x7F, operation.fields["tag"]
            found.id = commit.base_id + id if detail & 0x80 else id
            found.lsn = commit.lsn + commit.length

    def _dedup(self, operation: Operation, commit: Commit) -> None:
        if not self._of_queue(operation, commit):
            return
        detail, digest = operation.fields["detail"], operation.fields["digest"]
        id = commit.base_id + operation.fields["id"] if detail & 0x80 else operation.fields["id"]
        known = self.keys.get((operation.queue, digest))
        if detail & 0x7F == ENTER and (known is None or known.id < id):
            put_ns = operation.fields["put_ns"] or commit.time_ns
            self.keys[operation.queue, digest] = Key(operation.queue, digest, id, put_ns)
        elif detail & 0x7F != ENTER and known is not None and known.id == id:
            del self.keys[operation.queue, digest]

    # --- what it comes to

    def read(self, inspector: Inspector, id: int) -> tuple[Message, Content | None, StoredMessage | None, bool]:
        """The message of that id, its content if proven, its frame, and whether its commit's header is right."""
        state = self.states[id]
        if state.file is None:
            lost = Message(id, state.queue, state.level, 0, {}, False, "its segment is missing", 0, 0)
            return lost, None, None, False
        result, offset, header, trusted, stored, content = inspector.message_at(state.file, state.place)
        lsn = state.lsn - state.place + offset
        damage = "" if result == GOOD else _inspection.scan_text(result)
        if stored is None or header is None:
            lost = Message(id, state.queue, state.level, 0, {}, False, damage, state.file, state.place)
            return lost, None, None, False
        found = _records.message(state.file, offset, stored, state.place, header[11] if trusted else 0)
        if not damage and trusted and (stored[0] != id or header[0] != lsn):
            damage = MISPLACED
        elif not damage and not trusted and stored[0] != id and header[0] != lsn:
            damage = HEADER_DAMAGE
        message = dataclasses.replace(
            found,
            id=id,
            queue=state.queue,
            priority=state.level,
            damage=damage,
            handouts=state.handouts,
            excused=state.excused,
            due_ns=state.due_ns,
            suspect=state.suspect,
            parked=state.parked,
            moved=state.order != 0,
            in_error_queue=bool(self.queues.get(state.queue, {}).get("is_error_queue")),
            source=inspector,
        )
        return message, None if damage else content, stored, trusted


def later(inspector: Inspector, epoch: int) -> Found | None:
    """The next commit, as step() would give it, if its epoch is one that the manifest should know and does not.

    An epoch is durable in the manifest before its first commit: the newest manifest is lost, and an older one was read.
    """
    size = inspector.manifest()["segment_size"]
    best: Found | None = None
    for place in inspector.places():
        file = inspector.file_of(place)
        if file is None:
            continue
        result, header, operations, messages, own = inspector.probe(file, place % size)
        if result != GOOD or header is None or operations is None or messages is None:
            continue
        fits = header[0] == place and header[8] == inspector.where()[1] and header[6] >= max(epoch, 1)
        if fits and inspector.epoch_at(place) < header[6] and (best is None or header[6:8] > best[3][6:8]):
            best = file, place % size, own, header, operations, messages
    if best is not None:
        inspector.follow(best[3][0] + best[3][1], best[2])
    return best


def replayed(inspector: Inspector, image: Image | None, proven: int) -> Replay:
    """Everything up to the log's end, which is where a message above the proven position is damaged."""
    replay = Replay()
    if image is not None:
        replay.load(image, inspector.manifest()["segment_size"] // CELL)
    inspector.restart()
    while (found := inspector.step()) is not None:
        header, messages = found[3], found[5]
        if header[0] >= proven and any(stored[7] != GOOD for stored in messages):
            break
        replay.apply(_records.commit(*found))
    return replay


def live(path: str | os.PathLike[str]) -> Iterator[tuple[str, Message]]:
    """Yield the name of its queue and each message that is not settled, in the order of ids.

    Raises InspectionError for a damaged manifest or checkpoint; repair() goes on from there.
    """
    inspector = Inspector(path)
    image = _image.read_image(inspector)
    if image is not None and image.problem:
        raise InspectionError("CORRUPT", "checkpoint", 0, 0, 0, image.problem)
    proven = inspector.judge()[3]
    replay = replayed(inspector, image, proven)
    for id in sorted(replay.states):
        message = replay.read(inspector, id)[0]
        yield str(replay.queues.get(message.queue, {}).get("name", message.queue)), message


def unpacked(content: Content, message: Message) -> bytes:
    """The body from what lies in the file; ValueError when the block does not unpack."""
    if isinstance(content, bytes):
        return content
    import lz4.block

    raw_length, stored = content
    try:
        raw: bytes = lz4.block.decompress(stored, uncompressed_size=raw_length)
    except Exception as error:  # its own class is private, and MemoryError is what it says of a wrong length
        raise ValueError("its block does not unpack") from error
    body = raw[message.block_start : message.block_start + message.body_length]
    if len(raw) != raw_length or len(body) != message.body_length:
        raise ValueError("its block does not unpack")
    return body


def body(path: str | os.PathLike[str], message: Message) -> bytes:
    """Read the body of a message that commits() or live() described; a damaged one raises ValueError."""
    if message.damage:
        raise ValueError(message.damage)
    inspector = message.source or Inspector(path)
    result, _, _, _, stored, content = inspector.message_at(message.file, message.place)
    if result != GOOD or content is None:
        raise ValueError(_inspection.scan_text(result))
    if stored is None or (stored[4], stored[8]) != (message.body_length, message.block_start):
        raise ValueError("another message lies at its place by now")
    return unpacked(content, message)
