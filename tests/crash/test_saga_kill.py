"""A saga whose processes are killed: all of it happens, or what happened is undone, each once.

The client asks and waits; servers are processes of their own, and die inside each step and undo, before its commit, and
at each failpoint of the engine that a saga passes.
"""

from __future__ import annotations

import pathlib
import signal

import pytest

import rota
from rota._core import platform
from tests import sagas
from tests.crash.kit import Child, Link
from tests.sagas import AT_ONCE, PATIENCE_S, SMALL, STEPS, ask, is_clean, ledger, plan

BACK = ["reserve", "pay", "unpay", "unreserve"]
POINTS = [
    *("lock.acquired", "append.admitted", "append.stamped", "append.copied", "append.published", "append.applying"),
    *("append.applied", "claim.prepared", "claim.cursor", "claim.active"),
    *("sync.before", "sync.after", "sync.published"),
]


def serve(link: Link, directory: pathlib.Path, fails: str, dies: str, failpoints: str, level: str) -> None:
    sagas.reset()
    if fails:
        sagas.fails[fails] = rota.Refused("sold out")
    sagas.dies |= {dies}
    options = {**SMALL, "durability": level}
    with rota.open(directory / "r", **options) as repo:
        server = plan.server(repo, backoff=AT_ONCE)
        platform.arm_from(failpoints)
        with server:
            link.send("serves")
            signal.pause()


def request(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        ask(repo)


def finish(directory: pathlib.Path, fails: str, level: str = "none") -> str | None:
    """A server that is not killed brings the saga to its end: why it failed."""
    with Child(serve, directory, fails, "", "", level) as child:
        assert child.receive() == "serves"
        with rota.open(directory / "r", **SMALL) as repo:
            clerk = repo.clerk("teller-7", "order")
            clerk.connect()
            reply = clerk.receive(timeout=PATIENCE_S)
            assert reply.status == ("failed" if fails else "ok")
            assert ledger(repo) == (BACK if fails else list(STEPS))
            assert [each.state for each in repo.sagas()] == ["failed" if fails else "done"]
            assert is_clean(repo)
    return reply.error


@pytest.mark.parametrize("what", ["reserve", "pay", "ship", "unpay", "unreserve"])
def test_killed_in_a_step(directory: pathlib.Path, what: str) -> None:
    fails = "ship" if what.startswith("un") else ""
    request(directory)
    with Child(serve, directory, fails, what, "", "none") as child:
        assert child.wait() == -signal.SIGKILL
    finish(directory, fails)


@pytest.mark.parametrize("fails", ["", "ship"], ids=["forward", "back"])
@pytest.mark.parametrize("nth", [1, 3, 4])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_failpoint(directory: pathlib.Path, point: str, nth: int, fails: str) -> None:
    level = "sync" if point.startswith("sync.") else "none"
    request(directory)
    with Child(serve, directory, fails, "", f"{point}=kill@{nth}", level) as child:
        assert child.wait() == -signal.SIGKILL, f"{point} was not reached {nth} times"
    finish(directory, fails, level)


def test_a_step_that_kills_each_server_is_undone(directory: pathlib.Path) -> None:
    """Its attempts are used up by deaths alone: the engine sets it aside, and the next server turns the saga."""
    request(directory)
    for _ in range(plan.max_attempts):
        with Child(serve, directory, "", "ship", "", "none") as child:
            assert child.wait() == -signal.SIGKILL
    assert finish(directory, "ship") == "ship: its attempts are used up"


def test_an_undo_that_kills_its_servers_is_tried_again(directory: pathlib.Path) -> None:
    request(directory)
    for _ in range(2 * plan.max_attempts):
        with Child(serve, directory, "ship", "unpay", "", "none") as child:
            assert child.wait() == -signal.SIGKILL
    assert finish(directory, "ship") == "ship: sold out"
