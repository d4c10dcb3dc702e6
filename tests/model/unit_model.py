"""Model of the sync unit and of MARK: commits that share sectors, torn sectors, damage at rest.

Modelled: a log of small commits, two to a sector, one or two sectors to a block that the system writes
as a whole.  A sync covers what was stored when it began.  A power cut keeps any version of each sector
since its last completed sync, and one sector of a block in flight may come out unreadable, for good or
for one recovery only.  A dying writer leaves a commit that was copied and not published.  Recovery
scans by the chain, and the manifest (taken to be atomic here) starts an epoch at the cut.  A repository
at rest loses one sector of proven data: recovery must refuse, not cut.

Excluded: the segment border and the manifest's own sectors (log model), failed syncs, a commit that
spans sectors, two damaged sectors, damage between the last sync and its MARK.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from tests.model.explore import Model, Step, Violation, put

SECTOR = 2  # cells; a commit fills one


class Commit(NamedTuple):
    position: int
    epoch: int
    sub: int  # sub-epoch
    n: int  # this copy: its chain id
    previous: int
    durable: int
    mark: bool


Cells = tuple[Commit | None, ...]
LOST: Cells = (None,) * SECTOR


class Sector(NamedTuple):
    versions: tuple[Cells, ...]
    flaky: bool = False  # reads as lost until the next crash


class Budget(NamedTuple):
    puts: int
    syncs: int
    deaths: int
    cuts: int
    torn: int
    flaky: int


class State(NamedTuple):
    sectors: tuple[Sector, ...]
    epochs: tuple[tuple[int, int], ...]
    mode: str  # run, off, rest
    tail: int
    pad: bool  # a sync took its snapshot since the last commit
    durable: int
    last: Commit | None
    sub: int
    n: int
    leader: tuple[int, tuple[int, ...]] | None  # target, how many versions of each sector it covers
    published: tuple[int, ...]  # ghost: copies, in order
    acked: frozenset[int]  # ghost: copies that were acknowledged as durable
    dead: frozenset[int]  # ghost: copied, never published
    left: Budget


class Scan(NamedTuple):
    accepted: tuple[Commit, ...]
    cut: int
    refused: str | None


class UnitModel(Model[State]):
    guards = {
        "padding": "after a sync's snapshot the next commit starts at the next sync unit",
        "unit_is_block": "the sync unit is what the system writes as a whole, not the sector alone",
        "pad_after_recovery": "so does the first commit after a recovery",
        "try_both": "the scanner tries the next position, and then that rounded up",
        "higher_wins": "if both hold a commit that fits, the one of the higher sub-epoch is taken",
        "chain": "a commit names its predecessor",
        "epoch_check": "a commit's epoch must be the one that the manifest names for its position",
        "durable_field": "commits carry the durable position; a bad commit below it is corruption",
        "scan_past": "past a bad commit the scanner looks at every unit for a proof of durability",
        "mark": "an idle or closed log ends with an empty commit that proves what was synced",
        "mark_after_sync": "the MARK is stamped after the sync that it tells of",
    }
    # name: (budget, sectors, sectors in a block)
    profiles = {
        "torn": (Budget(3, 2, 0, 1, 1, 0), 4, 1),
        "death": (Budget(3, 2, 1, 1, 0, 0), 4, 1),
        "block": (Budget(3, 2, 0, 1, 1, 0), 8, 2),
        "flaky": (Budget(3, 1, 0, 2, 0, 1), 5, 1),
        "deep": (Budget(3, 2, 1, 2, 1, 1), 5, 1),
    }
    quick = ("torn", "death", "block", "flaky")

    def __init__(self, profile: str, off: tuple[str, ...] = ()) -> None:
        super().__init__(profile, off)
        self.budget, self.size, self.block = self.profiles[profile]
        self.unit = SECTOR * (self.block if self.on["unit_is_block"] else 1)
        if not self.on["padding"]:
            self.unit = 1
        self.scan = lru_cache(200_000)(self.scan_uncached)

    def initial(self) -> State:
        sectors = (Sector((LOST,)),) * self.size
        nobody: frozenset[int] = frozenset()
        return State(sectors, ((1, 0),), "run", 0, False, 0, None, 0, 0, None, (), nobody, nobody, self.budget)

    def up(self, position: int) -> int:
        return -(-position // self.unit) * self.unit

    # ---- writing ----
    def copied(self, s: State, mark: bool = False) -> tuple[State, Commit] | None:
        """Store one commit at the next position; the tail stays."""
        at = self.up(s.tail) if s.pad else s.tail
        if at >= self.size * SECTOR:
            return None
        previous = s.last.n if s.last else 0
        commit = Commit(at, s.epochs[-1][0], s.sub, s.n + 1, previous, s.durable, mark)
        sector = s.sectors[at // SECTOR]
        cells = put(LOST if sector.flaky else sector.versions[-1], at % SECTOR, commit)
        sectors = put(s.sectors, at // SECTOR, Sector((*sector.versions, cells)))
        return s._replace(sectors=sectors, n=s.n + 1), commit

    @staticmethod
    def publish(s: State, commit: Commit) -> State:
        return s._replace(tail=commit.position + 1, pad=False, last=commit, published=(*s.published, commit.n))

    # ---- recovery ----
    def scan_uncached(self, cells: Cells, epochs: tuple[tuple[int, int], ...]) -> Scan:
        """A pure function of what the disk shows and the manifest says."""

        def fits(at: int, previous: int, key: tuple[int, int]) -> Commit | None:
            c = cells[at] if at < len(cells) else None
            if c is None or c.position != at or (self.on["chain"] and c.previous != previous):
                return None
            if self.on["epoch_check"] and c.epoch != max(e for e, start in epochs if start <= at):
                return None
            return c if (c.epoch, c.sub) >= key else None

        at, previous, key, accepted = 0, 0, (0, 0), []
        while True:
            places = (at, self.up(at)) if self.on["try_both"] else (at,)
            found = [c for c in (fits(place, previous, key) for place in places) if c]
            if not found:
                break
            best = max(found, key=lambda c: (c.epoch, c.sub)) if self.on["higher_wins"] else found[0]
            accepted.append(best)
            at, previous, key = best.position + 1, best.n, (best.epoch, best.sub)
        refused = None
        if at < epochs[-1][1]:
            refused = "cut below the start of an epoch"
        if self.on["scan_past"]:
            for c in cells[self.up(at) :: self.unit]:
                if c and c.durable > at and self.on["durable_field"]:
                    refused = f"bad commit at {at} below a proven position"
        return Scan(tuple(accepted), at, refused)

    def shown(self, s: State) -> Cells:
        """What a read gives."""
        return tuple(c for x in s.sectors for c in (LOST if x.flaky else x.versions[-1]))

    def check(self, s: State) -> None:
        if s.mode == "off":
            self.judge(s, self.scan(self.shown(s), s.epochs))
        elif s.mode == "rest":
            for k, sector in enumerate(s.sectors):
                hurt = {c.n for c in sector.versions[-1] if c and not c.mark and c.n in s.acked}
                lost = s._replace(sectors=put(s.sectors, k, Sector((LOST,))))
                scan = self.scan(self.shown(lost), s.epochs)
                if hurt and not scan.refused:
                    raise Violation(f"sector {k} of proven data is damaged and taken for a torn tail")

    @staticmethod
    def judge(s: State, scan: Scan) -> None:
        if scan.refused:
            raise Violation(f"an intact repository is refused: {scan.refused}")
        taken = [c.n for c in scan.accepted]
        lost = s.acked - set(taken)
        if lost:
            raise Violation(f"commit {min(lost)} was acknowledged as durable and is lost")
        common = 0
        while common < min(len(taken), len(s.published)) and taken[common] == s.published[common]:
            common += 1
        if set(taken[common:]) - s.dead:
            raise Violation("a stale commit is accepted")

    def opened(self, s: State) -> State:
        """Sync, a new epoch at the cut, go on there."""
        scan = self.scan(self.shown(s), s.epochs)
        epoch = s.epochs[-1][0] + 1
        epochs = tuple(x for x in s.epochs if x[1] < scan.cut or x[0] == 1)
        taken = tuple(c.n for c in scan.accepted)
        return s._replace(
            epochs=(*epochs, (epoch, scan.cut)),
            mode="run",
            tail=scan.cut,
            pad=self.on["pad_after_recovery"],
            durable=scan.cut,
            last=scan.accepted[-1] if scan.accepted else None,
            sub=0,
            leader=None,
            published=taken,
            acked=frozenset(taken),
            dead=frozenset(),
        )

    # ---- steps ----
    def steps(self, s: State) -> Iterator[Step[State]]:
        left = s.left
        if s.mode == "off":
            yield "recovery", self.opened(s)
        if s.mode != "run":
            return
        copy = self.copied(s)
        if left.puts and copy:
            t, commit = copy
            t = t._replace(left=left._replace(puts=left.puts - 1))
            yield f"put {commit.n} at {commit.position}", self.publish(t, commit)
        if left.deaths and copy:
            t, commit = copy
            t = t._replace(sub=s.sub + 1, dead=s.dead | {commit.n})
            t = t._replace(left=left._replace(deaths=left.deaths - 1))
            yield f"a writer copies {commit.n} to {commit.position} and dies", t
        yield from self.sync(s)
        yield from self.idle(s)
        if left.cuts:
            yield from self.power_cut(s)

    def sync(self, s: State) -> Iterator[Step[State]]:
        if s.leader is None:
            if s.tail > s.durable and s.left.syncs:
                t = s._replace(leader=(s.tail, tuple(len(x.versions) for x in s.sectors)), pad=True)
                t = t._replace(left=s.left._replace(syncs=s.left.syncs - 1))
                yield f"a sync begins, target {s.tail}", t
            return
        target, covers = s.leader
        sectors = tuple(x._replace(versions=x.versions[n - 1 :]) for x, n in zip(s.sectors, covers, strict=True))
        acked = s.acked.union(
            c.n for x in sectors for c in x.versions[-1] if c and c.position < target and c.n in s.published
        )
        t = s._replace(sectors=sectors, leader=None, durable=target, acked=acked)
        yield f"the sync ends, durable {target}", t

    def idle(self, s: State) -> Iterator[Step[State]]:
        """Fifty quiet milliseconds, or close: a MARK, and its sync."""
        if s.leader or s.last is None:
            return
        marked = s.last.mark or not self.on["mark"]
        if marked and s.durable == s.tail:
            yield "the log is at rest", s._replace(mode="rest")
        if not marked and (s.durable == s.tail or not self.on["mark_after_sync"]):
            copy = self.copied(s, mark=True)
            if copy:
                t = self.publish(*copy)
                t = t._replace(left=t.left._replace(syncs=1))
                yield f"MARK at {copy[1].position} proves {s.durable}", t

    def power_cut(self, s: State) -> Iterator[Step[State]]:
        """Any version of each sector; one sector of a block in flight may be unreadable."""
        sectors = tuple(x._replace(flaky=False) for x in s.sectors)
        left = s.left._replace(cuts=s.left.cuts - 1)
        dark = s._replace(mode="off", left=left, leader=None)
        busy = {k // self.block for k, x in enumerate(sectors) if len(x.versions) > 1}
        flight = [k for k in range(len(sectors)) if k // self.block in busy]
        for kept in product(*(set(x.versions) for x in sectors)):
            t = dark._replace(sectors=tuple(Sector((cells,)) for cells in kept))
            yield ("power cut, kept: %s", t), t
            for k in flight:
                if left.torn:
                    u = t._replace(sectors=put(t.sectors, k, Sector((LOST,))))
                    yield (f"power cut, sector {k} torn, kept: %s", u), u._replace(left=left._replace(torn=0))
                if left.flaky:
                    u = t._replace(sectors=put(t.sectors, k, t.sectors[k]._replace(flaky=True)))
                    label = (f"power cut, sector {k} unreadable for now, kept: %s", u)
                    yield label, u._replace(left=left._replace(flaky=0))

    def show(self, state: State) -> str:
        cells = [str(c.n) if c else "-" for x in state.sectors for c in x.versions[-1]]
        return " ".join("[" + " ".join(cells[k : k + SECTOR]) + "]" for k in range(0, len(cells), SECTOR))
