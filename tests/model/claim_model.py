"""Model of claims: claim, show, done bit, ack, death, reap by a survivor and by the next open.

A section under the lock is one step for a living process; a death inside it is a step of its own that
leaves the lock to be repaired.  A killer kills its process whenever its body reaches user code; kills
from outside come from a budget.  A process has up to two claims at once.  A lease may end while its
owner lives, and late marks and acks still arrive.  What the states are made of: claim_state.py; deaths
and reaping: claim_reap.py.  In the profile "together" the claims of a process are those of one transaction.

Excluded: more than two processes and three records, nack, release, extend, moves, priorities, several
queues, a torn record, more than two attempts, single stores inside a section (apply model), who belongs
to a range (range model).
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.claim_reap import Reaping
from tests.model.claim_state import (
    FREE,
    RECORDS,
    Hand,
    Late,
    Process,
    Record,
    Seen,
    State,
)
from tests.model.explore import Step, Violation, put


class ClaimModel(Reaping):
    quick = ("lease", "reap", "killer", "together")

    def steps(self, s: State) -> Iterator[Step[State]]:
        any_alive = any(p.alive for p in s.processes)
        for p, me in enumerate(s.processes):
            if not me.alive:
                if s.left.starts:
                    left = s.left._replace(starts=s.left.starts - 1)
                    new = put(s.processes, p, Process(True, me.incarnation + 1))
                    t = s._replace(processes=new, left=left)
                    yield (f"process {p} starts", t) if any_alive else self.open(t, p)
                continue
            if s.left.kills:
                yield f"process {p} is killed", self.dies(s, p)
            yield from self.user(s, p)
            if s.broken:
                yield self.repair(s, p)
                continue
            yield from self.claim(s, p)
            yield from self.flush(s, p)
            yield from self.reap(s, p)
        if s.left.boots:
            yield "power cut, another boot", self.rebooted(s)

    def rebooted(self, s: State) -> State:
        ghost = s.ghost._replace(
            acked=frozenset(i for i in s.ghost.acked if s.log[i].settled),
            blame=(),
            seen=frozenset(),
            lost=s.ghost.lost + 1,
        )
        dead = tuple(Process(False, p.incarnation) for p in s.processes)
        records = (FREE,) * RECORDS if self.on["wipe"] else s.records
        left = s.left._replace(boots=s.left.boots - 1)
        return s._replace(processes=dead, records=records, ghost=ghost, left=left)

    # ---- claim ----
    def choices(self, s: State, held: list[Record]) -> list[tuple[bool, tuple[int, ...]]]:
        """What a process may get: (single?, ids).  The returned come before the cursor."""
        alone = self.on["holds_nothing"] and not (self.bounds.together and self.on["own_claims"])
        if alone and any(s.log[i].suspect for r in held for i in self.unsettled(s, r)):
            return []
        if s.heap:
            first, several = min(s.heap), tuple(sorted(s.heap)[: self.bounds.batch])
            if alone and s.log[first].suspect and held:
                return []
            together = not self.on["suspect_alone"] and len(several) > 1
            return [(True, (first,))] + ([(True, several)] if together else [])
        ids = tuple(range(s.cursor, len(s.log)))[: self.bounds.batch]
        return [(False, ids[:n]) for n in range(1, len(ids) + 1)]

    def claim(self, s: State, p: int) -> Iterator[Step[State]]:
        free = [k for k, r in enumerate(s.records) if r.state == "free"]
        held = [r for r in s.records if self.belongs(s, r, p)]
        if not free or len(held) > 1:
            return
        k, me = free[0], s.processes[p]
        choices = self.choices(s, held)
        if self.bounds.together and not choices and s.heap:
            raise Violation(f"the transaction of process {p} wants {sorted(s.heap)} and waits for itself")
        for single, ids in choices:
            generation = s.records[k].generation + 1
            first = self.bounds.together and s.log[ids[0]].suspect and not any(r.first for r in held)
            record = Record("prepared", p, me.incarnation, single, ids, 0, frozenset(), generation, first=first)
            prepared = s._replace(records=put(s.records, k, record))
            moved = self.advance(prepared if self.on["prepared"] else s, single, ids)
            hands = (*me.hands, Hand(k, generation, ids))
            done = moved._replace(
                records=put(s.records, k, record._replace(state="active")),
                processes=put(s.processes, p, me._replace(hands=hands)),
            )
            yield f"process {p} claims {ids} in record {k}", done
            if s.left.kills:
                if self.on["prepared"]:
                    yield f"process {p} dies, {ids} PREPARED, lane as before", self.dies(prepared, p, True)
                yield f"process {p} dies, {ids} out of the lane", self.dies(moved, p, True)

    @staticmethod
    def advance(s: State, single: bool, ids: tuple[int, ...]) -> State:
        return s._replace(heap=s.heap.difference(ids)) if single else s._replace(cursor=ids[-1] + 1)

    # ---- user code ----
    def user(self, s: State, p: int) -> Iterator[Step[State]]:
        """Bodies reach user code in order; acks that coalesce set a done bit."""
        me = s.processes[p]
        for k, generation, ids in me.hands:
            r = s.records[k]
            mine = r.generation == generation and r.state == "active"
            seen = {x.message for x in s.ghost.seen if x[:2] == (p, me.incarnation) and x[3:] == (k, generation)}
            todo = [j for j, i in enumerate(ids) if i not in seen]
            if todo and ((mine and not s.broken) or not self.on["marks_checked"]):
                for upto in sorted({todo[0] + 1, len(ids)}):
                    yield self.show_bodies(s, p, Hand(k, generation, ids), upto)
            for j, i in enumerate(ids):
                late = Late(k, generation, j, i)
                if i not in seen or self.bounds.kinds[i] == "k" or late in me.late or (mine and j in r.done):
                    continue
                if (mine or not self.on["generation"]) and not s.broken:
                    yield self.ack(s, p, late)
                if not self.on["done_checked"] and mine and not me.late:
                    t = s._replace(processes=put(s.processes, p, me._replace(late=(late,))))
                    yield f"process {p} checks record {k}, will set the done bit of {i}", t
        for late in me.late:
            t = s._replace(processes=put(s.processes, p, me._replace(late=())))
            yield self.ack(t, p, late)

    def ack(self, s: State, p: int, late: Late) -> Step[State]:
        k, _, position, i = late
        r, me = s.records[k], s.processes[p]
        t = s._replace(ghost=s.ghost._replace(acked=s.ghost.acked | {i}))
        if position >= len(r.ids):
            return f"process {p} sets a done bit for {i} in a free record", t
        if r.ids[position] != i:
            raise Violation(f"an ack of {i} by process {p} settled {r.ids[position]}, which another holds")
        if (r.owner, r.incarnation) != (p, me.incarnation):
            raise Violation(f"an ack of {i} by process {p} settled it while another holds it")
        if not self.on["done_bits"]:
            return f"process {p} acks {i}, kept in its own memory", t
        records = put(s.records, k, r._replace(done=r.done | {position}))
        return f"process {p} acks {i} (done bit)", t._replace(records=records)

    def show_bodies(self, s: State, p: int, hand: Hand, upto: int) -> Step[State]:
        k, generation, ids = hand
        me, ghost = s.processes[p], s.ghost
        new = [i for i in ids[:upto] if Seen(p, me.incarnation, i, k, generation) not in ghost.seen]
        for i in new:
            if i in ghost.acked or s.log[i].settled == "acked":
                raise Violation(f"message {i} was acked and is shown again")
            if any(x.message == i and self.holds(s, x) for x in ghost.seen):
                raise Violation(f"message {i} is shown by two claims at once")
        marks = {Seen(p, me.incarnation, i, k, generation) for i in new}
        t = s._replace(ghost=ghost._replace(seen=ghost.seen | marks))
        killers = [i for i in new if self.bounds.kinds[i] == "k"]
        if self.on["show_first"] or not killers:
            r = s.records[k]
            t = t._replace(records=put(t.records, k, r._replace(shown=max(r.shown, upto))))
        if not killers:
            return f"process {p} shows {new}", t
        i = killers[0]
        t = self.dies(t, p, outside=False)
        owed = put(t.ghost.owed, i, t.ghost.owed[i] + 1)
        return f"process {p} shows {new} and is killed by {i}", t._replace(ghost=t.ghost._replace(owed=owed))

    @staticmethod
    def holds(s: State, x: Seen) -> bool:
        """Does the claim that showed this message still stand?"""
        p, r = s.processes[x.process], s.records[x.record]
        return p.alive and p.incarnation == x.incarnation and r.state == "active" and r.generation == x.generation

    def flush(self, s: State, p: int) -> Iterator[Step[State]]:
        """Commit the done bits; free the record when nothing is left."""
        for k, r in enumerate(s.records):
            if not self.belongs(s, r, p) or all(s.log[r.ids[j]].settled for j in r.done):
                continue
            t = self.settle(s, [r.ids[j] for j in r.done])
            if len(r.done) == len(r.ids):
                if s.left.kills:
                    yield f"process {p} commits record {k} and dies before FREE", self.dies(t, p, True)
                t = self.release(t, k)
            yield f"process {p} commits the acks of record {k}", t
