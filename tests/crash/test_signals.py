"""Ctrl-C in every wait: answered within 100 ms, and nothing is lost."""

from __future__ import annotations

import pathlib
import signal
import threading
import time
from typing import Any

import pytest

import rota
from rota._core import platform
from tests.crash.kit import PATIENCE_S, Child, Link, drain

OPTIONS: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}
SYSCALL_FUTEX = {"202", "98"}  # x86-64, arm64
SYSCALL_SLEEP = {"35", "230", "101", "115"}  # nanosleep and clock_nanosleep of both


def wait_in(link: Link, path: pathlib.Path, where: str) -> None:
    """Wait until a signal ends it; tell when that was."""
    repo = rota.open(path, **OPTIONS)
    queue, bounded = repo.queue("q"), repo.queue("bounded", max_messages=1)
    receipt = queue.put(b"mine", durability="none") if where in ("durable", "sync") else None
    link.send("waiting")
    try:
        if where == "get":
            repo.queue("empty").get()
        elif where == "get_many":
            repo.queue("empty").get_many(5, timeout=None)
        elif where == "transaction":
            repo.transaction().get(repo.queue("empty"), timeout=None)
        elif where == "full":
            bounded.put(b"too much")
        elif where == "full log":
            while True:
                queue.put(b"x" * 10_000)
        elif where == "durable":
            assert receipt is not None
            receipt.wait()
        elif where == "sync":
            repo.sync()
        elif where == "lock":
            queue.put(b"never")
    except KeyboardInterrupt:
        link.send(time.monotonic())
    with pytest.raises(rota.Empty):
        repo.queue("empty").get(timeout=0)
    repo.close()


def is_waiting(pid: int) -> bool:
    """Whether the main thread sleeps, on a futex or between two looks at a lock of a file."""
    return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] in SYSCALL_FUTEX | SYSCALL_SLEEP


def interrupt(child: Child) -> None:
    """SIGINT, once it waits; fails when the answer takes longer than 100 ms (and what a busy machine adds)."""
    assert child.receive() == "waiting"
    deadline = time.monotonic() + PATIENCE_S
    while not is_waiting(child.pid):
        assert time.monotonic() < deadline
    begun = time.monotonic()
    child.signal(signal.SIGINT)
    assert child.receive() - begun < 0.1 + 0.05


@pytest.mark.parametrize("where", ["get", "get_many", "transaction", "full", "full log"])
def test_ctrl_c_ends_a_wait(directory: pathlib.Path, where: str) -> None:
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("bounded", max_messages=1).put(b"one")
        repo.queue("q").put(b"kept")
        repo.queue("empty")
        with Child(wait_in, path, where) as child:
            interrupt(child)
            child.finish()
        assert drain(repo.queue("bounded")) == [b"one"]
        assert drain(repo.queue("q"))[0] == b"kept"


@pytest.mark.parametrize("where", ["durable", "sync"])
def test_ctrl_c_ends_the_wait_for_a_sync_of_another(directory: pathlib.Path, where: str) -> None:
    """The leader hangs in its sync; who waits for it can be interrupted, and the message is there."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q")
        repo.queue("empty")
        repo.queue("bounded", max_messages=1)
        platform.arm("sync.file", "pause", 0)
        try:
            queue.put(b"first")
            leader = threading.Thread(target=repo.sync)
            leader.start()
            while not platform.paused():
                pass
            with Child(wait_in, path, where) as child:
                interrupt(child)
                platform.disarm("sync.file")
                leader.join()
                child.finish()
        finally:
            platform.disarm("sync.file")
        assert sorted(drain(queue)) == [b"first", b"mine"]


def test_ctrl_c_ends_the_wait_for_a_lock(directory: pathlib.Path) -> None:
    """C39: a holder that is stopped is not robbed; who waits can be interrupted, and gets an error with its name."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q")
        with Child(stops_with_the_lock, path) as holder:
            assert holder.receive() == "open"
            with Child(wait_in_later, path) as child:
                assert child.receive() == "open"
                holder.send("stop now")
                while pathlib.Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                    pass
                child.send("go")
                interrupt(child)
                with pytest.raises(rota.LockHeld, match=str(holder.pid)):
                    queue.put(b"refused")
                holder.kill()
                queue.put(b"after")
                child.finish()
        assert drain(queue) == [b"after"]


