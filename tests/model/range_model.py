"""Model of ranges: who belongs to a claimed range, in memory and at replay.

A claim of first-time messages names only its first and last id.  Its members are the FRESH slots of
the lane between them.  A message that comes back becomes RETURNED, goes to the heap, and is handed out
singly; if nobody was shown it, its return is not logged, so a replay finds it FRESH again.  An ack of a
whole range is one operation {first, last}, replayed over the slots that are FRESH at that point.

Modelled: one lane, claims as records that outlive their process, logged and unlogged returns, acks of
members one by one (done bits) and of the whole, reaping, a checkpoint of the slots, the next open after
everybody died, and another boot (records are wiped).
Excluded: everything about durability and apply (each section is one step), suspects and verdicts,
ranges over slots that were killed, two lanes, stragglers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import Model, Step, Violation, put

FRESH, RETURNED, HELD, ACKED = "fresh", "returned", "held", "acked"  # HELD: singly, out of the heap


class Record(NamedTuple):
    first: int = 0
    last: int = -1  # below first: the record is free
    single: bool = False
    broken: bool = False  # a member left it: never again one range operation
    left: frozenset[int] = frozenset()  # which members left it
    done: frozenset[int] = frozenset()
    shown: int = 0  # ids below this one were shown
    dead: bool = False  # its owner died; it waits to be reaped
    seen: frozenset[int] = frozenset()  # ghost: the ids that it really showed


class Budget(NamedTuple):
    claims: int
    returns: int  # of members that nobody was shown; not logged
    logged: int  # returns that are logged
    shows: int
    opens: int
    boots: int
    checkpoints: int
    gate: bool = False  # an open reaps every record before anyone claims, and leaves the rest as replayed


class State(NamedTuple):
    slots: tuple[str, ...]
    cursor: int
    heap: frozenset[int]
    records: tuple[Record, ...]
    image: tuple[str, ...]  # what the log's replay yields
    acked: frozenset[int]  # ghost: acks that returned
    left: Budget


FREE = Record()


class RangeModel(Model[State]):
    guards = {
        "broken": "a range that lost a member by an unlogged return is acked id by id",
        "broken_kept": "the broken mark lies in the claim record and outlives the process",
        "left_kept": "the record also says which members left, or the next open takes them for its own",
        "stays_returned": "a slot that came back is RETURNED, never FRESH again",
        "stop_at_history": "a range stops before a RETURNED slot (after a reopening some lie ahead)",
        "stop_at_held": "after a reopening a range stops before an id that an unreaped record holds",
        "fresh_only": "replay applies a range to the FRESH slots between its ends, not to all",
        "image_history": "a checkpoint tells RETURNED from FRESH for the logged returns",
        "single_held": "the next open marks the slot of a single claim as held, not as FRESH",
    }
    profiles = {
        "returns": (3, Budget(3, 2, 0, 0, 0, 1, 0)),
        "opens": (3, Budget(3, 1, 0, 1, 1, 1, 0)),
        "logged": (3, Budget(3, 1, 1, 0, 1, 0, 1)),
        "gate": (3, Budget(3, 2, 1, 1, 1, 1, 1, True)),
        "long": (4, Budget(3, 2, 1, 1, 1, 1, 1)),
    }
    quick = ("returns", "opens", "logged", "gate")

    def initial(self) -> State:
        n, budget = self.profiles[self.profile]
        slots = (FRESH,) * n
        return State(slots, 0, frozenset(), (FREE,) * 3, slots, frozenset(), budget)

    # ---- membership ----
    @staticmethod
    def members(s: State, r: Record) -> list[int]:
        """The rule that memory and replay must share."""
        if r.single:
            return [r.first] if r.last >= r.first and s.slots[r.first] == HELD else []
        return [i for i in range(r.first, r.last + 1) if s.slots[i] == FRESH and i not in r.left]

    def held(self, s: State) -> set[int]:
        return {i for r in s.records for i in self.members(s, r)}

    def check(self, s: State) -> None:
        held = [i for r in s.records for i in self.members(s, r) if i not in r.done]
        ready = range(s.cursor, len(s.slots))
        lane = [i for i in ready if s.slots[i] == FRESH and i not in self.held(s)]
        places = held + lane + sorted(s.heap)
        for i, slot in enumerate(s.slots):
            if i in s.acked:
                if i in lane or i in s.heap:
                    raise Violation(f"message {i} was acked and is ready again")
            elif slot == ACKED or s.image[i] == ACKED:
                raise Violation(f"message {i} is settled and nobody acked it")
            elif places.count(i) != 1:
                raise Violation(f"message {i} is in {places.count(i)} places")

    # ---- the log's effect ----
    def log_ack(self, s: State, r: Record, ids: list[int], whole: bool) -> State:
        """Commit an ack: the memory takes the ids, the replay what the operation says."""
        slots = tuple(ACKED if i in ids else slot for i, slot in enumerate(s.slots))
        if whole and not r.single and not (r.broken and self.on["broken"]):
            ok = (FRESH,) if self.on["fresh_only"] else (FRESH, RETURNED)
            image = tuple(ACKED if r.first <= i <= r.last and slot in ok else slot for i, slot in enumerate(s.image))
        else:
            image = tuple(ACKED if i in ids else slot for i, slot in enumerate(s.image))
        return s._replace(slots=slots, image=image)

    def give_back(self, s: State, i: int, logged: bool) -> State:
        slot = RETURNED if self.on["stays_returned"] else FRESH
        image = put(s.image, i, RETURNED) if logged else s.image
        return s._replace(slots=put(s.slots, i, slot), heap=s.heap | {i}, image=image)

    # ---- steps ----
    def steps(self, s: State) -> Iterator[Step[State]]:
        yield from self.claims(s)
        for k, r in enumerate(s.records):
            members = [i for i in self.members(s, r) if i not in r.done]
            if r.dead:
                yield self.reap(s, k, r, members)
            elif members or r.done:
                yield from self.settle(s, k, r, members)
                yield from self.returns(s, k, r, members)
                yield from self.shows(s, k, r, members)
        left = s.left
        if left.opens:
            t = s._replace(left=left._replace(opens=left.opens - 1))
            yield "everybody is killed; the next open rebuilds", self.reopened(t, s.records)
        if left.boots:
            t = s._replace(left=left._replace(boots=left.boots - 1))
            t = t._replace(acked=frozenset(i for i in s.acked if s.image[i] == ACKED))
            yield "another boot", self.reopened(t, (FREE,) * len(s.records))
        if left.checkpoints:
            image = s.image
            if not self.on["image_history"]:
                image = tuple(FRESH if slot == RETURNED else slot for slot in image)
            t = s._replace(image=image, left=left._replace(checkpoints=left.checkpoints - 1))
            yield "checkpoint", t

    def claims(self, s: State) -> Iterator[Step[State]]:
        free = [k for k, r in enumerate(s.records) if r == FREE]
        if not free or not s.left.claims:
            return
        t = s._replace(left=s.left._replace(claims=s.left.claims - 1))
        if s.heap:
            i = min(s.heap)
            records = put(s.records, free[0], Record(i, i, True))
            slots = put(s.slots, i, HELD)
            yield f"claim {i} singly", t._replace(records=records, heap=s.heap - {i}, slots=slots)
        held = self.held(s) if self.on["stop_at_held"] else set()
        ids = [i for i in range(s.cursor, len(s.slots)) if s.slots[i] == FRESH and i not in held]
        if ids:
            stops = [i for i in held if i > ids[0]]
            if self.on["stop_at_history"]:
                stops += [i for i in range(ids[0], len(s.slots)) if s.slots[i] in (RETURNED, HELD)]
            last = min(stops) - 1 if stops else len(s.slots) - 1
            yield (
                f"claim the range {ids[0]} to {last}",
                t._replace(records=put(s.records, free[0], Record(ids[0], last)), cursor=last + 1),
            )

    def settle(self, s: State, k: int, r: Record, members: list[int]) -> Iterator[Step[State]]:
        """Ack all that is left, or one with a done bit that is committed with the rest."""
        t = s._replace(acked=s.acked.union(members))
        t = self.log_ack(t, r, [*members, *sorted(r.done)], whole=True)
        yield f"ack all of record {k}: {members}", t._replace(records=put(s.records, k, FREE))
        for i in members[-1:]:
            done = put(s.records, k, r._replace(done=r.done | {i}))
            yield f"done bit for {i} in record {k}", s._replace(records=done, acked=s.acked | {i})

    def returns(self, s: State, k: int, r: Record, members: list[int]) -> Iterator[Step[State]]:
        """One member comes back, unlogged (nobody was shown it) or logged."""
        for i in members:
            left = r.left | {i} if self.on["left_kept"] and not r.single else r.left
            what = f"return {i} of record {k}"
            if s.left.returns and i not in r.seen:
                t = self.without(s, k, r._replace(broken=True, left=left), len(members) == 1)
                budget = s.left._replace(returns=s.left.returns - 1)
                yield f"{what}, unlogged", self.give_back(t, i, False)._replace(left=budget)
            if s.left.logged:  # replay sees this return too, so the range stays exact
                t = self.without(s, k, r._replace(left=left), len(members) == 1)
                budget = s.left._replace(logged=s.left.logged - 1)
                yield f"{what}, logged", self.give_back(t, i, True)._replace(left=budget)

    def without(self, s: State, k: int, r: Record, empty: bool) -> State:
        """The record after a member left; an empty one commits its done bits and is free."""
        if not empty:
            return s._replace(records=put(s.records, k, r))
        t = self.log_ack(s, r, sorted(r.done), whole=False)
        return t._replace(records=put(s.records, k, FREE))

    def shows(self, s: State, k: int, r: Record, members: list[int]) -> Iterator[Step[State]]:
        """Bodies reach user code in order; the record keeps how far."""
        if s.left.shows:
            budget = s.left._replace(shows=s.left.shows - 1)
            for i in members:
                seen = r.seen.union(j for j in members if j <= i)
                shown = r._replace(shown=max(r.shown, i + 1), seen=seen)
                yield f"record {k} shows up to {i}", s._replace(records=put(s.records, k, shown), left=budget)

    def reopened(self, s: State, records: tuple[Record, ...]) -> State:
        """Everybody is dead: slots from the log, records from the claims file."""
        slots = list(s.image)
        for r in records:
            if r.single and r != FREE and slots[r.first] != ACKED and self.on["single_held"]:
                slots[r.first] = HELD
        heap = frozenset(i for i, slot in enumerate(slots) if slot == RETURNED)
        records = tuple(r if r == FREE else r._replace(dead=True) for r in records)
        if not self.on["broken_kept"]:
            records = tuple(r._replace(broken=False) for r in records)
        t = s._replace(slots=tuple(slots), cursor=0, heap=heap, records=records)
        if s.left.gate:
            for k, r in enumerate(records):
                if r != FREE:
                    _, t = self.reap(t, k, r, [i for i in self.members(t, r) if i not in r.done])
            heap = frozenset(i for i, slot in enumerate(t.image) if slot == RETURNED)
            t = t._replace(slots=t.image, heap=heap)
        return t

    def reap(self, s: State, k: int, r: Record, members: list[int]) -> Step[State]:
        """Commit the done bits, return the others, free the record."""
        wrong = [i for i in members if i < r.shown and i not in r.seen]
        if wrong:
            raise Violation(f"message {wrong[0]} is blamed by a claim that never showed it")
        t = s._replace(records=put(s.records, k, FREE))
        t = self.log_ack(t, r, sorted(r.done), whole=not members)
        for i in members:
            t = self.give_back(t, i, False)
        return f"reap record {k}: ack {sorted(r.done)}, return {members}", t
