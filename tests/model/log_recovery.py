"""The half of the log model that follows a crash: scan, judge, epoch, open."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import lru_cache

from tests.model.disk import synced
from tests.model.explore import Model, Step, Violation
from tests.model.log_state import (
    GUARDS,
    JUMP,
    PROFILES,
    Bounds,
    Commit,
    File,
    Header,
    Manifest,
    Memory,
    Pair,
    Scan,
    State,
    current,
    newest,
    pack,
)

Live = dict[int, tuple[int, int]]
Read = Callable[[int], Commit | None]


class Recovery(Model[State]):
    guards = GUARDS
    profiles = PROFILES

    def __init__(self, profile: str, off: Collection[str] = ()) -> None:
        super().__init__(profile, off)
        self.bounds: Bounds = PROFILES[profile]
        self.cells = self.bounds.cells
        self.scan = lru_cache(200_000)(self.scan_uncached)

    def rank(self, h: Header) -> tuple[int, int]:
        """Which of two headers with one first LSN wins: the higher; of equal ones the first found."""
        return (h.epoch if self.on["epoch_wins"] else 0, h.sub if self.on["header_sub"] else 0)

    def best_files(self, files: tuple[File, ...]) -> dict[int, int]:
        """The file that speaks for each first LSN."""
        best: dict[int, tuple[tuple[int, int], int]] = {}
        for f, file in enumerate(files):
            h = file.header[-1]
            if h and (h.first not in best or self.rank(h) > best[h.first][0]):
                best[h.first] = (self.rank(h), f)
        return {first: f for first, (_, f) in best.items()}

    # ---- scan ----
    def scan_uncached(self, files: tuple[File, ...], manifest: tuple[Pair, ...]) -> Scan:
        """A pure function of what the files show."""
        m, best = newest(manifest), self.best_files(files)
        if m is None:
            return Scan("no valid manifest pair")

        def read(lsn: int) -> Commit | None:
            f = best.get(lsn - lsn % self.cells)
            c = current(files[f].cells[lsn % self.cells]) if f is not None else None
            return c if c and (c.lsn == lsn or not self.on["lsn_in_commit"]) else None

        live: Live = {}
        begin, previous, id_max = 0, 0, 0
        if m.checkpoint:
            begin, at, previous = m.checkpoint
            c = read(at)
            if c is None or c.op.kind != "checkpoint":
                return Scan("the checkpoint that the manifest names is unreadable")
            id_max = c.op.next_id - 1
            for bit in c.op.bits if self.on["checkpoint_bits"] else self.frames_below(begin, c.op.bits, read):
                frame = read(bit)
                if frame is None or not frame.op.framed:
                    return Scan(f"the live frame at {bit} is gone")
                op = frame.op
                live[op.message] = (frame.n if op.kind == "put" else op.origin, bit)
        return self.scan_log(files, m, read, Scan(None, (), begin, pack(live), id_max, previous))

    def frames_below(self, begin: int, bits: tuple[int, ...], read: Read) -> list[int]:
        """Unguarded: every frame of each segment that has a live one."""
        firsts = {bit - bit % self.cells for bit in bits}
        lsns = [n for first in firsts for n in range(first, min(first + self.cells, begin))]
        return [n for n in lsns if (c := read(n)) and c.op.framed]

    def scan_log(self, files: tuple[File, ...], m: Manifest, read: Read, base: Scan) -> Scan:
        """From the checkpoint's begin along the chain, then look for proofs above the cut."""
        live: Live = {i: (n, at) for i, n, at in base.live}
        lsn, previous, id_max, key = base.cut, base.last, base.id_max, (0, 0)
        accepted: list[Commit] = []

        def epoch_of(lsn: int) -> int:
            return max(e for e, start in m.epochs if start <= lsn)

        while True:
            c = read(lsn)
            if c is None or (self.on["chain"] and c.previous != previous):
                break
            if (self.on["epoch_check"] and c.epoch != epoch_of(lsn)) or c.epoch < key[0]:
                break
            if self.on["sub_epoch"] and (c.epoch, c.sub) < key:
                break
            op = c.op
            if op.kind == "put":
                live[op.message] = (c.n, lsn)
                id_max = max(id_max, op.message)
            elif op.kind == "ack":
                live.pop(op.message, None)
            elif op.kind == "copy" and (self.on["copy_always"] or live.get(op.message, (0, -1))[1] == op.old):
                live[op.message] = (op.origin, lsn)
            accepted.append(c)
            key, previous, lsn = (c.epoch, c.sub), c.n, lsn + 1
        refused = None
        if self.on["durable_lsn"]:
            above = [c for file in files for cell in file.cells if (c := current(cell)) and c.lsn > lsn]
            if any(c.epoch == epoch_of(c.lsn) and c.durable > lsn for c in above):
                refused = f"bad commit at {lsn} below a proven durable position"
            if lsn < m.epochs[-1][1] or (m.checkpoint and lsn <= m.checkpoint[1]):
                refused = f"bad commit at {lsn} below an epoch's start or the checkpoint"
        return Scan(refused, tuple(accepted), lsn, pack(live), id_max, previous)

    # ---- judge ----
    def judge(self, s: State) -> None:
        """What a scan may answer, against the ghost."""
        scan = self.scan(s.files, s.manifest)
        ghost, ids = s.ghost, {i for i, _, _ in scan.live}
        if s.left.damage < self.bounds.budget.damage:
            if not scan.refused:
                raise Violation("damage below a proven position was taken for a torn tail")
            return
        if scan.refused:
            raise Violation(f"an intact repository is refused: {scan.refused}")
        strayed = False
        for c in scan.accepted:
            known = c.lsn < len(ghost.published) and ghost.published[c.lsn] == c.n
            strayed = strayed or not known
            if strayed and c.n not in ghost.dead:
                raise Violation(f"a stale commit is accepted at LSN {c.lsn}: {c.op.kind} {c.op.message}")
            if c.op.kind == "put" and dict(ghost.seen).get(c.op.message, c.n) != c.n:
                raise Violation(f"id {c.op.message} was seen with another body")
        maybe = {c.op.message for c in scan.accepted if c.op.kind == "ack"} | ghost.visible_acks
        lost = ghost.puts - maybe - ghost.acks - ids
        if lost:
            raise Violation(f"message {min(lost)} was acknowledged as durable and is lost")
        if ghost.acks & ids:
            raise Violation(f"message {min(ghost.acks & ids)} was settled durably and came back")

    # ---- recovery, step by step ----
    def recover(self, s: State) -> Iterator[Step[State]]:
        if s.mode == "off":
            self.judge(s)
            if not self.scan(s.files, s.manifest).refused:
                files = tuple(map(synced, s.files)) if self.on["recovery_sync"] else s.files
                yield "recovery scans and syncs", s._replace(mode="cut", files=files)
        elif s.mode == "cut":
            yield self.new_epoch(s)
        elif s.mode == "named":
            manifest = tuple((pair[-1],) for pair in s.manifest)
            yield "recovery syncs the manifest and opens", self.open_up(s._replace(manifest=manifest))

    def new_epoch(self, s: State) -> Step[State]:
        scan, old = self.scan(s.files, s.manifest), newest(s.manifest)
        assert old
        epoch = old.epochs[-1][0] + 1
        floor = max(scan.id_max + 1, old.next_id) if self.on["id_floor"] else scan.id_max + 1
        epochs = tuple(x for x in old.epochs if x[1] < scan.cut or x[0] == 1)
        new = old._replace(epochs=(*epochs, (epoch, scan.cut)), next_id=floor + (JUMP if self.on["id_jump"] else 0))
        t = self.write_manifest(s, new)
        again = self.scan(t.files, t.manifest)
        if scan[1:4] != again[1:4]:
            raise Violation("recovery is not idempotent")
        label = f"recovery writes epoch {epoch} from LSN {scan.cut}"
        return label, t._replace(mode="named") if self.on["epoch_first"] else self.open_up(t)

    def open_up(self, s: State) -> State:
        """Rebuild control; from here on the repository answers."""
        scan, m, ghost = self.scan(s.files, s.manifest), newest(s.manifest), s.ghost
        assert m
        begin = m.checkpoint[0] if m.checkpoint else 0
        keep = {lsn - lsn % self.cells for _, _, lsn in scan.live}
        keep.update(range(begin - begin % self.cells, scan.cut, self.cells))
        segments = tuple(sorted(x for x in self.best_files(s.files).items() if x[0] in keep))
        again = [i for i, _ in ghost.seen if i >= m.next_id]
        if again:
            raise Violation(f"id {max(again)} was seen and will be given again (next is {m.next_id})")
        memory = Memory(scan.cut, scan.cut, scan.live, m.next_id, m.epochs[-1][0], 0, segments, scan.last)
        nobody: frozenset[int] = frozenset()
        ghost = ghost._replace(
            published=ghost.published[:begin] + tuple(c.n for c in scan.accepted),
            dead=nobody,
            visible_acks=nobody,
            puts=frozenset(i for i, _, _ in scan.live),
            acks=ghost.acks | {c.op.message for c in scan.accepted if c.op.kind == "ack"},
        )
        return s._replace(mode="run", memory=memory, ghost=ghost)

    def write_manifest(self, s: State, new: Manifest) -> State:
        """Write a generation to the older pair (or, unguarded, over the newest)."""
        manifest = s.manifest
        if self.on["manifest_sync"]:
            manifest = tuple((pair[-1],) for pair in manifest)
        old = newest(manifest)
        assert old
        k = [pair[-1] == old for pair in manifest].index(not self.on["other_pair"])
        new = new._replace(sequence=old.sequence + 1)
        return s._replace(manifest=tuple((*pair, new) if i == k else pair for i, pair in enumerate(manifest)))