def stops_with_the_lock(link: Link, path: pathlib.Path) -> None:
    repo = rota.open(path, **OPTIONS)
    queue = repo.queue("q")
    link.send("open")
    link.receive()
    platform.arm("append.copied", "stop")
    queue.put(b"half")


def wait_in_later(link: Link, path: pathlib.Path) -> None:
    repo = rota.open(path, **OPTIONS)
    queue = repo.queue("q")
    link.send("open")
    link.receive()
    link.send("waiting")
    try:
        queue.put(b"never")
    except KeyboardInterrupt:
        link.send(time.monotonic())


def stops_inside(link: Link, path: pathlib.Path, place: str) -> None:
    """Stop at a place of the engine, with the lock that guards it; `link` says when to go there."""
    repo = rota.open(path, **OPTIONS) if place != "attach.gate" else None
    link.send("open")
    link.receive()
    platform.arm(place, "stop")
    queue = rota.open(path, **OPTIONS).queue("q") if repo is None else repo.queue("q")
    while True:
        queue.put(b"x" * 10_000)
        queue.get().ack()


def is_stopped(pid: int) -> bool:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def waits_behind(link: Link, path: pathlib.Path, how: str) -> None:
    """Do something that needs what the stopped one holds."""
    repo = rota.open(path, **OPTIONS) if how != "open" else None
    link.send("open")
    link.receive()
    link.send("waiting")
    try:
        if how == "open":
            rota.open(path, **OPTIONS)
        elif how == "close":
            assert repo is not None
            repo.close()
        else:
            assert repo is not None
            call(repo.queue("q"), how)
    except KeyboardInterrupt:
        link.send(time.monotonic())
    if repo is not None:
        assert not repo.closed


def call(queue: rota.Queue, how: str) -> None:
    if how == "put":
        while True:
            queue.put(b"x" * 10_000)
    elif how == "read":
        queue.read(1)
    elif how == "ids":
        queue.ids()
    elif how == "sync":
        queue.repository.sync()


@pytest.mark.parametrize(
    ("place", "how"),
    [
        ("checkpoint.begin", "put"),
        ("segment.zeroed", "put"),
        ("append.copied", "read"),
        ("append.copied", "ids"),
        ("append.copied", "sync"),
        ("attach.gate", "open"),
        ("attach.gate", "close"),
    ],
)
def test_ctrl_c_ends_the_wait_for_one_who_is_stopped(directory: pathlib.Path, place: str, how: str) -> None:
    """In the job of making room, while growing the files, with the lock, behind the gate: nobody waits deaf."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q").put(b"kept")
        with Child(stops_inside, path, place) as holder, Child(waits_behind, path, how) as child:
            assert (holder.receive(), child.receive()) == ("open", "open")
            holder.send("go")
            deadline = time.monotonic() + PATIENCE_S
            while not is_stopped(holder.pid):
                assert time.monotonic() < deadline
            child.send("go")
            interrupt(child)
            holder.kill()
            child.finish()


def interrupted_getter(link: Link, path: pathlib.Path) -> None:
    """Ack what comes; a signal at any moment of a get or an ack is survived."""
    inside = False

    def handler(number: int, frame: object) -> None:
        nonlocal inside
        if inside:
            inside = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handler)
    repo = rota.open(path, **OPTIONS)
    queue = repo.queue("q")
    done: list[bytes] = []
    link.send("ready")
    while b"end" not in done:
        try:
            inside = True
            message = queue.get(timeout=10)
            message.ack()
            done.append(message.body)
        except (KeyboardInterrupt, rota.LeaseLost):
            continue
        finally:
            inside = False
    link.send(done)
    repo.close()


def test_signals_at_any_moment_lose_nothing(directory: pathlib.Path) -> None:
    """Some acks are cut off after they happened, some messages are left claimed: none is lost, none comes twice."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q", lease=0.3, max_attempts=None)
        with Child(interrupted_getter, path) as child:
            child.receive()
            for number in range(300):
                queue.put(b"%d" % number)
                if number % 3 == 0:
                    child.signal(signal.SIGINT)
            queue.put(b"end")
            done = child.receive()
            child.finish()
        left = drain(queue)
        assert len(done) == len(set(done))
        assert not set(done) & set(left)
        assert len(set(done) | set(left)) >= 301 - 100
