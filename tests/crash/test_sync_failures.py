"""A failed sync fails the log for all processes, and the next life reads what the disk has."""

from __future__ import annotations

import pathlib
import signal
import threading
from typing import Any

import pytest

import rota
from rota._core import platform
from tests.crash.kit import Child, Link, drain

OPTIONS: dict[str, Any] = {"capacity": "1 MiB", "durability": "sync"}


def fails(link: Link, path: pathlib.Path) -> None:
    """The next sync of this process fails; afterwards nothing here is acknowledged."""
    repo = rota.open(path, **OPTIONS)
    queue = repo.queue("q")
    link.send("open")
    link.receive()
    platform.inject("sync", 0, 5)
    with pytest.raises(rota.OutcomeUnknown):
        queue.put(b"unknown")
    platform.injections_clear()
    calls = platform.call_counts()["sync"]
    with pytest.raises(rota.LogFailed):
        queue.put(b"refused")
    with pytest.raises((rota.LogFailed, rota.OutcomeUnknown)):
        repo.sync()
    assert platform.call_counts()["sync"] == calls, "a failed sync was tried again"
    link.send("failed")
    link.receive()
    repo.close()


def refused_everywhere(repo: rota.Repository, message: rota.Message, receipt: rota.Receipt) -> None:
    queue = repo.queue("q")
    for call in (
        lambda: queue.put(b"refused", durability="none"),
        lambda: queue.put_many([b"refused"]),
        lambda: queue.get(timeout=0),
        lambda: queue.get_many(1),
        message.ack,
        message.nack,
        lambda: repo.queue("new"),
        lambda: queue.kill(message.id),
    ):
        with pytest.raises(rota.LogFailed):
            call()
    if not receipt.durable:  # an idle moment may have synced it before
        with pytest.raises((rota.OutcomeUnknown, rota.LogFailed)):
            receipt.wait()
    with pytest.raises((rota.OutcomeUnknown, rota.LogFailed)):
        repo.sync()
    assert repo.stats().failed


def test_a_failed_sync_fails_all_processes_until_the_reopening(directory: pathlib.Path) -> None:
    """C27: nothing is called durable after it, no sync is tried again, the reopening waits for all to leave."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q").put_many([b"durable", b"held"])
    repo = rota.open(path, **OPTIONS)
    with Child(fails, path) as child:
        child.receive()
        message = repo.queue("q").get()
        receipt = repo.queue("q").put(b"visible", durability="none")
        child.send("now")
        assert child.receive() == "failed"
        refused_everywhere(repo, message, receipt)
        assert (path / "failed").exists()
        with pytest.raises((rota.InUse, rota.LogFailed), match=str(child.pid)):
            rota.open(path)
        child.send("close")
        child.finish()
        with pytest.raises((rota.InUse, rota.LogFailed)):
            rota.open(path)
    repo.close()
    with rota.open(path, **OPTIONS) as repo:
        assert not (path / "failed").exists()
        assert repo.recovery.performed
        queue = repo.queue("q")
        queue.put(b"works again")
        found = drain(queue)
        assert {b"durable", b"held", b"works again"} <= set(found)
        assert set(found) <= {b"durable", b"held", b"works again", b"visible", b"unknown"}
        assert b"refused" not in found
    assert [p.name for p in path.iterdir() if p.name.endswith(".failed")]


def test_who_waits_for_durability_hears_of_the_failure(directory: pathlib.Path) -> None:
    """Threads of another process that wait for the same sync get OutcomeUnknown, none of them waits for ever."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q")
    repo = rota.open(path, **OPTIONS)
    queue = repo.queue("q")
    with Child(leads_and_fails, path) as child:
        child.receive()
        heard: list[type[BaseException]] = []

        def wait() -> None:
            try:
                queue.put(b"x")
            except rota.RotaError as error:
                heard.append(type(error))

        threads = [threading.Thread(target=wait) for _ in range(8)]
        for thread in threads:
            thread.start()
        while repo.stats().messages < 9:
            pass
        child.send("fail")
        for thread in threads:
            thread.join(5)
        assert heard == [rota.OutcomeUnknown] * 8
        child.finish()
    repo.close()
    rota.open(path).close()


def leads_and_fails(link: Link, path: pathlib.Path) -> None:
    """Stand in the sync until told, then let it fail."""
    repo = rota.open(path, **OPTIONS)
    queue = repo.queue("q")
    queue.put(b"before")
    platform.arm("sync.before", "pause", 0)
    raised: list[BaseException] = []

    def put() -> None:
        try:
            queue.put(b"leads")
        except rota.OutcomeUnknown as error:
            raised.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    while not platform.paused():
        pass
    link.send("leading")
    link.receive()
    platform.inject("sync", 0, 5)
    platform.disarm("sync.before")
    thread.join()
    assert raised
    repo.close()


@pytest.mark.parametrize("point", ["failed.word", "failed.file"])
def test_death_while_the_failure_is_told(directory: pathlib.Path, point: str) -> None:
    """The mark may be missing, the word may be all there is: the survivors hear, and the next open reads the disk."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q").put(b"durable")
    repo = rota.open(path, **OPTIONS)
    with Child(dies_failing, path, point) as child:
        assert child.wait() == -signal.SIGKILL
    with pytest.raises(rota.LogFailed):
        repo.queue("q").put(b"refused")
    repo.close()
    with rota.open(path, **OPTIONS) as repo:
        assert drain(repo.queue("q"))[0] == b"durable"
        assert [p.name for p in path.iterdir() if p.name.endswith(".failed")]


def dies_failing(link: Link, path: pathlib.Path, point: str) -> None:
    repo = rota.open(path, **OPTIONS)
    queue = repo.queue("q")
    platform.arm(point, "kill")
    platform.inject("sync", 0, 5)
    queue.put(b"unknown")


@pytest.mark.parametrize("point", ["recovery.scanned", "recovery.synced", "recovery.epoch", "recovery.opened"])
def test_death_in_the_reopening_after_a_failure(directory: pathlib.Path, point: str) -> None:
    """The second crash: reading the disk may be repeated, with nothing lost of what was durable."""
    path = directory / "r"
    bodies = [b"%d" % i + b"." * 3000 for i in range(40)]
    with rota.open(path, **OPTIONS) as repo:
        for body in bodies:
            repo.queue("q").put(body)
    with Child(dies_failing, path, "failed.file") as child:
        assert child.wait() == -signal.SIGKILL
    for _ in range(2):
        with Child(dies_opening, path, point) as child:
            assert child.wait() == -signal.SIGKILL
    with rota.open(path, **OPTIONS) as repo:
        found = drain(repo.queue("q"))
        assert set(bodies) <= set(found) <= {*bodies, b"unknown"}
        repo.queue("q").put(b"again")
    with rota.open(path, **OPTIONS) as repo:
        assert drain(repo.queue("q")) == [b"again"]


def dies_opening(link: Link, path: pathlib.Path, point: str) -> None:
    platform.arm(point, "kill")
    rota.open(path)
