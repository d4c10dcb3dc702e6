"""Requests that the engine sets aside while processes die: a reply is there exactly when the request is not."""

from __future__ import annotations

import pathlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota._core import platform
from rota._core.request import encode_request
from tests.asking import CLIENT, answer, ask
from tests.crash.kit import Child, Died, Link

OPTIONS: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}


def killing(repo: rota.Repository) -> None:
    repo.queue("orders").kill(ask(repo, b"x"))


def killing_in_a_transaction(repo: rota.Repository) -> None:
    identity = ask(repo, b"x")
    with repo.transaction() as t:
        t.kill(repo.queue("orders"), identity)


def returning(repo: rota.Repository) -> None:
    ask(repo, b"x")
    repo.queue("orders").get(timeout=0).nack()


def expiring(repo: rota.Repository) -> None:
    attributes = encode_request(CLIENT, b"1", repo.queue("replies"), expiry_ns=1)
    with repo.transaction() as t:
        t.put_encoded(repo.queue("orders"), b"x", attributes, flags=8)
    with pytest.raises(rota.Empty):
        repo.queue("orders").get(timeout=1)


WAYS: dict[str, tuple[Callable[[rota.Repository], None], str]] = {
    "killed": (killing, "cancelled"),
    "killed in a transaction": (killing_in_a_transaction, "cancelled"),
    "returned": (returning, "failed"),
    "expired": (expiring, "expired"),
}
POINTS = ["answer.drafted", "append.admitted", "append.copied", "append.published", "append.applying", "append.applied"]


def prepare(path: pathlib.Path) -> rota.Repository:
    repo = rota.open(path, **OPTIONS)
    repo.queue("orders", max_attempts=1)
    repo.queue("replies", max_attempts=None)
    return repo


def work_until_killed(link: Link, path: pathlib.Path, way: str, point: str) -> None:
    with rota.open(path, **OPTIONS) as repo:
        # The put of the request passes the points of the append too: one hit more.
        platform.arm_from(f"{point}=kill@{1 if point == 'answer.drafted' else 2}")
        WAYS[way][0](repo)
        link.send("not killed")


def outcome(repo: rota.Repository, is_over: bool) -> tuple[int, list[str]]:
    """How many requests wait, and the statuses of all replies; what `is_over` is set aside by whoever looks."""
    if is_over:
        with pytest.raises(rota.Empty):
            repo.queue("orders").get(timeout=0.5)
    waiting = len(repo.queue("orders"))
    return waiting, [answer(repo)[2] for _ in range(len(repo.queue("replies")))]


@pytest.mark.parametrize("beside", [True, False], ids=["beside a survivor", "alone"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("way", WAYS)
def test_a_death_while_a_request_is_set_aside(directory: pathlib.Path, way: str, point: str, beside: bool) -> None:
    path = directory / "r"
    repo = prepare(path)
    if not beside:
        repo.close()
    with Child(work_until_killed, path, way, point) as child:
        with pytest.raises(Died):
            child.receive()
        assert child.wait() == -signal.SIGKILL
    if not beside:
        repo = rota.open(path, **OPTIONS)
    with repo:
        is_over = not way.startswith("killed")  # else it did not come to the kill, perhaps
        assert outcome(repo, is_over) in [(0, [WAYS[way][1]])] + ([] if is_over else [(1, [])])


def take_and_wait(link: Link, path: pathlib.Path) -> None:
    with rota.open(path, **OPTIONS) as repo:
        ask(repo, b"x")
        assert repo.queue("orders").get(timeout=0).body == b"x"
        link.send("taken")
        link.receive()


@pytest.mark.parametrize("beside", [True, False], ids=["beside a survivor", "alone"])
def test_who_dies_with_the_last_attempt_is_answered_for(directory: pathlib.Path, beside: bool) -> None:
    """The reaper of the living, and the one at the open, give the reply."""
    path = directory / "r"
    repo = prepare(path)
    if not beside:
        repo.close()
    with Child(take_and_wait, path) as child:
        assert child.receive() == "taken"
        child.kill()
    if not beside:
        repo = rota.open(path, **OPTIONS)
    with repo:
        assert answer(repo)[1:3] == (b"1", "failed")
        assert (len(repo.queue("orders")), len(repo.queue("orders.errors"))) == (0, 1)
        assert len(repo.queue("replies")) == 0


# --- two at once -----------------------------------------------------------------------------------------------------


def look_once(link: Link, path: pathlib.Path) -> None:
    with rota.open(path, **OPTIONS) as repo:
        link.send("open")
        link.receive()
        with pytest.raises(rota.Empty):
            repo.queue("orders").get(timeout=1)
        link.send(len(repo.queue("replies")))
        link.receive()


def test_two_sweeps_of_what_expired_answer_once(directory: pathlib.Path) -> None:
    """One process waits between its look and its commit while another one sweeps the same request."""
    path = directory / "r"
    with prepare(path) as repo, Child(look_once, path) as child:
        assert child.receive() == "open"
        platform.arm("answer.drafted", "pause")
        attributes = encode_request(CLIENT, b"1", repo.queue("replies"), expiry_ns=1)
        with repo.transaction() as t:
            t.put_encoded(repo.queue("orders"), b"x", attributes, flags=8)
        wait = threading.Thread(target=repo.queue("orders").get_many, args=(1, 1.0))
        wait.start()
        while not platform.paused():
            pass
        child.send("look")
        assert child.receive() == 1
        platform.disarm("answer.drafted")
        platform.release()
        wait.join()
        assert len(repo.queue("replies")) == 1
        assert (len(repo.queue("orders")), len(repo.queue("orders.errors"))) == (0, 1)
        child.send("end")
        child.finish()


# --- reasons ---------------------------------------------------------------------------------------------------------


def return_until_killed(link: Link, path: pathlib.Path, point: str, nth: int) -> None:
    with rota.open(path, **OPTIONS) as repo:
        message = repo.queue("plain").get(timeout=0)
        assert message.body == b"x"
        platform.arm_from(f"{point}=kill@{nth}")
        message.nack(reason="no seat")
        link.send("not killed")


@pytest.mark.parametrize("beside", [True, False], ids=["beside a survivor", "alone"])
@pytest.mark.parametrize(("point", "nth"), [("reason.kept", 1), *((point, n) for point in POINTS[1:] for n in (1, 2))])
def test_a_death_while_a_message_is_returned_with_a_reason(
    directory: pathlib.Path, point: str, nth: int, beside: bool
) -> None:
    """It is there once, with one attempt counted, whether by the return or by the death, and its reason or none."""
    path = directory / "r"
    repo = prepare(path)
    queue = repo.queue("plain")
    queue.put(b"x")
    if not beside:
        repo.close()
    with Child(return_until_killed, path, point, nth) as child:
        with pytest.raises(Died):
            child.receive()
        assert child.wait() == -signal.SIGKILL
    if not beside:
        repo = rota.open(path, **OPTIONS)
        queue = repo.queue("plain")
    with repo:
        message = queue.get(timeout=5)
        assert (message.body, message.attempts) == (b"x", 2)
        is_kept = nth == 2 or point in ("reason.kept", "append.published", "append.applying", "append.applied")
        # Copied and not published: a recovery of the log finds it whole.
        is_kept = is_kept or (point == "append.copied" and not beside)
        assert message.error == ("no seat" if is_kept else None)
        message.ack()
        assert len(queue) == 0
