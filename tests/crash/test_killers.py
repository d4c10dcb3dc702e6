"""Messages that kill who looks at them: counted whatever dies, set apart in the end, neighbours never charged."""

from __future__ import annotations

import os
import pathlib
import signal

import pytest

import rota
from rota._core import platform
from tests.crash.kit import Child, Link
from tests.crash.test_kill_points import IN_THE_OPEN
from tests.crash.workload import SMALL

OPENING = [point for point in IN_THE_OPEN if not point.startswith("checkpoint")]
KILLER = b"killer"
ATTEMPTS = 3


def look(link: Link, path: pathlib.Path, how: str) -> None:
    """Work until the killer is shown, as SIGKILL would end it; tells what it saw before."""
    with rota.open(path, **SMALL) as repo:
        queue = repo.queue("q")
        while len(queue):
            messages = list(queue.get_many(1 if how == "one by one" else 10, timeout=1))
            if how == "bodies at once":
                bodies = [message.body for message in messages]
                if KILLER in bodies:
                    os.kill(os.getpid(), signal.SIGKILL)
            for message in messages:
                if message.body == KILLER:
                    os.kill(os.getpid(), signal.SIGKILL)
                link.send((message.body, message.attempts))
                message.ack()


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a survivor"])
@pytest.mark.parametrize("how", ["one by one", "in batches", "bodies at once"])
def test_a_killer_lands_in_the_error_queue(directory: pathlib.Path, how: str, beside: bool) -> None:
    """C60, C61, C62: n attempts, then set apart; the others are worked off with one attempt each."""
    path = directory / "r"
    innocents = [b"%d" % i for i in range(9)]
    with rota.open(path, **SMALL) as repo:
        queue = repo.queue("q", max_attempts=ATTEMPTS)
        queue.put_many([*innocents[:3], KILLER, *innocents[3:]])
    survivor = rota.open(path, **SMALL) if beside else None
    try:
        worked: dict[bytes, int] = {}
        deaths = 0
        while True:
            with Child(look, path, how) as child:
                try:
                    while True:
                        body, attempts = child.receive()
                        assert body not in worked
                        worked[body] = attempts
                except Exception:
                    code = child.wait()
            if code == 0:
                break
            assert code == -signal.SIGKILL
            deaths += 1
        # Shown with others it is known by one death more: the first one is nobody's.
        assert deaths == (ATTEMPTS if how != "bodies at once" else ATTEMPTS + 1)
        assert worked == dict.fromkeys(innocents, 1)
    finally:
        if survivor is not None:
            survivor.close()
    with rota.open(path, **SMALL) as repo:
        (dead,) = repo.queue("q.errors").get_many(5)
        assert dead.body == KILLER
        dead.nack()
        assert len(repo.queue("q")) == 0


def holder(link: Link, path: pathlib.Path) -> None:
    repo = rota.open(path, **SMALL)
    queue = repo.queue("q")
    queue.get()
    queue.get_many(2).release()
    batch = queue.get_many(2)
    assert len(batch) == 2
    os.kill(os.getpid(), signal.SIGKILL)


def open_and_die(link: Link, path: pathlib.Path, point: str) -> None:
    platform.arm(point, "kill")
    rota.open(path, **SMALL).close()


@pytest.mark.parametrize("point", [*OPENING, "reap.verdict", "reap.committed", "reap.freed"])
def test_a_hand_out_is_counted_once_whatever_the_open_does(directory: pathlib.Path, point: str) -> None:
    """The hand-out that the log does not have survives an open that is killed, and is counted once."""
    path = directory / "r"
    with rota.open(path, **SMALL) as repo:
        repo.queue("q", max_attempts=5).put_many([b"shown", b"not shown", b"neither"])
    with Child(holder, path) as child:
        assert child.wait() == -signal.SIGKILL
    with Child(open_and_die, path, point) as child:
        assert child.wait() == -signal.SIGKILL, f"{point} was not reached"
    with rota.open(path, **SMALL) as repo:
        queue = repo.queue("q")
        counts = {message.body: message.attempts for message in queue.get_many(10)}
        assert counts == {b"shown": 2, b"not shown": 1, b"neither": 1}
