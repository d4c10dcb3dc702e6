"""The disk of the log model: versions since the last completed sync, and what a crash keeps of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tests.model.explore import Label, Step, put
from tests.model.log_state import (
    Bad,
    Commit,
    File,
    Flaky,
    Header,
    Manifest,
    Memory,
    State,
    Stored,
    current,
)


def synced(file: File) -> File:
    return File((file.header[-1],), tuple((cell[-1],) for cell in file.cells))


def stored(files: tuple[File, ...], f: int, index: int, commit: Commit) -> tuple[File, ...]:
    cells = files[f].cells
    return put(files, f, files[f]._replace(cells=put(cells, index, (*cells[index], commit))))


def headed(files: tuple[File, ...], f: int, header: Header) -> tuple[File, ...]:
    return put(files, f, files[f]._replace(header=(*files[f].header, header)))


def healed(file: File) -> File:
    """A cell that was unreadable for now can be read again."""
    cells = tuple(tuple(x.commit if isinstance(x, Flaky) else x for x in cell) for cell in file.cells)
    return file._replace(cells=cells)


def crashes(s: State) -> Iterator[Step[State]]:
    """A kill keeps the cache; a power cut keeps one version of each cell, header and pair."""
    s = s._replace(files=tuple(map(healed, s.files)), left=s.left._replace(crashes=s.left.crashes - 1))
    yield "everybody is killed, same boot", s._replace(mode="off", memory=None)
    kept_files = product(*(kept(file) for file in s.files))
    pairs: list[set[Manifest | Bad | None]] = [set(pair) | ({Bad()} if len(pair) > 1 else set()) for pair in s.manifest]
    kept_pairs = list(product(*pairs))
    for files in kept_files:
        for pair in kept_pairs:
            t = s._replace(files=files, manifest=tuple((x,) for x in pair), mode="off", memory=None)
            yield ("power cut, kept: %s", t), t
            if s.memory:
                yield from hurt(s, s.memory, t)


def kept(file: File) -> list[File]:
    headers = [(x,) for x in set(file.header)]
    cells = [[(x,) for x in set(cell)] for cell in file.cells]
    return [File(header, chosen) for header in headers for chosen in product(*cells)]


def hurt(before: State, memory: Memory, t: State) -> Iterator[Step[State]]:
    """After a power cut one cell is unreadable for now, or one that is proven is damaged for good."""
    left = t.left
    below = [current(cell[:1]) for file in before.files for cell in file.cells]
    proof = max([c.durable for c in below if c and c.lsn < memory.durable] + [0])
    for f, file in enumerate(t.files):
        for k, (c,) in enumerate(file.cells):
            if not isinstance(c, Commit):
                continue
            if left.flaky and c.lsn >= memory.durable:
                u = replaced(t, f, k, Flaky(c))._replace(left=left._replace(flaky=left.flaky - 1))
                label: Label = (f"power cut, LSN {c.lsn} unreadable for now, kept: %s", t)
                yield label, u
            if left.damage and c.lsn < proof and before.ghost.published[c.lsn] == c.n:
                u = replaced(t, f, k, Bad())._replace(left=left._replace(damage=left.damage - 1))
                yield f"power cut, LSN {c.lsn} is damaged", u


def replaced(s: State, f: int, k: int, what: Stored) -> State:
    file = s.files[f]
    return s._replace(files=put(s.files, f, file._replace(cells=put(file.cells, k, (what,)))))


def shown(s: State) -> str:
    """One line for a trace."""
    parts = []
    for file in s.files:
        header = file.header[-1]
        head = f"{header.first}/e{header.epoch}.{header.sub}" if header else "-"
        cells = [current(cell) for cell in file.cells]
        body = " ".join(f"{c.op.kind}{c.op.message or ''}@{c.lsn}/e{c.epoch}.{c.sub}" if c else "-" for c in cells)
        parts.append(f"[{head}: {body}]")
    pairs = ["torn" if isinstance(p[-1], Bad) else str(p[-1] and p[-1].sequence) for p in s.manifest]
    return f"{' '.join(parts)} manifest {'|'.join(pairs)}"
