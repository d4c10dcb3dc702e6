"""How a figure is measured: rounds that interleave the engine and its comparison, and the median of their ratios.

What holds:

1. A ratio is formed within a round, between two runs that follow each other; what is reported is the median of all
   rounds, so a disturbance of some of them changes nothing.
2. The garbage collector is off while the clock runs, for both sides alike.
3. What a round put is settled between the rounds, and the log is synced there before the engine would have to: a
   bounded log that is written for ever goes as fast as its disk, and that is not what these rows are about.
4. The log has been written once from end to end before the first round (`lapped`), where the engine can reuse it; an
   outcome says so.
"""

from __future__ import annotations

import gc
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import rota

__all__ = ["BODY_BYTES", "Outcome", "Row", "Setting", "bodies_of", "drain", "interleave", "lapped", "rest", "scratch"]

BODY_BYTES = 100


@dataclass(frozen=True, slots=True)
class Setting:
    """How much to measure: `small` sizes prove only that the code runs."""

    directory: pathlib.Path
    small: bool = False
    rounds: int = 101
    waiting: int = 5_000_000
    capacity: str = "1 GiB"

    def pick(self, full: int, small: int) -> int:
        """Return the size that this setting wants."""
        return small if self.small else full


@dataclass(frozen=True, slots=True)
class Outcome:
    """One figure: what was got, and the numbers that it was made from."""

    got: float | None
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.  `at_least` tells the direction of the target."""

    key: str
    title: str
    target: float
    unit: str
    at_least: bool
    measure: Callable[[Setting], Outcome]

    def passes(self, outcome: Outcome) -> bool | None:
        """Return whether the target is met; None when it was not measured."""
        if outcome.got is None:
            return None
        return outcome.got >= self.target if self.at_least else outcome.got <= self.target


@contextmanager
def scratch(setting: Setting) -> Iterator[pathlib.Path]:
    """Yield an empty directory on the file system that is measured, and remove it afterwards."""
    setting.directory.mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(tempfile.mkdtemp(prefix="bench-", dir=setting.directory))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def rest(repo: rota.Repository, queue: rota.Queue) -> None:
    """Settle all that waits; sync once a 16th of the capacity is not synced."""
    drain(queue)
    figures = repo.stats()
    if figures.tail_lsn - figures.durable_lsn > figures.capacity // 16:
        repo.sync()


def bodies_of(count: int) -> list[bytes]:
    """Return distinct bodies, so that neither side profits from one that stays in the cache."""
    return [b"%0*d" % (BODY_BYTES, i) for i in range(count)]


def drain(queue: rota.Queue) -> None:
    """Settle all that waits."""
    while len(batch := queue.get_many(1000)):
        batch.ack()


@contextmanager
def lapped(
    setting: Setting, durability: Literal["sync", "interval", "none"] = "none"
) -> Iterator[tuple[rota.Repository, rota.Queue, bool]]:
    """Yield a repository, a queue of it, and whether its log was written from end to end once."""
    with scratch(setting) as path:
        reuses = _reuses(path / "probe")
        capacity = "1 MiB" if setting.small else setting.capacity
        with rota.open(path / "log", capacity=capacity if reuses else "4 GiB", durability=durability) as repo:
            queue = repo.queue("bench")
            if reuses:
                lap(repo, queue)
            yield repo, queue, reuses


def _reuses(path: pathlib.Path) -> bool:
    """Return whether the engine writes a log a second time."""
    bodies = bodies_of(100)
    with rota.open(path, capacity="1 MiB", durability="none") as repo:
        queue = repo.queue("probe")
        try:
            for _ in range(200):
                queue.put_many(bodies, timeout=5)
                drain(queue)
        except rota.RotaError:
            return False
    return True


def lap(repo: rota.Repository, queue: rota.Queue) -> None:
    """Write and settle until the log came around, then let the disk come to rest."""
    bodies = bodies_of(1000 if repo.stats().capacity > 64 << 20 else 50)
    end = repo.stats().tail_lsn + repo.stats().capacity * 5 // 4
    while repo.stats().tail_lsn < end:
        for _ in range(20):
            queue.put_many(bodies)
            drain(queue)
    repo.sync()


def clock(run: Callable[[], object]) -> float:
    """Return the seconds of one run, garbage collection off."""
    gc.collect()
    gc.disable()
    try:
        begun = time.perf_counter()
        run()
        return time.perf_counter() - begun
    finally:
        gc.enable()


def interleave(
    rounds: int, runs: dict[str, Callable[[], object]], between: Callable[[], object] | None = None
) -> dict[str, list[float]]:
    """Time each run once a round, in turn: the seconds by name, one for each round; the first round is dropped."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            elapsed = clock(run)
            if number:
                seconds[name].append(elapsed)
        if between is not None:
            between()
    return seconds


def ratio(over: list[float], under: list[float]) -> float:
    """Return the median of the ratios of the rounds."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def compare(
    seconds: dict[str, list[float]], comparison: str, engine: str, count: int, reused: bool, **more: Any
) -> Outcome:
    """Return how fast the engine is against the comparison: above 1 is faster."""
    each = {f"{name}_ns": statistics.median(values) / count * 1e9 for name, values in seconds.items()}
    each |= {f"{name}_least_ns": min(values) / count * 1e9 for name, values in seconds.items()}
    return Outcome(ratio(seconds[comparison], seconds[engine]), {**each, "after_first_lap": reused, **more})
