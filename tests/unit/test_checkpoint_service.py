"""The service thread does what nobody asks for, and what it copies is what was there."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Literal

import pytest

import rota

PATIENCE = 20.0


def eventually(condition: Callable[[], bool]) -> None:
    """Look until it is so."""
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        pause.wait(0.005)


@pytest.mark.parametrize("durability", ["interval", "none"])
def test_what_was_put_becomes_durable_by_itself(
    directory: pathlib.Path, durability: Literal["interval", "none"]
) -> None:
    with rota.open(directory / "r", capacity="1 MiB", durability=durability) as repo:
        receipt = repo.queue("q").put(b"soon")
        eventually(lambda: receipt.durable)


def test_a_log_at_rest_is_proven(directory: pathlib.Path) -> None:
    """A MARK follows: the last commit is not a torn tail any more, so the next epoch gives no id away."""
    with rota.open(directory / "r", capacity="1 MiB", durability="none") as repo:
        repo.queue("q").put(b"rest")
        before = repo.stats().commits
        eventually(lambda: repo.stats().commits > before)
        eventually(lambda: repo.stats().tail_lsn == repo.stats().durable_lsn)
        after = repo.stats().commits
        repo.queue("q").put(b"again")
        eventually(lambda: repo.stats().commits == after + 2)


def test_due_messages_wake_a_getter(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        queue = repo.queue("q")
        queue.put(b"later", delay=0.1)
        assert queue.get(timeout=PATIENCE).body == b"later"


def test_expired_messages_go_without_a_consumer(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        queue = repo.queue("q", max_attempts=None)
        queue.put(b"short", ttl=0.01)
        queue.put(b"long", ttl=3600.0)
        eventually(lambda: len(queue) == 1)


def test_a_dead_process_gives_back_what_it_held(directory: pathlib.Path) -> None:
    program = "import rota, sys\nqueue = rota.open(sys.argv[1]).queue('q')\nkept = queue.get()\nprint(1, flush=True)\n"
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        queue = repo.queue("q")
        queue.put(b"held")
        child = subprocess.Popen(
            [sys.executable, "-c", program + "input()", str(directory / "r")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        assert queue.figures()["claimed"] == 1
        child.kill()
        child.communicate()
        eventually(lambda: queue.figures()["claimed"] == 0)
        assert queue.get(timeout=0).attempts == 2


def test_an_idle_repository_costs_nothing(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        for number in range(50):
            repo.queue(f"q{number}").put(b"x")
        eventually(lambda: repo.stats().tail_lsn == repo.stats().durable_lsn)
        before, pause = time.process_time(), threading.Event()
        pause.wait(1.0)
        assert time.process_time() - before < 0.05


def test_many_opens_leave_no_thread(directory: pathlib.Path) -> None:
    def threads() -> int:
        return len(os.listdir(f"/proc/{os.getpid()}/task"))

    before = threads()
    for _ in range(30):
        repo = rota.open(directory / "r", capacity="1 MiB", durability="none")
        repo.queue("q").put(b"x")
        assert threads() == before + 1
        repo.close()
        assert threads() == before


def blocked_signals() -> set[int]:
    """Return what the service thread blocks."""
    tasks = [task.read_text() for task in pathlib.Path("/proc/self/task").glob("*/status")]
    (status,) = [text for text in tasks if text.startswith("Name:\trota\n")]
    bits = int(status.split("SigBlk:")[1].split()[0], 16)
    return {number for number in range(1, 32) if bits >> (number - 1) & 1}


def test_signals_go_to_the_program(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="1 MiB"):
        eventually(lambda: signal.SIGBUS not in blocked_signals())  # a thread starts with all blocked
        assert blocked_signals() >= {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM}


def test_messages_of_compressed_blocks_survive_copying(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="1 MiB", durability="none") as repo:
        queue = repo.queue("q", max_attempts=None)
        other = repo.queue("other")
        kept = {}
        for lap in range(40):
            bodies = [b"%d %d the same again " % (lap, i) * (i + 1) for i in range(40)]
            queue.put_many(bodies, compression="lz4")
            messages = list(queue.get_many(40))
            kept[messages[lap].id] = bodies[lap]
            messages[lap].release(delay=3600.0)
            for message in (*messages[:lap], *messages[lap + 1 :]):
                message.ack()
        for _ in range(20000):
            other.put(b"x" * 50)
            other.get().ack()
        assert {message.id: message.body for message in queue.browse()} == kept
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        assert {message.id: message.body for message in repo.queue("q").browse()} == kept
