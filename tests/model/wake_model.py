"""Model of waiting for a message: getters that spin, then sleep; putters that wake them.

Modelled: each load and store of the words that both sides share: arrivals, the futex word `sequence`, the counts
of spinners and of sleepers.  A getter reads both, tries to claim, counts itself, looks again, spins for any time or not
at all, goes on to sleeping, and sleeps only while the sequence is what it read.  A putter publishes, looks for the
counted, raises the sequence, looks for sleepers, wakes all.  Violation: everybody who could still do something is
asleep while a message waits.

Excluded: the end of a slice, which would hide a lost wake-up for 50 ms; deaths (a count that stays raised costs puts a
system call and loses nothing); what one thread does twice at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import Model, Step, Violation, put


class Getter(NamedTuple):
    step: str = "begin"
    sequence: int = 0
    seen: int = 0


class Putter(NamedTuple):
    step: str = "begin"
    sleepers: bool = False  # seen before the sequence was raised


class State(NamedTuple):
    arrivals: int
    claimed: int
    sequence: int
    spinners: int
    sleepers: int
    getters: tuple[Getter, ...]
    putters: tuple[Putter, ...]


class WakeModel(Model[State]):
    guards = {
        "publish_first": "a put looks for waiters after its message is visible (a fence between)",
        "count_first": "a waiter counts itself, then looks again (a fence between)",
        "look_arrivals": "it looks at what arrived, not only at the sequence, which nobody raises for the uncounted",
        "sleeper_first": "who goes from spinning to sleeping counts itself as a sleeper before it leaves the spinners",
        "sleepers_last": "a put looks for sleepers after it raised the sequence",
        "compare": "the system puts to sleep only while the sequence is what the waiter read",
    }
    second_lines = ("sleeper_first", "sleepers_last")  # look_arrivals covers for them
    profiles = {"one": (1, 1), "two": (2, 2), "many": (2, 3)}  # getters, putters
    quick = ("one", "two")

    def initial(self) -> State:
        getters, putters = self.profiles[self.profile]
        return State(0, 0, 0, 0, 0, (Getter(),) * getters, (Putter(),) * putters)

    def check(self, s: State) -> None:
        awake = any(g.step not in ("asleep", "done") for g in s.getters) or any(p.step != "done" for p in s.putters)
        if not awake and s.arrivals > s.claimed and any(g.step == "asleep" for g in s.getters):
            raise Violation("a message waits and its getter sleeps")

    def steps(self, s: State) -> Iterator[Step[State]]:
        for i, getter in enumerate(s.getters):
            for label, t, after in self.get(s, getter):
                yield f"getter {i} {label}", t._replace(getters=put(t.getters, i, after))
        for i, putter in enumerate(s.putters):
            for label, t, done in self.put(s, putter):
                yield f"putter {i} {label}", t._replace(putters=put(t.putters, i, done))

    def same(self, s: State, me: Getter) -> bool:
        return s.sequence == me.sequence and (s.arrivals == me.seen or not self.on["look_arrivals"])

    def get(self, s: State, me: Getter) -> Iterator[tuple[str, State, Getter]]:
        count_first = self.on["count_first"]
        again = Getter()
        if me.step == "begin":
            yield "reads the sequence", s, me._replace(step="arrivals", sequence=s.sequence)
        elif me.step == "arrivals":
            yield "reads what arrived", s, me._replace(step="claim", seen=s.arrivals)
        elif me.step == "claim" and s.arrivals > s.claimed:
            yield "claims", s._replace(claimed=s.claimed + 1), Getter("done")
        elif me.step == "claim":
            yield "finds none and will spin", s, me._replace(step="count spinner")
            yield "finds none and will sleep", s, me._replace(step="count" if count_first else "look")
        elif me.step == "count spinner":
            yield "counts itself as a spinner", s._replace(spinners=s.spinners + 1), me._replace(step="look spinning")
        elif me.step == "look spinning":
            yield "looks again", s, me._replace(step="spin" if self.same(s, me) else "stop")
        elif me.step == "spin":
            if s.sequence != me.sequence:
                yield "sees the sequence change", s, me._replace(step="stop")
            if self.on["sleeper_first"]:
                yield "spun enough, counts itself", s._replace(sleepers=s.sleepers + 1), me._replace(step="leave")
            else:
                yield "spun enough", s._replace(spinners=s.spinners - 1), me._replace(step="count")
        elif me.step == "stop":
            yield "stops spinning", s._replace(spinners=s.spinners - 1), again
        elif me.step == "leave":
            yield "leaves the spinners", s._replace(spinners=s.spinners - 1), me._replace(step="look counted")
        elif me.step == "count":
            after = me._replace(step="look counted" if count_first else "sleep")
            yield "counts itself as a sleeper", s._replace(sleepers=s.sleepers + 1), after
        elif me.step == "look":  # not counted yet: only without count_first
            yield "looks again", s, me._replace(step="count") if self.same(s, me) else again
        elif me.step == "look counted":
            yield "looks again", s, me._replace(step="sleep" if self.same(s, me) else "woken")
        elif me.step == "sleep":
            stale = self.on["compare"] and s.sequence != me.sequence
            yield "asks to sleep", s, me._replace(step="woken" if stale else "asleep")
        elif me.step == "woken":
            yield "is awake", s._replace(sleepers=s.sleepers - 1), again

    def put(self, s: State, me: Putter) -> Iterator[tuple[str, State, Putter]]:
        counted = s.sleepers + s.spinners > 0
        first = self.on["publish_first"]
        if me.step == "begin" and first:
            yield "publishes", s._replace(arrivals=s.arrivals + 1), Putter("look")
        elif me.step in ("begin", "look"):
            found = Putter("raise" if counted else "done", s.sleepers > 0)
            if first:
                yield "looks for the counted", s, found
            else:
                yield "looks for the counted", s, found._replace(step="late " + found.step)
        elif me.step.startswith("late "):
            yield "publishes", s._replace(arrivals=s.arrivals + 1), me._replace(step=me.step[5:])
        elif me.step == "raise":
            yield "raises the sequence", s._replace(sequence=s.sequence + 1), me._replace(step="wake")
        elif me.step == "wake":
            wake = s.sleepers > 0 if self.on["sleepers_last"] else me.sleepers
            woken = tuple(g._replace(step="woken") if g.step == "asleep" and wake else g for g in s.getters)
            yield "wakes the sleepers" if wake else "sees no sleeper", s._replace(getters=woken), Putter("done")
