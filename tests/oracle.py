"""What queues are, in plain Python: the oracle that stateful tests compare a repository with.

What holds:

1. An Oracle knows no log, no lanes and no time but the one it is told.  It says what a claim may hand out, in which
   order and with which attempts, and what is left after whoever dies.
2. Oracle and Driver (the real thing, in another process) have the same Protocol, so a test calls both.
3. A message is ready, delayed, claimed or gone.  Its place in the order is its id; one that moved to another queue
   is placed by the time of its arrival.
4. The rules of hand-outs: the highest priority first, in it the lowest place; a batch may prefer first-time messages
   of a priority to those that came back; a suspect only to who holds nothing, and then nothing else.
5. The rules of death: the one message that was shown and not settled is charged; of several each is excused and
   becomes a suspect; what was not shown is as if it had not been claimed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol


@dataclasses.dataclass(frozen=True)
class Handed:
    """One message as a claim returned it; the body is None while it was not shown."""

    id: int
    body: bytes | None
    attempts: int
    priority: int


class Queues(Protocol):
    """What both sides can do.  `who` names a process; a claim is named by the id of its message."""

    def show(self, who: int, id: int) -> bytes:
        """Look at a body."""

    def ack(self, who: int, ids: Sequence[int]) -> None:
        """Settle messages in one commit."""

    def give_back(self, who: int, id: int, delay: float, excused: bool) -> None:
        """nack, or release when excused."""

    def kill_message(self, who: int, queue: str, id: int) -> None:
        """Delete a message that nobody holds."""

    def redrive(self, who: int, queue: str, target: str, ids: Sequence[int]) -> None:
        """Send messages back to work with new counts."""

    def advance(self, seconds: float) -> None:
        """Let wall time pass."""

    def die(self, who: int) -> None:
        """SIGKILL."""

    def leave(self, who: int) -> None:
        """Close orderly."""

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Live and claimed messages of each queue."""


@dataclasses.dataclass
class Message:
    """A live message."""

    id: int
    body: bytes
    queue: str
    priority: int
    place: int
    handouts: int = 0
    excused: int = 0
    due: float = 0.0
    suspect: bool = False
    owner: int | None = None
    shown: bool = False

    @property
    def attempts(self) -> int:
        """As user code sees it while it is claimed."""
        return self.handouts - self.excused + 1


class Oracle:
    """The queues as they must be."""

    def __init__(self, attempts_max: dict[str, int | None], errors: dict[str, str]) -> None:
        self.attempts_max = attempts_max
        self.errors = errors
        self.live: dict[int, Message] = {}
        self.now = 0.0
        self.highest_id = 0

    def ready(self, queue: str) -> list[Message]:
        """Messages that may be handed out now."""
        return [m for m in self.live.values() if m.queue == queue and m.owner is None and m.due <= self.now]

    def held(self, who: int) -> list[Message]:
        """What a process holds, in the order of ids."""
        return sorted((m for m in self.live.values() if m.owner == who), key=lambda m: m.id)

    # --- puts and claims -------------------------------------------------------------------------------------------

    def put(self, queue: str, ids: Sequence[int], bodies: Sequence[bytes], priority: int, delay: float) -> None:
        """Take over the ids that the other side gave."""
        for id, body in zip(ids, bodies, strict=True):
            assert id > self.highest_id, f"id {id} came twice or went back"
            self.highest_id = id
            self.live[id] = Message(id, body, queue, priority, id, due=self.now + delay if delay else 0.0)

    def claim(self, who: int, queue: str, count: int, handed: Sequence[Handed]) -> None:
        """Judge what a claim handed out, and take it over."""
        ready = self.ready(queue)
        held = self.held(who)
        if any(m.suspect for m in held):
            assert not handed, "beside a suspect nothing else is handed out"
            return
        best = min(ready, key=lambda m: (-m.priority, m.place), default=None)
        if best is not None and best.suspect and held and count == 1:
            assert not handed, "a suspect went to who holds something"
            return
        suspects = any(m.suspect for m in ready)
        if not suspects:
            assert len(handed) == min(count, len(ready))
        elif not held:
            assert handed, "nobody holds anything, and nothing came"
        places = {(m.priority, m.place) for m in ready}
        by_id = {m.id: m for m in ready}
        for one in handed:
            assert one.id in by_id, f"message {one.id} was not ready"
            message = by_id.pop(one.id)
            assert one.attempts == message.attempts, f"message {one.id} has other attempts"
            assert one.priority == message.priority
            assert not message.suspect or (len(handed) == 1 and not held), "a suspect was not alone"
            if count == 1:
                assert (message.priority, message.place) == max(places, key=lambda p: (p[0], -p[1]))
            message.owner, message.shown = who, one.body is not None
            assert one.body is None or one.body == message.body
        priorities = [one.priority for one in handed]
        assert priorities == sorted(priorities, reverse=True)
        if priorities and not suspects:
            assert priorities[-1] >= max((m.priority for m in by_id.values()), default=0)

    def show(self, who: int, id: int) -> bytes:
        message = self.live[id]
        assert message.owner == who
        message.shown = True
        return message.body

    # --- settlements -----------------------------------------------------------------------------------------------

    def ack(self, who: int, ids: Sequence[int]) -> None:
        for id in ids:
            assert self.live.pop(id).owner == who

    def give_back(self, who: int, id: int, delay: float, excused: bool) -> None:
        message = self.live[id]
        assert message.owner == who
        self._back(message, excused, delay)

    def _back(self, message: Message, excused: bool, delay: float = 0.0, suspect: bool = False) -> None:
        message.handouts += 1
        message.excused += excused
        message.owner, message.shown, message.suspect = None, False, suspect
        message.due = self.now + delay if delay else 0.0
        limit = self.attempts_max[message.queue]
        if limit is not None and message.handouts - message.excused >= limit:
            self._move(message, self.errors[message.queue])

    def _move(self, message: Message, target: str) -> None:
        message.queue, message.suspect, message.due = target, False, 0.0
        message.place = self.highest_id + 1

    def kill_message(self, who: int, queue: str, id: int) -> None:
        assert self.live.pop(id).owner is None

    def redrive(self, who: int, queue: str, target: str, ids: Sequence[int]) -> None:
        for id in ids:
            message = self.live[id]
            message.handouts = message.excused = 0
            self._move(message, target)

    # --- time and ends ---------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def leave(self, who: int) -> None:
        for message in self.held(who):
            if message.shown:
                self._back(message, excused=True)
            message.owner = None

    def die(self, who: int) -> None:
        held = self.held(who)
        several = sum(m.shown for m in held) > 1
        for message in held:
            if message.shown:
                self._back(message, excused=several, suspect=several)
            message.owner = None

    def sizes(self) -> dict[str, tuple[int, int]]:
        found = dict.fromkeys(self.attempts_max, (0, 0))
        for message in self.live.values():
            live, claimed = found[message.queue]
            found[message.queue] = (live + 1, claimed + (message.owner is not None))
        return found
