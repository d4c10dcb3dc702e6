"""Model of sync leadership: two leaders in turn or at once, over segment files.

Modelled: commits of one cell, a few cells to a file; each leader reads `durable` and the tail, syncs
the files between them one by one, and publishes.  A sync covers what was stored when it began.  A
leader may die at every step, which frees the leadership.  Publishing is a load and a store, which
another leader may come between unless it is one compare-and-swap.

Excluded: failed syncs (failed model), padding (unit model), reuse of files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import Model, Step, Violation, put

FILE = 2  # cells


class Leader(NamedTuple):
    step: str = ""  # read, syncing, loaded
    target: int = 0
    todo: tuple[int, ...] = ()
    covers: int = 0  # the tail when the sync under way began


class Budget(NamedTuple):
    puts: int
    deaths: int


class State(NamedTuple):
    tail: int
    durable: int
    disk: tuple[int, ...]  # of each file, how many of its cells the disk has
    leaders: tuple[Leader, ...]
    left: Budget


class LeaderModel(Model[State]):
    guards = {
        "leadership": "one leader at a time; a death passes leadership on",
        "raise_only": "durable is published by a compare-and-swap that never lowers it",
        "entry_snapshot": "what is published is the tail read before the first sync",
        "all_files": "a leader syncs every file with bytes between durable and its target",
        "file_order": "durable crosses a file's border only after the lower file's sync",
    }
    groups = (("leadership", "raise_only"),)
    profiles = {"one": Budget(3, 1), "two": Budget(4, 2), "long": Budget(8, 3)}
    quick = ("one", "two")

    def initial(self) -> State:
        budget: Budget = self.profiles[self.profile]
        files = -(-budget.puts // FILE)
        return State(0, 0, (0,) * files, (Leader(),) * 2, budget)

    def check(self, s: State) -> None:
        whole = 0
        for cells in s.disk:
            whole += cells
            if cells < FILE:
                break
        if s.durable > whole:
            raise Violation(f"durable is {s.durable}, the disk has {whole} without a gap")

    def steps(self, s: State) -> Iterator[Step[State]]:
        left = s.left
        if left.puts:
            yield f"put at {s.tail}", s._replace(tail=s.tail + 1, left=left._replace(puts=left.puts - 1))
        for p, me in enumerate(s.leaders):
            if me.step and left.deaths:
                t = s._replace(left=left._replace(deaths=left.deaths - 1))
                yield f"leader {p} dies", t._replace(leaders=put(s.leaders, p, Leader()))
            for label, after in self.lead(s, p, me):
                if after.durable < s.durable:
                    raise Violation(f"durable falls from {s.durable} to {after.durable}")
                yield label, after

    def lead(self, s: State, p: int, me: Leader) -> Iterator[Step[State]]:
        def become(new: Leader, s: State = s) -> State:
            return s._replace(leaders=put(s.leaders, p, new))

        if me.step == "":
            busy = any(leader.step for leader in s.leaders)
            if s.tail > s.durable and not (busy and self.on["leadership"]):
                yield f"leader {p} reads durable {s.durable}, tail {s.tail}", become(self.plan(s))
        elif me.step == "read" and me.todo:
            yield (
                f"leader {p} begins to sync file {me.todo[0]}",
                become(me._replace(step="syncing", covers=s.tail)),
            )
        elif me.step == "syncing":
            k = me.todo[0]
            cells = max(s.disk[k], min(FILE, max(0, me.covers - k * FILE)))
            t = s._replace(disk=put(s.disk, k, cells))
            yield f"the sync of file {k} ends", become(me._replace(step="read", todo=me.todo[1:]), t)
            if not self.on["file_order"] and len(me.todo) > 1:
                yield f"leader {p} publishes over the border", t._replace(durable=max(s.durable, me.target))
        elif me.step == "read":
            target = me.target if self.on["entry_snapshot"] else s.tail
            if self.on["raise_only"]:
                t = s._replace(durable=max(s.durable, target))
                yield f"leader {p} publishes {target}", become(Leader(), t)
            elif target > s.durable:
                yield (
                    f"leader {p} sees durable {s.durable}",
                    become(me._replace(step="loaded", target=target)),
                )
            else:
                yield f"leader {p} has nothing to publish", become(Leader())
        else:
            yield f"leader {p} stores {me.target}", become(Leader(), s._replace(durable=me.target))

    def plan(self, s: State) -> Leader:
        todo = tuple(range(s.durable // FILE, (s.tail - 1) // FILE + 1))
        return Leader("read", s.tail, todo if self.on["all_files"] else todo[-1:])
