"""The deduplication automata in plain Python, one dictionary for each question: what the compiled ones must answer."""

from __future__ import annotations

from rota import Action, Turn

Key = bytes | int
OWN_HEAD = "own head"


class Automata:
    """Owners are numbers; a call is one step."""

    def __init__(self) -> None:
        self.heads: dict[Key, int] = {}
        self.waiting: dict[Key, int] = {}
        self.turns: dict[tuple[int, Key], Turn] = {}  # promoted, and did not wait since

    def enqueue(self, owner: int, key: Key) -> Action | str:
        if self.heads.get(key) == owner:
            return OWN_HEAD
        if key in self.waiting:
            return Action.DECLINE
        self.turns.pop((owner, key), None)
        if key in self.heads:
            self.waiting[key] = owner
            return Action.BLOCK
        self.heads[key] = owner
        return Action.ACCEPT

    def dequeue(self, owner: int, key: Key) -> bool:
        if self.heads.get(key) != owner:
            return False
        self.turns.pop((owner, key), None)
        del self.heads[key]
        if key in self.waiting:
            self.promote(key, Turn.ENDED)
        return True

    def promote(self, key: Key, turn: Turn) -> None:
        waiter = self.waiting.pop(key)
        self.heads[key] = waiter
        self.turns[waiter, key] = turn

    def end_wait(self, owner: int, key: Key, evict: bool) -> Turn | None:
        if (owner, key) not in self.turns and self.waiting.get(key) == owner:
            if not evict:
                del self.waiting[key]
                return None
            self.promote(key, Turn.EVICTED)
        return self.turns.pop((owner, key), None)

    def state(self) -> tuple[frozenset[object], ...]:
        return tuple(frozenset(part.items()) for part in (self.heads, self.waiting, self.turns))
