"""Model of apply: a commit's or a claim's stores to shared words, with a death at each of them.

Modelled: the control file as words (applied position, cursor, counters, slots), a heap with its dirty
word, the undo entries with their count, and claim records.  A section under the lock is a list of
single stores.  A living process runs it whole; a dying one leaves any prefix of it, and so does one
that dies while it repairs what another left.  Killing everybody leaves the log and the claim records;
the next open rebuilds the rest.

Two ways to treat what is not a word.  Saved: claim records and heaps are recorded in the undo log too,
and a section is undone or done as a whole.  Decided: they are not, and the order of stores and the rules of
repair make up for it.  In both, the applied position is a word like any other.

The order of stores that the second way asks for:
    commit   publish the tail; for each word: entry, count, word; free the claim record that the commit
             names; the applied position, recorded like any word; count = 0; heap no longer dirty
    claim    record PREPARED; for each word: entry, count, word; count = 0; record ACTIVE; not dirty
    repair   restore in reverse; count = 0; PREPARED records by what the lane now says; heap from the
             slots if dirty; then apply from the applied position to the tail, as above

Excluded: torn words, stores that other processors see out of order, power cuts (control is rebuilt),
whose claim it is (any process settles any record), hand-out counts, more than one lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import Model, Step, Violation, put

APPLIED, CURSOR, READY, LIVE, END, SLOTS = range(6)
ABSENT, FRESH, RETURNED, TAKEN, ACKED = range(5)
UNDO_MAX = 20
FREE, PREPARED, ACTIVE = "free", "prepared", "active"


class Record(NamedTuple):
    state: str = FREE
    generation: int = 0
    single: bool = False
    ids: tuple[int, ...] = ()


class Op(NamedTuple):
    kind: str  # put, ack, return
    ids: tuple[int, ...]
    record: int = -1
    generation: int = 0


Heap = frozenset[int] | None  # None: in the middle of a sift
Entry = tuple[str, int, "int | Record | Heap"]  # words, records or heap; which; its old value


class Budget(NamedTuple):
    saved: bool  # the first of the two ways
    puts: int
    claims: int
    settles: int
    deaths: int
    opens: int


class State(NamedTuple):
    log: tuple[Op, ...]
    words: tuple[int, ...]
    undo: tuple[Entry, ...]
    recorded: int  # how many undo entries count
    heap: Heap
    dirty: bool
    records: tuple[Record, ...]
    broken: bool  # the owner of the lock died
    left: Budget


class ApplyModel(Model[State]):
    guards = {
        "record_first": "a word's old value is recorded before the word changes",
        "entry_then_count": "the undo entry is written before the count is raised",
        "reverse": "undo entries are restored last first",
        "restore_then_clear": "repair clears the count after the last restore, not before the first",
        "applied_recorded": "the applied position is recorded in the undo log like any other word",
        "clear_last": "the count is cleared after the applied position is stored",
        "redo": "the next owner applies what is published and not applied",
        "redo_from_applied": "redo starts at the applied position, not at the last commit",
        "free_in_apply": "apply itself frees the claim record that a commit names, before the clear",
        "record_saved": "(saved) a claim record is recorded before it changes",
        "heap_saved": "(saved) so is the heap",
        "prepared_first": "a record is PREPARED before the lane changes",
        "clear_then_active": "a record becomes ACTIVE after the count is cleared, not before",
        "prepared_by_lane": "repair makes a PREPARED record ACTIVE if the lane has let go of its ids",
        "open_frees": "the next open makes PREPARED records FREE",
        "dirty": "the heap is marked dirty while it changes, and then rebuilt from the slots",
        "dirty_last": "the dirty mark is cleared after the undo count",
        "rebuild_first": "a dirty heap is rebuilt before redo, which ends by clearing the mark",
    }
    profiles = {
        "commits": Budget(False, 2, 1, 1, 2, 0),
        "claims": Budget(False, 1, 2, 1, 2, 0),
        "opens": Budget(False, 1, 2, 1, 2, 1),
        "saved": Budget(True, 1, 2, 1, 2, 1),
        "third": Budget(False, 1, 2, 1, 3, 0),
        "long": Budget(False, 2, 3, 2, 2, 1),
        "longsaved": Budget(True, 2, 3, 2, 2, 1),
    }
    quick = ("commits", "claims", "opens", "saved")

    def initial(self) -> State:
        budget: Budget = self.profiles[self.profile]
        words = (0,) * (SLOTS + 2 * budget.puts)
        undo: tuple[Entry, ...] = (("words", END, 0),) * UNDO_MAX
        return State((), words, undo, 0, frozenset(), False, (Record(), Record()), False, budget)

    # ---- single stores ----
    def save(self, s: State, entry: Entry) -> Iterator[State]:
        """The entry, then the count."""
        undo = put(s.undo, s.recorded, entry)
        if self.on["entry_then_count"]:
            yield s._replace(undo=undo)
        else:
            yield s._replace(recorded=s.recorded + 1)
        yield s._replace(undo=undo, recorded=s.recorded + 1)

    def change(self, s: State, word: int, value: int) -> Iterator[State]:
        """Record, then store: three stores."""
        entry: Entry = ("words", word, s.words[word])
        if not self.on["record_first"]:
            s = s._replace(words=put(s.words, word, value))
            yield s
            yield from self.save(s, entry)
            return
        for s in self.save(s, entry):
            yield s
        yield s._replace(words=put(s.words, word, value))

    def save_record(self, s: State, k: int) -> Iterator[State]:
        if s.left.saved and self.on["record_saved"]:
            yield from self.save(s, ("records", k, s.records[k]))

    def changes(self, s: State, todo: list[tuple[int, int]]) -> Iterator[State]:
        """Several words; each pair is (word, what to add)."""
        for word, add in todo:
            for s in self.change(s, word, s.words[word] + add):
                yield s

    def sift(self, s: State, add: tuple[int, ...] = (), remove: tuple[int, ...] = ()) -> Iterator[State]:
        """Change the heap: dirty, half-way, done."""
        assert s.heap is not None
        heap = s.heap.union(add).difference(remove)
        if s.left.saved and self.on["heap_saved"]:
            for s in self.save(s, ("heap", 0, s.heap)):
                yield s
        dirty = self.on["dirty"] and not s.left.saved
        yield s._replace(dirty=dirty)
        yield s._replace(dirty=dirty, heap=None)
        yield s._replace(dirty=dirty and self.on["dirty_last"], heap=heap)

    # ---- sections ----
    def apply(self, s: State, lsn: int) -> Iterator[State]:
        """Apply one published commit; counts and the cursor are not idempotent, hence the undo."""
        op = s.log[lsn]
        slot = {"put": FRESH, "ack": ACKED, "return": RETURNED}[op.kind]
        for i in op.ids:
            todo = [(SLOTS + i, slot - s.words[SLOTS + i])]
            todo += {
                "put": [(READY, 1), (LIVE, 1), (END, 1)],
                "ack": [(LIVE, -1)],
                "return": [(READY, 1)],
            }[op.kind]
            for s in self.changes(s, todo):
                yield s
        if op.kind == "return":
            for s in self.sift(s, add=op.ids):
                yield s
        if self.on["free_in_apply"]:
            if op.record >= 0:
                for s in self.save_record(s, op.record):
                    yield s
            s = self.freed(s, op)
            yield s
        for s in self.finish(s, lsn + 1):
            yield s
        s = s._replace(dirty=False)
        yield s
        yield self.freed(s, op)

    def finish(self, s: State, applied: int) -> Iterator[State]:
        """The applied position, then count = 0."""
        if not self.on["clear_last"]:
            s = s._replace(recorded=0)
            yield s
            yield s._replace(words=put(s.words, APPLIED, applied))
            return
        if self.on["applied_recorded"]:
            for s in self.change(s, APPLIED, applied):
                yield s
        else:
            s = s._replace(words=put(s.words, APPLIED, applied))
            yield s
        yield s._replace(recorded=0)

    @staticmethod
    def freed(s: State, op: Op) -> State:
        """Without the claim record that the commit names, if it is still that claim."""
        if op.record < 0 or s.records[op.record].generation != op.generation:
            return s
        record = Record(generation=op.generation)
        return s._replace(records=put(s.records, op.record, record))

    def commit(self, s: State, op: Op) -> Iterator[State]:
        s = s._replace(log=(*s.log, op))
        yield s
        yield from self.apply(s, len(s.log) - 1)

    def claim(self, s: State, k: int, single: bool, ids: tuple[int, ...]) -> Iterator[State]:
        record = Record(PREPARED, s.records[k].generation + 1, single, ids)

        def written(s: State, state: str) -> State:
            return s._replace(records=put(s.records, k, record._replace(state=state)))

        for s in self.save_record(s, k):
            yield s
        if self.on["prepared_first"]:
            s = written(s, PREPARED)
            yield s
        if single:
            for s in self.changes(s, [(SLOTS + ids[0], TAKEN - RETURNED), (READY, -1)]):
                yield s
            for s in self.sift(s, remove=ids):
                yield s
        else:
            for s in self.changes(s, [(CURSOR, len(ids)), (READY, -len(ids))]):
                yield s
        if s.left.saved or not self.on["clear_then_active"]:
            s = written(s, ACTIVE)
            yield s
        s = s._replace(recorded=0)
        yield s
        s = written(s, ACTIVE)
        yield s
        yield s._replace(dirty=False)

    def repair(self, s: State) -> Iterator[State]:
        """What the next owner of the lock does before anything else."""
        entries = s.undo[: s.recorded]
        if not self.on["restore_then_clear"]:
            s = s._replace(recorded=0)
            yield s
        for entry in entries[::-1] if self.on["reverse"] else entries:
            s = self.restored(s, entry)
            yield s
        s = s._replace(recorded=0)
        yield s
        for k, record in enumerate(s.records):
            if record.state == PREPARED and not s.left.saved:
                s = s._replace(records=put(s.records, k, self.decided(s, record)))
                yield s
        if self.on["rebuild_first"]:
            for s in self.rebuilt(s):
                yield s
        start = s.words[APPLIED] if self.on["redo_from_applied"] else max(len(s.log) - 1, 0)
        for lsn in range(start, len(s.log)):
            if not self.on["redo"]:
                s = s._replace(words=put(s.words, APPLIED, lsn + 1))
                continue
            if s.heap is None:
                raise Violation("redo meets a heap in the middle of a sift")
            for s in self.apply(s, lsn):
                yield s
        for s in self.rebuilt(s):
            yield s
        yield s._replace(broken=False)

    @staticmethod
    def restored(s: State, entry: Entry) -> State:
        where, which, old = entry
        if where == "words":
            return s._replace(words=put(s.words, which, old))
        if where == "records":
            return s._replace(records=put(s.records, which, old))
        assert old is None or isinstance(old, frozenset)
        return s._replace(heap=old)

    def decided(self, s: State, record: Record) -> Record:
        """A PREPARED record after a death, when the words are as before or as after the claim."""
        first = record.ids[0]
        gone = s.words[SLOTS + first] == TAKEN if record.single else first < s.words[CURSOR]
        if gone and self.on["prepared_by_lane"]:
            return record._replace(state=ACTIVE)
        return Record(generation=record.generation)

    @staticmethod
    def rebuilt(s: State) -> Iterator[State]:
        if s.dirty:
            slots = enumerate(s.words[SLOTS:])
            s = s._replace(heap=frozenset(i for i, slot in slots if slot == RETURNED))
            yield s
            yield s._replace(dirty=False)

    def reopened(self, s: State) -> State:
        """Everybody is dead: control from the log and the claim records."""
        for op in s.log:
            s = self.freed(s, op)
        records = tuple(
            Record(generation=r.generation) if r.state == PREPARED and self.on["open_frees"] else r for r in s.records
        )
        held = {i for r in records if r.state == ACTIVE for i in r.ids}
        there = {i for op in s.log if op.kind == "put" for i in op.ids}
        acked = {i for op in s.log if op.kind == "ack" for i in op.ids}
        heap = frozenset(there - acked - held)
        slots = tuple(
            ACKED if i in acked else TAKEN if i in held else RETURNED if i in there else ABSENT
            for i in range(len(s.words) - SLOTS)
        )
        words = (len(s.log), len(there), len(heap), len(there - acked), len(there), *slots)
        return s._replace(words=words, recorded=0, heap=heap, dirty=False, records=records, broken=False)

    # ---- steps ----
    def steps(self, s: State) -> Iterator[Step[State]]:
        left = s.left
        if left.opens:
            after = self.reopened(s._replace(left=left._replace(opens=left.opens - 1)))
            yield "everybody is killed; the next open rebuilds control", after
        if s.broken:
            yield from self.run("repair", s, self.repair(s))
            return
        if left.puts:
            n = s.words[END]
            t = s._replace(left=left._replace(puts=left.puts - 1))
            yield from self.run("put", t, self.commit(t, Op("put", (n, n + 1))))
        free = [k for k, record in enumerate(s.records) if record.state == FREE]
        if left.claims and free:
            t = s._replace(left=left._replace(claims=left.claims - 1))
            first, end = s.words[CURSOR], s.words[END]
            if first < end:
                ids = tuple(range(first, min(first + 2, end)))
                yield from self.run(f"claim {ids}", t, self.claim(t, free[0], False, ids))
            if s.heap:
                ids = (min(s.heap),)
                yield from self.run(f"claim {ids}", t, self.claim(t, free[0], True, ids))
        for k, record in enumerate(s.records):
            if record.state == ACTIVE and left.settles:
                t = s._replace(left=left._replace(settles=left.settles - 1))
                for kind in ("ack", "return"):
                    op = Op(kind, record.ids, k, record.generation)
                    yield from self.run(f"{kind} {record.ids}", t, self.commit(t, op))

    @staticmethod
    def run(what: str, s: State, stores: Iterator[State]) -> Iterator[Step[State]]:
        """The whole section, or any prefix of it."""
        after = s
        for n, t in enumerate(stores):
            if s.left.deaths and n:
                dead = after._replace(broken=True, left=s.left._replace(deaths=s.left.deaths - 1))
                yield f"{what}: dies after store {n}", dead
            after = t
        yield what, after

    # ---- invariants ----
    def check(self, s: State) -> None:
        if s.broken:
            return
        if s.heap is None:
            raise Violation("the heap is left in the middle of a sift")
        if s.words[APPLIED] != len(s.log):
            raise Violation("a published commit is not applied")
        there = {i for op in s.log if op.kind == "put" for i in op.ids}
        acked = {i for op in s.log if op.kind == "ack" for i in op.ids}
        held = [i for r in s.records if r.state == ACTIVE for i in r.ids]
        lane = list(range(s.words[CURSOR], s.words[END]))
        places = held + lane + list(s.heap)
        if len(places) != len(set(places)):
            where = f"{held} held, {lane} in the lane, {sorted(s.heap)} returned"
            raise Violation(f"a message is in two places: {where}")
        if set(places) != there - acked:
            missing, extra = (
                sorted(there - acked - set(places)),
                sorted(set(places) - there | acked & set(places)),
            )
            raise Violation(f"unsettled and nowhere: {missing}; settled or unborn and ready: {extra}")
        counters = (s.words[READY], s.words[LIVE], s.words[END])
        truth = (len(lane) + len(s.heap), len(there - acked), len(there))
        if counters != truth:
            raise Violation(f"counters are {counters}, the truth is {truth}")
        if any(r.state == PREPARED for r in s.records):
            raise Violation("a record stays PREPARED for ever")
