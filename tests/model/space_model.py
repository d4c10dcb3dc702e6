"""Model of space: marks on what is free, so that a full repository can always be drained.

Modelled: a pool of segments of a few cells; puts, acks, and commits that settle a message and add a
reply; checkpoints, which free what lies below their begin and has no live message; cleaning, which
copies the live messages of the emptiest segment to the tail; a checkpoint's death after its blocks.  No
bounds but the pool: every sequence of commits is explored.  In every state the job is run as a blocked
caller would run it, and must make room for an ack and for a settling commit if there is a message, and
for a put if little enough is live.

Excluded: which message is where (only counts), the sizes of bodies, registrations' copies, growth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import Model, Step, Violation


class Bounds(NamedTuple):
    segments: int
    cells: int  # in a segment
    put_step: int  # cells between the marks of puts and of commits that settle and answer
    settle_step: int  # cells between that mark and that of acks
    checkpoint: int  # cells of one checkpoint
    live_max: int  # live cells that a put may reach
    promised: int  # live cells up to which a put must find room
    deaths: int


class State(NamedTuple):
    old: tuple[int, ...]  # live cells of each sealed segment below the checkpoint's begin
    new: tuple[int, ...]  # the same above it
    used: int  # of the tail segment
    live: int  # of the tail segment
    deaths: int


def replaced(items: tuple[int, ...], old: int, new: int) -> tuple[int, ...]:
    k = items.index(old)
    return tuple(sorted((*items[:k], new, *items[k + 1 :])))


class SpaceModel(Model[State]):
    guards = {
        "settle_mark": "puts stop earlier than commits that settle and answer",
        "ack_mark": "commits that answer stop earlier than acks",
        "job_mark": "acks stop earlier than checkpoint and cleaning",
        "gain": "below the mark of acks no checkpoint starts that would free nothing",
        "settle_net": "below the put mark a commit may add no more than it settles",
        "clean_leaves": "cleaning leaves room for the checkpoint that frees what it cleaned",
        "clean": "segments that are mostly dead are cleaned",
        "live_max": "live bytes are bounded below the capacity",
        "death_reserve": "and for a second one: the first may die after its blocks",
    }
    profiles = {
        "small": Bounds(8, 3, 3, 3, 1, 7, 4, 1),
        "wide": Bounds(8, 4, 3, 3, 2, 9, 4, 1),
        "twice": Bounds(9, 3, 3, 3, 1, 9, 4, 2),
        "more": Bounds(10, 4, 4, 4, 2, 16, 8, 1),
    }
    quick = ("small", "wide")

    def __init__(self, profile: str, off: tuple[str, ...] = ()) -> None:
        super().__init__(profile, off)
        self.b: Bounds = self.profiles[profile]
        self.reserve = self.b.checkpoint * (1 + (self.b.deaths if self.on["death_reserve"] else 0))
        ack = max(2 * self.b.cells, self.reserve) if self.on["job_mark"] else 0
        settle = ack + (self.b.settle_step if self.on["ack_mark"] else 0)
        put = settle + (self.b.put_step if self.on["settle_mark"] else 0)
        self.marks = {"put": put, "settle": settle, "ack": ack}  # cells that a commit leaves free

    def initial(self) -> State:
        return State((), (), 0, 0, self.b.deaths)

    # ---- room ----
    def free(self, s: State) -> int:
        """Free cells, those of the tail segment among them."""
        b = self.b
        return (b.segments - len(s.old) - len(s.new) - 1) * b.cells + b.cells - s.used

    def append(self, s: State, size: int, live: int = 0, leave: int = 0) -> State | None:
        """The state after a commit of so many cells, or None if it does not fit."""
        b = self.b
        if s.used + size > b.cells:  # a commit lies in one segment; the rest of the tail is lost
            s = s._replace(new=tuple(sorted((*s.new, s.live))), used=0, live=0)
        if len(s.old) + len(s.new) + 1 > b.segments:
            return None
        s = s._replace(used=s.used + size, live=s.live + live)
        return s if self.free(s) >= leave else None

    def admitted(self, s: State, kind: str) -> State | None:
        size, live = {"put": (1, 1), "ack": (1, 0), "settle": (2, 1)}[kind]
        if kind == "settle" and not self.on["settle_net"]:
            size, live = size + 1, live + 1
        if kind == "put" and self.on["live_max"] and self.all_live(s) >= self.b.live_max:
            return None
        return self.append(s, size, live, self.marks[kind])

    @staticmethod
    def all_live(s: State) -> int:
        return sum(s.old) + sum(s.new) + s.live

    # ---- the job ----
    def checkpoint(self, s: State) -> State | None:
        """Blocks, then everything sealed before begin is old, and free if nothing in it lives."""
        t = self.append(s, self.b.checkpoint)
        if t is None:
            return None
        old = tuple(sorted(x for x in (*s.old, *s.new) if x))
        # The segment in which begin lies may have been sealed by the blocks: it stays, it is above.
        return t._replace(old=old, new=(s.live,) if len(t.new) > len(s.new) else ())

    def cleaned(self, s: State) -> State | None:
        """One message of the emptiest sealed segment goes to the tail."""
        low = min((x for x in (*s.old, *s.new) if x), default=self.b.cells)
        if not self.on["clean"] or low > self.b.cells * 3 // 4:
            return None
        t = self.append(s, 1, 1, self.reserve if self.on["clean_leaves"] else 0)
        if t is None:
            return None
        if low in t.old:
            return t._replace(old=replaced(t.old, low, low - 1))
        return t._replace(new=replaced(t.new, low, low - 1))

    def relieved(self, s: State, kind: str) -> bool:
        """Does the job make room?  Rounds of cleaning and a checkpoint, while a round gains."""
        while not self.admitted(s, kind):
            before, after = s, self.checkpoint(s)
            if after and self.free(after) > self.free(s):
                s = after
                continue
            while (copy := self.cleaned(s)) is not None:
                s = copy
            after = self.checkpoint(s)
            if after is None or self.free(after) <= self.free(before):
                return False
            s = after
        return True

    def check(self, s: State) -> None:
        live = self.all_live(s)
        for kind in ("ack", "settle") if live else ():
            if not self.relieved(s, kind):
                raise Violation(f"no room for a commit that settles ({kind}), with {live} live: {s}")
        if live < self.b.promised and not self.relieved(s, "put"):
            raise Violation(f"no room for a put, with {live} live: {s}")

    def next_class(self, s: State, kind: str) -> None:
        """No class of commits may use up what the next one needs at once, before any job runs."""
        room = self.checkpoint(s) if kind == "checkpoint" else self.admitted(s, kind)
        if room is None:
            raise Violation(f"no room left for the next class ({kind}): {s}")

    # ---- steps ----
    def steps(self, s: State) -> Iterator[Step[State]]:
        after = self.admitted(s, "put")
        if after:
            self.next_class(after, "settle")
            yield "put", after
        for kind in ("ack", "settle"):
            after = self.admitted(s, kind)
            if after:
                self.next_class(after, "ack" if kind == "settle" else "checkpoint")
            for where, t in self.settled(after) if after else ():
                yield f"{kind} of a message in {where}", t
        after = self.checkpoint(s)
        gains = after and self.free(after) > self.free(s)
        if after and (gains or self.free(after) >= self.marks["ack"] or not self.on["gain"]):
            yield "checkpoint", after
            blocks = self.append(s, self.b.checkpoint)
            if s.deaths and blocks:
                yield "a checkpoint dies after its blocks", blocks._replace(deaths=s.deaths - 1)
        copy = self.cleaned(s)
        if copy:
            yield "cleaning moves a message", copy

    @staticmethod
    def settled(s: State) -> Iterator[tuple[str, State]]:
        """One message fewer, wherever it is."""
        for x in sorted(set(s.old) - {0}):
            yield f"an old segment of {x}", s._replace(old=replaced(s.old, x, x - 1))
        for x in sorted(set(s.new) - {0}):
            yield f"a new segment of {x}", s._replace(new=replaced(s.new, x, x - 1))
        if s.live:
            yield "the tail", s._replace(live=s.live - 1)
