"""Recovery after a kill, the log in the page cache: bytes of log a second of the open that rebuilds."""

from __future__ import annotations

import os
import signal
import statistics
import time

import rota
from bench.measure import Outcome, Row, Setting, bodies_of, scratch
from bench.processes import CONTEXT


def write_and_wait(path: str, capacity: str, size: int, batches: int, pipe: object) -> None:
    """Fill the log with waiting messages, say so, and wait to be killed."""
    repo = rota.open(path, capacity=capacity, durability="none")
    queue = repo.queue("bench")
    bodies = bodies_of(size)
    for _ in range(batches):
        queue.put_many(bodies)
    repo.sync()
    pipe.send(repo.stats().tail_lsn)  # type: ignore[attr-defined]
    signal.pause()


def forget_control(path: str) -> None:
    """Remove what is derived from the log, as a restart of the machine does."""
    for name in ("control", "claims"):
        if os.path.exists(os.path.join(path, name)):
            os.unlink(os.path.join(path, name))


def recover_once(setting: Setting) -> tuple[float, dict[str, float]]:
    with scratch(setting) as directory:
        path = str(directory / "log")
        ours, theirs = CONTEXT.Pipe()
        size, batches = setting.pick(1000, 50), setting.pick(4000, 5)
        capacity = "8 MiB" if setting.small else "2 GiB"
        writer = CONTEXT.Process(target=write_and_wait, args=(path, capacity, size, batches, theirs))
        writer.start()
        theirs.close()
        ours.recv()
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        forget_control(path)
        begun = time.perf_counter()
        with rota.open(path, create=False) as repo:
            seconds = time.perf_counter() - begun
            found = repo.recovery
            assert len(repo.queue("bench")) == batches * size
        return found.scanned_bytes / seconds / 1e9, {
            "scanned_bytes": found.scanned_bytes,
            "open_seconds": seconds,
            "inside_seconds": found.elapsed,
        }


def recovery(setting: Setting) -> Outcome:
    """Gigabytes of log a second, over the whole of rota.open()."""
    runs = [recover_once(setting) for _ in range(setting.pick(5, 1))]
    return Outcome(statistics.median(speed for speed, _ in runs), runs[-1][1])


ROWS = (Row("recovery", "recovery after a kill, log in the page cache", 1.0, "GB/s", True, recovery),)
