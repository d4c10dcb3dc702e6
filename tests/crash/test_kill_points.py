"""Killed at every named place of the engine, beside a survivor and alone, once and twice."""

from __future__ import annotations

import pathlib
import signal
import time

import pytest

import rota
from rota._core import platform
from tests.crash.kit import Child, Ledger, Link, drain
from tests.crash.workload import OPTIONS, SMALL, work

# What one life reaches often, sometimes, once.
OFTEN = [
    *("append.admitted", "append.stamped", "append.copied", "append.published", "append.applying"),
    *("append.applied", "lock.acquired", "claim.prepared", "claim.cursor", "claim.active", "show.marked"),
]
SOMETIMES = [
    *("sync.before", "sync.file", "sync.published", "sync.after"),
    *("segment.zeroed", "segment.created", "segment.renamed", "segment.header"),
]
ONCE = ["attach.gate", "attach.slot", "attach.ready", "detach.begin", "detach.slot"]
CASES = [
    *((point, nth) for point in OFTEN for nth in (1, 3, 25)),
    *((point, nth) for point in SOMETIMES for nth in (1, 3)),
    *((point, 1) for point in ONCE),
]
IN_THE_OPEN = [
    *("control.created", "recovery.scanned", "recovery.cut", "recovery.rebuilt", "recovery.synced"),
    *("recovery.epoch", "recovery.opened", "manifest.written", "manifest.synced"),
    *(
        "attach.gate",
        "attach.slot",
        "attach.ready",
        "checkpoint.begin",
        "checkpoint.walked",
        "checkpoint.block",
    ),
    *("checkpoint.synced", "checkpoint.manifest", "checkpoint.freed"),
]
ROUNDS = 12


def killed_work(ledger: Ledger, path: pathlib.Path, point: str, nth: int, size: int = 2000) -> None:
    """One child that is killed at the point; fails when the point was not reached."""
    with Child(work, path, f"{point}=kill@{nth}", ROUNDS, size) as child:
        ledger.follow(child)
        assert child.wait() == -signal.SIGKILL, f"{point} was not reached {nth} times"


def goes_on(queue: rota.Queue) -> None:
    """The survivor puts and gets within a second."""
    begun = time.monotonic()
    receipt = queue.put(b"survivor", priority=9)
    message = queue.get(timeout=1)
    assert message.id == receipt.id
    message.ack()
    assert time.monotonic() - begun < 1.0


def prepared(path: pathlib.Path, ledger: Ledger) -> None:
    """A repository with some messages, closed."""
    with rota.open(path, **SMALL) as repo:
        bodies = [b"before-%d" % i for i in range(20)]
        repo.queue("q", **OPTIONS).put_many(bodies)
        ledger.certain.update(bodies)


@pytest.mark.parametrize(("point", "nth"), CASES)
def test_killed_beside_a_survivor(directory: pathlib.Path, point: str, nth: int) -> None:
    """Who lives goes on within a second; nothing confirmed is lost, nothing half-done is seen."""
    ledger = Ledger()
    prepared(directory / "r", ledger)
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q", **OPTIONS)
        killed_work(ledger, directory / "r", point, nth)
        goes_on(queue)
        ledger.check(drain(queue))
        with pytest.raises(rota.Empty):
            queue.get(timeout=0.2)
        assert queue.stats().claimed == 0


@pytest.mark.parametrize(("point", "nth"), CASES)
def test_killed_alone(directory: pathlib.Path, point: str, nth: int) -> None:
    """The next open finds all that was confirmed."""
    ledger = Ledger()
    prepared(directory / "r", ledger)
    killed_work(ledger, directory / "r", point, nth)
    with rota.open(directory / "r", **SMALL) as repo:
        goes_on(repo.queue("q"))
        ledger.check(drain(repo.queue("q")))


@pytest.mark.parametrize("point", IN_THE_OPEN)
def test_killed_in_the_open_after_a_death(directory: pathlib.Path, point: str) -> None:
    """The second crash, inside the recovery of the first, and a third open."""
    ledger = Ledger()
    prepared(directory / "r", ledger)
    killed_work(ledger, directory / "r", "append.copied", 30)
    after = Ledger()
    after.certain = ledger.certain
    after.removes, after.adds = ledger.removes, ledger.adds
    with Child(work, directory / "r", f"{point}=kill", 0) as child:
        child_ledger = Ledger()
        child_ledger.follow(child)
        assert child.wait() == -signal.SIGKILL, f"{point} was not reached"
    with rota.open(directory / "r", **SMALL) as repo:
        goes_on(repo.queue("q"))
        after.check(drain(repo.queue("q")))


@pytest.mark.parametrize("second", ["control.undone", "control.redone", "control.repaired", "lock.acquired"])
@pytest.mark.parametrize("first", ["append.published", "append.applying", "append.copied", "claim.cursor"])
def test_killed_while_repairing_the_dead(directory: pathlib.Path, first: str, second: str) -> None:
    """One dies under the lock, the next while it repairs; the third, which slept meanwhile, goes on."""
    redone = first in ("append.published", "append.applying")
    if second in ("control.undone", "control.redone") and not redone:
        return  # nothing was published
    ledger = Ledger()
    prepared(directory / "r", ledger)
    with Child(sleeper, directory / "r") as survivor:
        assert survivor.receive() == "open"
        survivor.signal(signal.SIGSTOP)
        killed_work(ledger, directory / "r", first, 20)
        with Child(put_late, directory / "r", second) as child:
            assert child.wait() == -signal.SIGKILL, f"{second} was not reached"
        survivor.signal(signal.SIGCONT)
        survivor.send("go on")
        ledger.check([body for body in survivor.receive() if body != b"late"])
        survivor.finish()


def sleeper(link: Link, path: pathlib.Path) -> None:
    """Open, wait, drain."""
    with rota.open(path, **SMALL) as repo:
        link.send("open")
        link.receive()
        goes_on(repo.queue("q"))
        link.send(drain(repo.queue("q")))


def put_late(link: Link, path: pathlib.Path, point: str) -> None:
    """Be killed at a failpoint by the first who takes the lock: the put, or the thread that serves."""
    if point != "lock.acquired":
        platform.arm(point, "kill")
    repo = rota.open(path, **SMALL)
    platform.arm(point, "kill")
    repo.queue("q").put(b"late")
    repo.close()
