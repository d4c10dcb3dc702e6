"""The ticket printer: a client that may be killed anywhere prints each ticket exactly once.

What holds:

1. The printer is a file; its state is its length.  What was written before a SIGKILL is there after it.
2. A run ends when every ticket is printed and the client has disconnected; who dies is started again.
3. Between any two steps the process may die: at each step of the client's own code, at each failpoint of the engine
   that its operations pass, and at any moment beside a server that is killed as well.
"""

from __future__ import annotations

import os
import pathlib
import random
import signal
from collections.abc import Callable

import pytest

import rota
from rota._core import platform
from tests.clerks import PATIENCE_S, SMALL, serve
from tests.crash.kit import Child, Died, Link

TICKETS = 5
STEPS = 5 * TICKETS + 2  # that client() makes in a run of its own
POINTS = [  # those that its operations pass
    *("lock.acquired", "append.admitted", "append.stamped", "append.copied", "append.published", "append.applying"),
    *("append.applied", "claim.prepared", "claim.cursor", "claim.active"),
    *("sync.before", "sync.after", "sync.published"),
]


class Printer:
    """Prints numbers, four bytes each, into a file."""

    def __init__(self, path: pathlib.Path) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def state(self) -> bytes:
        return b"%d" % os.fstat(self.file).st_size

    def print(self, number: int) -> None:
        os.write(self.file, number.to_bytes(4, "little"))

    def printed(self) -> list[int]:
        data = os.pread(self.file, 1 << 20, 0)
        return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


def client(repo: rota.Repository, printer: Printer, tickets: int, server: Callable[[], object],
           step: Callable[[], None]) -> None:  # fmt: skip
    """Go on from wherever an earlier one died."""
    clerk = repo.clerk("teller-7", requests="orders")
    session = clerk.connect()
    step()
    if session.sent_rid is None and len(printer.printed()) == tickets:
        clerk.disconnect()  # the one before died after that
        return
    last = int(session.sent_rid or 0)
    for number in range(max(last, 1), tickets + 1):
        if number > last:
            clerk.send(b"%d" % number, b"%d" % number)
            step()
        server()
        step()
        with session.reply(device=printer, timeout=PATIENCE_S) as reply:
            step()
            if reply is not None:
                assert (reply.status, reply.body) == ("ok", b"done %d" % int(reply.rid))
                printer.print(int(reply.rid))
            step()
        step()
    clerk.disconnect()
    step()


def alone(link: Link, directory: pathlib.Path, failpoints: str, dies_at: int, level: str) -> None:
    """A client that is its own server and dies at a failpoint, or at one of its steps."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    options = {**SMALL, "durability": level}
    with rota.open(directory / "r", **options) as repo:
        orders = repo.queue("orders", max_attempts=None)
        repo.queue("teller-7.replies", max_attempts=None, indexes=("key",))
        platform.arm_from(failpoints)
        printer = Printer(directory / "printer")
        client(repo, printer, TICKETS, lambda: [serve(repo) for _ in range(orders.qsize())], step)
        platform.arm_from("")
    link.send(steps)


def finish(directory: pathlib.Path, level: str = "none") -> None:
    """Start clients until one ends in good order, and see what was printed."""
    with Child(alone, directory, "", 0, level) as child:
        child.receive()
        assert child.wait() == 0
    assert Printer(directory / "printer").printed() == list(range(1, TICKETS + 1))
    with rota.open(directory / "r", **SMALL) as repo:
        assert repo.registrations() == []
        assert [len(repo.queue(name)) for name in repo.queues()] == [0] * len(repo.queues())


def test_it_makes_so_many_steps(directory: pathlib.Path) -> None:
    with Child(alone, directory, "", 0, "none") as child:
        assert child.receive() == STEPS
    finish(directory)


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_killed_between_two_steps(directory: pathlib.Path, step: int) -> None:
    with Child(alone, directory, "", step, "none") as child:
        assert child.wait() == -signal.SIGKILL
    finish(directory)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("nth", [1, 4, 9])
def test_killed_at_a_failpoint(directory: pathlib.Path, point: str, nth: int) -> None:
    level = "sync" if point.startswith("sync.") else "none"
    with Child(alone, directory, f"{point}=kill@{nth}", 0, level) as child:
        assert child.wait() == -signal.SIGKILL, f"{point} was not reached {nth} times"
    finish(directory, level)


def handle(message: rota.Message) -> bytes:
    return b"done " + message.body


def sell(link: Link, directory: pathlib.Path, tickets: int) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        client(repo, Printer(directory / "printer"), tickets, lambda: None, lambda: link.send("step"))


def run_server(link: Link, directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo, repo.server("orders", handle, threads=2):
        link.send("serves")
        signal.pause()


@pytest.mark.parametrize("storm", range(3))
def test_client_and_server_are_killed_at_any_moment(directory: pathlib.Path, seed: int, storm: int) -> None:
    """Each lives for a while that is drawn; another takes its place, until all is printed."""
    draw = random.Random(seed + storm)
    tickets, clients, servers, ended = 60, 0, 0, False
    with rota.open(directory / "r", **SMALL) as repo:
        repo.queue("orders", max_attempts=None)  # no attempt is the last one here
    server = Child(run_server, directory)
    try:
        while not ended:
            clients += 1
            with Child(sell, directory, tickets) as seller:
                try:
                    for _ in range(draw.randint(1, 60 if clients > 2 else 20)):  # the first two never reach the end
                        seller.receive()
                        if draw.random() < 0.02:
                            server.__exit__()
                            server = Child(run_server, directory)
                            servers += 1
                except Died:
                    assert seller.wait() == 0
                    ended = True
    finally:
        server.__exit__()
    assert Printer(directory / "printer").printed() == list(range(1, tickets + 1)), f"seed {seed}"
    assert clients > 2, "nobody was killed"
