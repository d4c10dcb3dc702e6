"""What the log model is made of: commits, files with versions, the manifest, memory, ghosts, guards.

A commit fills one cell, which is old or new as a whole; `cells` cells and a header make a segment; an
LSN is a cell's number.  Each cell, header and manifest pair remembers every store since the last
completed sync of its file.
"""

from __future__ import annotations

from typing import NamedTuple

JUMP, SKIP = 8, 2  # the jump of ids covers all skips since the last durable commit

GUARDS = {
    "entry_snapshot": "durable is the tail read before the sync, not after",
    "all_files": "the leader syncs every file with bytes in [durable, target), not only the newest",
    "durable_order": "durable crosses a border only after the lower file's sync",
    "chain": "a commit names its predecessor",
    "sub_epoch": "the sub-epoch rises at each owner's death and may not fall along the log",
    "epoch_check": "a commit's epoch must be the one that the manifest names for its LSN",
    "epoch_first": "the new epoch is durable before anything is answered or appended",
    "recovery_sync": "recovery syncs what it accepted before it writes the epoch",
    "epoch_wins": "of two files with one first LSN the higher epoch wins",
    "header_sub": "and of equal epochs the higher sub-epoch, which headers carry too",
    "lsn_in_commit": "a commit carries its LSN, or a reused segment's old commits pass",
    "durable_lsn": "commits carry the durable position; a bad one below it is corruption",
    "id_jump": "the next id jumps after an unclean recovery",
    "id_floor": "from the larger of the last id found and the manifest's",
    "death_ids": "the next id skips what a dead writer may have stamped",
    "checkpoint_bits": "only frames with a live bit come back from below the checkpoint",
    "begin_first": "begin is read before the walk, not after it",
    "checkpoint_sync": "the log is synced through the checkpoint before the manifest names it",
    "free_last": "segments are freed only after the manifest's sync",
    "other_pair": "a manifest generation is never written over the newest one",
    "manifest_sync": "who takes over from a dead manifest writer syncs before it writes the other pair",
    "copy_admit": "COPY is admitted only if the id is live at the old place",
    "copy_always": "and then replayed without a second look",
    "reader_verify": "a lazy reader verifies the id of the frame that it copied",
    "reader_reload": "and loads the slot again after the copy",
    "job_lock": "copy-forward and checkpoint exclude each other",
}


class Budget(NamedTuple):
    puts: int = 0
    acks: int = 0
    copies: int = 0
    checkpoints: int = 0
    deaths: int = 0
    crashes: int = 0
    damage: int = 0
    flaky: int = 0
    reads: int = 0


class Bounds(NamedTuple):
    budget: Budget
    prefill: int
    files: int
    cells: int


PROFILES = {
    "jobdeath": Bounds(Budget(0, 1, 0, 1, 1, 2), 1, 3, 2),
    "border": Bounds(Budget(3, 0, 0, 0, 1, 1), 1, 4, 1),
    "twofile": Bounds(Budget(3, 0, 0, 0, 0, 2), 1, 4, 1),
    "recover": Bounds(Budget(2, 1, 0, 0, 0, 2, 1, 1), 1, 3, 2),
    "twocrash": Bounds(Budget(2, 0, 0, 0, 1, 2, 0, 1), 0, 3, 2),
    "reader": Bounds(Budget(2, 1, 0, 1, 0, 0, 0, 0, 1), 1, 4, 1),
    "death": Bounds(Budget(3, 1, 0, 0, 1, 1), 0, 3, 2),
    "again": Bounds(Budget(2, 1, 0, 2, 0, 1), 1, 3, 2),
    "reuse": Bounds(Budget(1, 2, 1, 1, 0, 1), 2, 3, 2),
}


class Op(NamedTuple):
    kind: str  # put, ack, copy, checkpoint
    message: int = 0
    origin: int = 0  # copy: the number of the commit that first held the frame
    old: int = 0  # copy: the place it came from
    bits: tuple[int, ...] = ()  # checkpoint
    next_id: int = 0  # checkpoint

    @property
    def framed(self) -> bool:
        return self.kind in ("put", "copy")


class Commit(NamedTuple):
    lsn: int
    epoch: int
    sub: int
    n: int  # this written copy: its chain id
    previous: int
    durable: int
    op: Op


class Flaky(NamedTuple):
    """Reads as bad until the next crash."""

    commit: Commit


class Bad(NamedTuple):
    """Damaged, or a manifest pair that came out torn."""


class Header(NamedTuple):
    first: int
    epoch: int
    sub: int


Stored = Commit | Flaky | Bad | None


class File(NamedTuple):
    header: tuple[Header | None, ...]
    cells: tuple[tuple[Stored, ...], ...]


class Manifest(NamedTuple):
    sequence: int
    epochs: tuple[tuple[int, int], ...]
    checkpoint: tuple[int, int, int] | None  # begin, its LSN, the chain id before begin
    next_id: int


Pair = tuple[Manifest | Bad | None, ...]
Place = tuple[int, int, int]  # message, number of the commit that first held it, LSN


class Reader(NamedTuple):
    place: Place
    file: int
    got: int | None = None


class Job(NamedTuple):
    kind: str  # copy; walk, sync, named
    place: Place = (0, 0, 0)
    begin: int = 0
    previous: int = 0
    chunk: int = 0
    bits: tuple[int, ...] = ()
    at: int = 0


class Memory(NamedTuple):
    tail: int
    durable: int
    live: tuple[Place, ...]
    next_id: int
    epoch: int
    sub: int
    segments: tuple[tuple[int, int], ...]  # first LSN, file
    last: int
    leader: tuple[int, tuple[int, ...]] | None = None
    job: Job | None = None
    reader: Reader | None = None


class Ghost(NamedTuple):
    published: tuple[int, ...]
    dead: frozenset[int]
    seen: tuple[tuple[int, int], ...]  # id, number of the commit
    puts: frozenset[int]  # durable
    acks: frozenset[int]  # durable
    visible_acks: frozenset[int]
    n: int


class State(NamedTuple):
    files: tuple[File, ...]
    manifest: tuple[Pair, ...]
    mode: str  # run; off, cut, named: steps of recovery
    memory: Memory | None
    ghost: Ghost
    left: Budget


class Scan(NamedTuple):
    refused: str | None
    accepted: tuple[Commit, ...] = ()
    cut: int = 0
    live: tuple[Place, ...] = ()
    id_max: int = 0
    last: int = 0


def current(versions: tuple[Stored, ...]) -> Commit | None:
    """What a read of the page cache gives."""
    last = versions[-1]
    return last if isinstance(last, Commit) else None


def newest(manifest: tuple[Pair, ...]) -> Manifest | None:
    whole = [pair[-1] for pair in manifest if isinstance(pair[-1], Manifest)]
    return max(whole, key=lambda m: m.sequence) if whole else None


def pack(live: dict[int, tuple[int, int]]) -> tuple[Place, ...]:
    return tuple(sorted((i, n, lsn) for i, (n, lsn) in live.items()))
