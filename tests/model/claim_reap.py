"""The half of the claim model that follows a death: invariants, repair, reap, the next open."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tests.model.claim_state import (
    ATTEMPTS_MAX,
    FREE,
    GUARDS,
    PROFILES,
    Bounds,
    Logged,
    Process,
    Record,
    State,
    initial,
)
from tests.model.explore import Model, Step, Violation, put


class Reaping(Model[State]):
    guards = GUARDS
    profiles = PROFILES

    def __init__(self, profile: str, off: Collection[str] = ()) -> None:
        super().__init__(profile, off)
        self.bounds: Bounds = PROFILES[profile]

    def initial(self) -> State:
        return initial(self.bounds)

    # ---- who holds what ----
    def alive(self, s: State, r: Record) -> bool:
        """Is the owner of a record alive, as far as the protocol can tell?"""
        p = s.processes[r.owner]
        return p.alive and (p.incarnation == r.incarnation or not self.on["slot_generation"])

    @staticmethod
    def belongs(s: State, r: Record, p: int) -> bool:
        return r.state == "active" and (r.owner, r.incarnation) == (p, s.processes[p].incarnation)

    @staticmethod
    def unsettled(s: State, r: Record) -> list[int]:
        return [i for j, i in enumerate(r.ids) if j not in r.done and not s.log[i].settled]

    def dies(self, s: State, p: int, locked: bool = False, outside: bool = True) -> State:
        """The process ends; the ghost notes which message alone can be blamed."""
        incarnation, ghost = s.processes[p].incarnation, s.ghost
        shown = [
            i for r in s.records if self.belongs(s, r, p) for i in self.unsettled(s, r) if r.ids.index(i) < r.shown
        ]
        first = [r.ids[0] for r in s.records if self.belongs(s, r, p) and r.first and r.ids[0] in shown]
        blame = {(p, incarnation, i) for i in (first or (shown if len(shown) == 1 else ()))}
        ghost = ghost._replace(
            blame=tuple(sorted(blame.union(ghost.blame))),
            seen=frozenset(x for x in ghost.seen if x.process != p),
        )
        return s._replace(
            processes=put(s.processes, p, Process(False, incarnation)),
            broken=locked or s.broken,
            ghost=ghost,
            left=s.left._replace(kills=s.left.kills - outside),
        )

    # ---- invariants ----
    def check(self, s: State) -> None:
        ghost = s.ghost
        for i, (settled, attempts, _) in enumerate(s.log):
            if self.bounds.kinds[i] == "i" and settled == "error" and ghost.kills[i] < ATTEMPTS_MAX:
                raise Violation(f"innocent {i} went to the error queue")
            if attempts > ghost.kills[i]:
                raise Violation(f"message {i} was charged twice for one death")
            if ghost.owed[i] > 2 + ghost.lost:  # one as a suspect, one not yet reaped
                raise Violation(f"killer {i} caused {ghost.owed[i]} deaths uncharged")
        if s.broken or not any(p.alive for p in s.processes):
            return  # whoever comes next repairs first
        for i in range(len(s.log)):
            self.check_place(s, i)
        for k, r in enumerate(s.records):
            if r.state != "free" and self.alive(s, r) and s.processes[r.owner].incarnation != r.incarnation:
                raise Violation(f"record {k} of a dead owner looks alive and is owned by nobody")

    @staticmethod
    def check_place(s: State, i: int) -> None:
        """An unsettled message is in one place; a settled one is in none."""
        holding = [r for r in s.records if r.state != "free" and i in r.ids and r.ids.index(i) not in r.done]
        living = sum(s.processes[r.owner].alive and s.processes[r.owner].incarnation == r.incarnation for r in holding)
        places = (i >= s.cursor) + (i in s.heap) + living
        over = bool(s.log[i].settled) or i in s.ghost.acked
        if not over and (places > 1 or not places + len(holding)):
            raise Violation(f"message {i} is in {places} places")
        if over and (i in s.heap or i >= s.cursor):
            raise Violation(f"settled message {i} is ready again")

    # ---- effects ----
    @staticmethod
    def settle(s: State, ids: Collection[int]) -> State:
        log = tuple(x._replace(settled=x.settled or "acked") if i in ids else x for i, x in enumerate(s.log))
        return s._replace(log=log, heap=s.heap.difference(ids))

    def release(self, s: State, k: int) -> State:
        """FREE the record; hands and ghosts that nothing can reach any more go with it."""
        r, processes, seen = s.records[k], s.processes, s.ghost.seen
        owner = processes[r.owner]
        same = owner.alive and owner.incarnation == r.incarnation
        if same and self.on["generation"] and self.on["marks_checked"]:
            hands = tuple(h for h in owner.hands if h[:2] != (k, r.generation))
            processes = put(processes, r.owner, owner._replace(hands=hands))
        if processes != s.processes or not owner.alive:
            seen = frozenset(x for x in seen if (x.record, x.generation) != (k, r.generation))
        # A generation that nobody remembers may start again: fewer states, the same behaviour.
        stale = any(k in (h.record for h in p.hands) or k in (x.record for x in p.late) for p in processes)
        records = put(s.records, k, FREE._replace(generation=r.generation if stale else 0))
        standing = {(x.owner, x.incarnation) for x in records if x.state != "free"}
        blame = tuple(x for x in s.ghost.blame if x[:2] in standing)
        ghost = s.ghost._replace(seen=seen, blame=blame)
        return s._replace(records=records, processes=processes, ghost=ghost)

    # ---- after a death ----
    def repair(self, s: State, p: int) -> Step[State]:
        """The next owner of the lock: PREPARED records, then a broken reap."""
        for k, r in enumerate(s.records):
            if r.state != "prepared":
                continue
            active = put(s.records, k, r._replace(state="active"))
            if r.single and self.on["prepared_single"]:
                s = s._replace(records=active, heap=s.heap.difference(r.ids))
            elif self.on["prepared_rule"] and r.ids[0] < s.cursor:
                s = s._replace(records=active)
            else:
                s = self.release(s, k)
        for k in s.intent or () if self.on["reap_redo"] else ():
            if s.records[k].state == "active" and s.records[k].verdict is not None:
                s = self.release(s, k)
        return f"process {p} repairs what the dead lock owner left", s._replace(broken=False, intent=None)

    def open(self, s: State, p: int) -> Step[State]:
        """Nobody was alive: control from the log and the records; reaping comes after."""
        prepared = {i for r in s.records if r.state == "prepared" for i in r.ids}
        held = {i for r in s.records if r.state != "free" for i in r.ids} - prepared
        if not self.on["rebuild_claims"]:
            held = set()
        records = tuple(FREE._replace(generation=r.generation) if r.state == "prepared" else r for r in s.records)
        ready = frozenset(i for i, x in enumerate(s.log) if not x.settled and i not in held)
        t = s._replace(cursor=len(s.log), heap=ready, records=records, broken=False, intent=None)
        return f"process {p} opens and rebuilds control", t

    # ---- reap ----
    def reap(self, s: State, p: int) -> Iterator[Step[State]]:
        """All records of one dead owner, or one whose lease ended."""
        owners: dict[tuple[int, int], list[int]] = {}
        for k, r in enumerate(s.records):
            if r.state == "active" and not self.alive(s, r):
                owners.setdefault((r.owner, r.incarnation), []).append(k)
            elif r.state == "active" and s.left.leases and r.owner != p:
                t = s._replace(left=s.left._replace(leases=s.left.leases - 1))
                yield from self.reap_records(t, p, [k], False)
        for ks in owners.values():
            yield from self.reap_records(s, p, ks, True)

    def sorted_out(self, s: State, ks: list[int]) -> tuple[list[int], dict[int, str], list[int]]:
        """The ids to ack, the verdict of each shown one, the ids that return free."""
        done: list[int] = []
        shown: list[int] = []
        rest: list[int] = []
        for k in ks:
            r = s.records[k]
            for j, i in enumerate(r.ids):
                if s.log[i].settled:
                    continue
                if j in r.done and self.on["reap_done"]:
                    done.append(i)
                else:
                    (shown if j < r.shown and j not in r.done else rest).append(i)
        one = len(shown) == 1 or not self.on["suspects"]
        first = [i for k in ks if s.records[k].first for i in s.records[k].ids if i in shown]
        verdict = dict.fromkeys(shown, "charge" if one else "suspect")
        if self.on["first_charged"]:
            verdict.update(dict.fromkeys(first, "charge"))
        if self.on["reap_owner"]:  # an earlier reaper's verdict stands
            for k in ks:
                verdict.update(s.records[k].verdict or ())
        return done, verdict, rest

    def charged(self, s: State, ks: list[int], verdict: dict[int, str], dead: bool) -> State:
        """The commit's effect on attempts, suspicion and the error queue."""
        owner, log, ghost = s.records[ks[0]], s.log, s.ghost
        for i, v in verdict.items():
            settled, attempts, suspect = log[i]
            if v == "suspect":
                log = put(log, i, Logged(settled, attempts, True))
                continue
            blamed = (owner.owner, owner.incarnation, i) in ghost.blame
            if self.bounds.kinds[i] == "i" and dead and not blamed:
                raise Violation(f"innocent {i} is charged for a death at which it was not alone shown")
            repeated = next(s.records[k].verdict for k in ks if i in s.records[k].ids) is not None
            if not (repeated and self.on["absolute"]):
                attempts += 1
            if not repeated:
                kills = put(ghost.kills, i, ghost.kills[i] + 1)
                paid = verdict if self.bounds.together else (i,)  # a death is paid when anyone is charged
                owed = tuple(0 if j in paid else n for j, n in enumerate(ghost.owed))
                ghost = ghost._replace(owed=owed, kills=kills)
            log = put(log, i, Logged("error" if attempts >= ATTEMPTS_MAX else settled, attempts, suspect))
        return s._replace(log=log, ghost=ghost)

    def reap_records(self, s: State, p: int, ks: list[int], dead: bool) -> Iterator[Step[State]]:
        done, verdict, rest = self.sorted_out(s, ks)
        t = self.charged(s, ks, verdict, dead)
        for k in ks:
            own = tuple(sorted((i, v) for i, v in verdict.items() if i in s.records[k].ids))
            t = t._replace(records=put(t.records, k, s.records[k]._replace(verdict=own)))
        back = {i for i in (*verdict, *rest) if not t.log[i].settled}
        t = self.settle(t, done)
        t = t._replace(heap=t.heap | back)
        what = f"process {p} reaps records {ks}: ack {done}, {verdict or 'no verdict'}, return {rest}"
        # A death between the commit and the last FREE (or, unguarded, before the commit).
        cut = t if self.on["commit_first"] else s
        order = [0, *range(1, len(ks))] if self.on["commit_first"] else [len(ks)]
        for n in order if s.left.kills else ():
            u = cut
            for k in ks[:n]:
                u = self.release(u, k)
            yield f"{what}; dies after {n} FREEs", self.dies(u._replace(intent=tuple(ks)), p, True)
        for k in ks:
            t = self.release(t, k)
        yield what, t
