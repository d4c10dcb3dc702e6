"""The messages that are not settled at the end of a log, found by replaying it without the engine.

What holds:

1. The rules are the engine's, in a few lines: a range of ids settles only messages that were never handed
   out one by one, a moved message belongs to its new queue, a copied one lies at its new place.
2. It serves dump and repair, where the engine must not be trusted with the files.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from rota import _records
from rota._core.inspection import Inspector
from rota._records import Commit, Message, Operation


@dataclasses.dataclass(slots=True)
class State:
    """What is known of one live message besides its frame."""

    message: Message
    fresh: bool
    handouts: int = 0
    suspect: bool = False
    parked: bool = False
    due_ns: int = 0


class Replay:
    """The live messages and the queues, as far as the commits that were applied say."""

    def __init__(self) -> None:
        self.states: dict[int, State] = {}
        self.queues: dict[int, dict[str, Any]] = {}

    def apply(self, commit: Commit) -> None:
        """Take one commit in."""
        for operation in commit.operations:
            handler = getattr(self, f"_{operation.kind}", None)
            if handler is not None:
                handler(operation, commit)

    def _put(self, operation: Operation, commit: Commit) -> None:
        first, count = operation.fields["first"], operation.fields["count"]
        for message in commit.messages[first : first + count]:
            due = int(message.attributes.get("due_ns", 0))
            self.states[message.id] = State(message, fresh=due <= commit.time_ns, due_ns=due)

    def _copy(self, operation: Operation, commit: Commit) -> None:
        first, count = operation.fields["first"], operation.fields["count"]
        for message in commit.messages[first : first + count]:
            if message.id in self.states:
                state = self.states[message.id]
                state.message = dataclasses.replace(message, queue=state.message.queue)

    def _ack(self, operation: Operation, commit: Commit) -> None:
        first, last = operation.fields["first_id"], operation.fields["last_id"]
        if first == last:
            self._end(operation.queue, first)
            return
        candidates = range(first, last + 1) if last - first < len(self.states) else list(self.states)
        for id in candidates:
            state = self.states.get(id)
            if state is None or not first <= id <= last or not state.fresh:
                continue
            if (state.message.queue, state.message.priority) == (
                operation.queue,
                operation.fields["priority"],
            ):
                del self.states[id]

    def _end(self, queue: int, id: int) -> None:
        state = self.states.get(id)
        if state is not None and state.message.queue == queue:
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
        state = self.states.get(operation.fields["id"])
        if state is not None and state.message.queue == operation.queue:
            state.message = dataclasses.replace(state.message, queue=operation.fields["target"])
            state.fresh, state.handouts = False, operation.fields["handouts"]

    def _return(self, operation: Operation, commit: Commit) -> None:
        state = self.states.get(operation.fields["id"])
        if state is not None and state.message.queue == operation.queue:
            state.fresh, state.due_ns = False, operation.fields["due_ns"]
            state.handouts = operation.fields["handouts"]
            state.suspect, state.parked = operation.fields["suspect"], operation.fields["parked"]

    def _queue(self, operation: Operation, commit: Commit) -> None:
        if operation.fields["action"] == "destroy":
            self.queues.pop(operation.queue, None)
        else:
            self.queues.setdefault(operation.queue, {}).update(operation.fields)


def live(path: str | os.PathLike[str]) -> Iterator[tuple[str, Message]]:
    """Yield the name of its queue and each message that is not settled, in the order of ids."""
    inspector = Inspector(path)
    replay = Replay()
    while (found := inspector.step()) is not None:
        replay.apply(_records.commit(*found))
    for id in sorted(replay.states):
        message = replay.states[id].message
        yield str(replay.queues.get(message.queue, {}).get("name", message.queue)), message
