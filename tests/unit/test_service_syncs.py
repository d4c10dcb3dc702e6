"""The service thread syncs in time, syncs when a threshold is crossed, and opens what another one may fail to sync."""

from __future__ import annotations

import os
import pathlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import rota
from tests.crash.kit import Child, Link

PATIENCE = 20.0


def eventually(condition: Callable[[], bool]) -> None:
    """Look until it is so."""
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        pause.wait(0.0005)


@contextmanager
def never_idle(queue: rota.Queue) -> Iterator[None]:
    """Puts at level "none" in another thread, a few in each millisecond: a log at rest would be synced anyway."""
    over, pause = threading.Event(), threading.Event()

    def run() -> None:
        while not over.is_set():
            queue.put(b"none", durability="none")
            pause.wait(0.0005)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_one_call_at_level_interval_is_synced_in_a_repository_of_level_none(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", durability="none", sync_interval=0.1) as repo, never_idle(repo.queue("busy")):
        before = repo.queue("q").put(b"not asked for")
        assert not before.durable
        receipt = repo.queue("q").put(b"x", durability="interval")
        eventually(lambda: receipt.durable)


def seconds_to_durable(repo: rota.Repository, count: int, size: int) -> float:
    """How long the last of so many puts waits for the sync that nobody asks for; the median of many tries."""
    queue, tries = repo.queue("q"), []
    for _ in range(30):
        for _ in range(count):
            receipt = queue.put(b"x" * size)
        begun = time.monotonic()
        eventually(lambda receipt=receipt: receipt.durable)  # type: ignore[misc]
        tries.append(time.monotonic() - begun)
    return statistics.median(tries)


def test_who_crosses_a_threshold_wakes_the_thread(directory: pathlib.Path) -> None:
    """It looks by itself every 50 ms; a sync, and what a busy machine adds, take less than half of that."""
    hour: dict[str, Any] = {"durability": "interval", "sync_interval": 3600.0}
    with rota.open(directory / "count", sync_count=20, **hour) as repo, never_idle(repo.queue("busy")):
        assert seconds_to_durable(repo, 20, 10) < 0.025
    with rota.open(directory / "bytes", sync_bytes=10_000, **hour) as repo:
        assert seconds_to_durable(repo, 3, 4000) < 0.025


def test_an_interval_below_the_tick_holds_for_the_first_put_too(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", durability="interval", sync_interval=0.002) as repo:
        assert seconds_to_durable(repo, 1, 10) < 0.025


def test_thresholds_do_not_keep_the_thread_busy(directory: pathlib.Path) -> None:
    """Above a threshold that a file system without syncs never goes below, or at level none, nobody is woken."""
    with rota.open(directory / "r", durability="none", sync_count=1) as repo:
        queue = repo.queue("q")
        syncs = repo.stats().syncs
        for _ in range(2000):
            queue.put(b"x")
        assert repo.stats().syncs - syncs < 20


def opened(pid: int) -> int:
    """How many segments a process has open."""
    links = []
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(pathlib.Path(os.readlink(entry)).name)
    return sum(name.startswith("seg.") for name in links)


def idle(link: Link, path: pathlib.Path) -> None:
    with rota.open(path, capacity="1 MiB", durability="none"):
        link.send("open")
        link.receive()


def test_a_process_opens_what_another_one_writes(directory: pathlib.Path) -> None:
    """A failed sync is told to those who had the file open: an idle process, too, must have opened it before."""
    path = directory / "r"
    with rota.open(path, capacity="1 MiB") as repo, Child(idle, path) as child:
        assert child.receive() == "open"
        before = opened(child.pid)
        while repo.stats().tail_lsn < repo.stats().segment_size:
            repo.queue("q").put(b"x" * 1000)
        eventually(lambda: opened(child.pid) > before)
        child.send("end")
        child.finish()
