"""Model of a limiter's keys: one due time each, slots that pass from key to key, deaths under the lock.

Modelled: each load, store and compare-and-swap on the due times and names of one set of slots, the lock, and the word
that names the slot that is passing.  Cost and burst are 1: a key may begin once in each tick.  A caller reads the
clock, looks for its slot without the lock, enters under it, may give its turn back, and may die at any step.
Violation: two turns of one key at the same tick; a slot lost for ever.

Excluded: the other order of those two loads, reordering between processors; rates that change; sets, which are
independent; a reboot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.model.explore import Model, Step, Violation, put

BUSY = -1
FREE, DEAD = -1, -2


class Caller(NamedTuple):
    key: str
    step: str = "begin"
    now: int = 0
    slot: int = 0
    seen: int = 0
    named: bool = False
    locked: bool = False
    after: int = 0


class Slot(NamedTuple):
    due: int = 0
    name: str = ""


class State(NamedTuple):
    clock: int
    lock: int
    filling: int
    slots: tuple[Slot, ...]
    callers: tuple[Caller, ...]
    turns: frozenset[tuple[str, int]] = frozenset()


class LimitModel(Model[State]):
    guards = {
        "compare": "a due time is raised by compare-and-swap from what was read",
        "busy": "the due time says BUSY while the name changes",
        "compare_busy": "it becomes BUSY by compare-and-swap: its key may be in use again",
        "over": "a slot passes to another key only when its time is over",
        "look_again": "who has the lock looks again whether the key got a slot meanwhile",
        "clock_locked": "the clock is read under the lock",
        "repair": "the next owner of the lock after a death frees the slot that was passing",
        "last_only": "a turn is given back only if none came after it",
    }
    # keys of the callers, slots, ticks, whether they die, whether they give turns back
    profiles = {
        "deaths": ("ab", 1, 1, True, False),
        "returns": ("aaa", 1, 1, False, True),
        "passes": ("aab", 1, 2, False, False),
        "two": ("aab", 2, 1, False, False),
        "four": ("abbb", 2, 1, False, False),
        "all": ("aba", 1, 2, True, True),
    }
    quick = ("deaths", "returns", "passes", "two")
    slow = (("compare_busy",), ("clock_locked",), ("over",), ("last_only",))

    def initial(self) -> State:
        keys, slots, *_ = self.profiles[self.profile]
        return State(0, FREE, 0, (Slot(),) * slots, tuple(Caller(key) for key in keys))

    def check(self, s: State) -> None:
        if s.lock == FREE and any(slot.due == BUSY for slot in s.slots):
            raise Violation("a slot is lost")

    def steps(self, s: State) -> Iterator[Step[State]]:
        if s.clock < self.profiles[self.profile][2]:
            yield "the clock ticks", s._replace(clock=s.clock + 1)
        for i, me in enumerate(s.callers):
            for label, t in self.act(s, i, me):
                yield f"{i} ({me.key}) {label}", t
            if me.locked and self.profiles[self.profile][3]:
                dead = me._replace(step="dead", locked=False)
                yield f"{i} dies", s._replace(lock=DEAD, callers=put(s.callers, i, dead))

    def act(self, s: State, i: int, me: Caller) -> Iterator[tuple[str, State]]:
        def mine(t: State = s, **changes: Any) -> State:
            return t._replace(callers=put(t.callers, i, me._replace(**changes)))

        if me.step == "begin":
            yield "reads the clock", mine(step="first", now=s.clock, slot=0)
        elif me.step in ("first", "second"):
            yield self.look(s, i, me)
        elif me.step == "swap":
            yield self.swap(s, i, me)
        elif me.step == "lock" and s.lock in (FREE, DEAD):
            t = self.repaired(s) if s.lock == DEAD and self.on["repair"] else s
            now = s.clock if self.on["clock_locked"] else me.now
            step = "first" if self.on["look_again"] else "choose"
            yield "takes the lock", mine(t._replace(lock=i), step=step, locked=True, now=now, slot=0)
        elif me.step == "choose":
            yield from self.choose(s, i, me)
        elif me.step == "busy":
            slot = s.slots[me.slot]
            if self.on["compare_busy"] and slot.due != me.seen:
                yield "loses the slot", mine(step="choose", slot=me.slot + 1)
            else:
                due = BUSY if self.on["busy"] else slot.due
                yield (
                    "marks the slot",
                    mine(s._replace(slots=put(s.slots, me.slot, slot._replace(due=due))), step="name"),
                )
        elif me.step == "name":
            slots = put(s.slots, me.slot, s.slots[me.slot]._replace(name=me.key))
            yield "names the slot", mine(s._replace(slots=slots), step="fill")
        elif me.step == "fill":
            slots = put(s.slots, me.slot, s.slots[me.slot]._replace(due=me.now + 1))
            yield "fills it", self.taken(mine(s._replace(slots=slots), step="filled", after=me.now + 1), me.key, me.now)
        elif me.step == "filled":
            yield "leaves the lock", mine(s._replace(filling=0, lock=FREE), step="taken", locked=False)
        elif me.step == "taken":
            yield "begins", mine(step="done")
            if self.profiles[self.profile][4]:
                yield "gives its turn back", self.give_back(mine(step="done"), me)

    def look(self, s: State, i: int, me: Caller) -> tuple[str, State]:
        """Two loads of a slot: its due time, then its name."""
        slot = s.slots[me.slot]
        if me.step == "first":
            me = me._replace(seen=slot.due)
        else:
            me = me._replace(named=slot.name == me.key)
        if me.step == "first":
            return "looks at a slot", s._replace(callers=put(s.callers, i, me._replace(step="second")))
        if me.named and me.seen != BUSY:
            me = me._replace(step="swap")
        elif me.slot + 1 < len(s.slots):
            me = me._replace(step="first", slot=me.slot + 1)
        else:
            me = me._replace(step="choose" if me.locked else "lock", slot=0)
        return "looks at it again", s._replace(callers=put(s.callers, i, me))

    def swap(self, s: State, i: int, me: Caller) -> tuple[str, State]:
        slot, begins = s.slots[me.slot], max(me.seen, me.now)
        if slot.due != me.seen and self.on["compare"]:
            return "swaps in vain", s._replace(callers=put(s.callers, i, me._replace(step="first", slot=0)))
        t = s._replace(slots=put(s.slots, me.slot, slot._replace(due=begins + 1)))
        if me.locked:
            t = t._replace(lock=FREE)
        after = me._replace(step="taken", after=begins + 1, locked=False)
        return "swaps", self.taken(t._replace(callers=put(s.callers, i, after)), me.key, begins)

    def choose(self, s: State, i: int, me: Caller) -> Iterator[tuple[str, State]]:
        if me.slot == len(s.slots):
            after = me._replace(step="done", locked=False)
            yield "finds no room", s._replace(lock=FREE, filling=0, callers=put(s.callers, i, after))
            return
        due = s.slots[me.slot].due
        if due == BUSY or (due > me.now and self.on["over"]):
            yield "passes a slot", s._replace(callers=put(s.callers, i, me._replace(slot=me.slot + 1)))
        else:
            after = me._replace(step="busy", seen=due)
            yield "chooses a slot", s._replace(filling=me.slot + 1, callers=put(s.callers, i, after))

    def repaired(self, s: State) -> State:
        if s.filling and s.slots[s.filling - 1].due == BUSY:
            s = s._replace(slots=put(s.slots, s.filling - 1, Slot()))
        return s._replace(filling=0)

    def taken(self, s: State, key: str, begins: int) -> State:
        if (key, begins) in s.turns:
            raise Violation(f"two turns of {key} at {begins}")
        return s._replace(turns=s.turns | {(key, begins)})

    def give_back(self, s: State, me: Caller) -> State:
        slot = s.slots[me.slot]
        if slot.due != me.after and (self.on["last_only"] or slot.due <= 0):
            return s
        slots = put(s.slots, me.slot, slot._replace(due=slot.due - 1))
        return s._replace(slots=slots, turns=s.turns - {(me.key, me.after - 1)})
