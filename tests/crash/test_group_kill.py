"""Per-key order under SIGKILL: processes die with messages in hand, in commits, in claims; order and counts hold."""

from __future__ import annotations

import contextlib
import pathlib
import random
import signal
import time
from collections import defaultdict
from typing import Any

import pytest

import rota
from rota._core import platform
from rota._core.index_check import index_lists
from tests.crash.kit import Child, Died, Link

SMALL: dict[str, Any] = {"capacity": "4 MiB", "durability": "none"}
GROUP: dict[str, Any] = {"order": "group", "indexes": ("n",), "max_attempts": None, "lease": 1e6}
PROCESSES, KEYS, MESSAGES = 8, 12, 480
POINTS = ["append.published", "append.applying", "append.applied", "claim.prepared", "claim.cursor", "claim.active"]


def counts_agree(queue: rota.Queue) -> None:
    """Counters are what a scan finds; every list is whole; of each key all but one wait.  What a dead one settled
    counts as claimed until somebody takes over."""
    states = ("ready", "delayed", "claimed", "parked", "waiting")
    deadline = time.monotonic() + 5
    figures = queue.figures()
    while sum(figures[state] for state in states) != figures["total"]:
        assert time.monotonic() < deadline, f"the counts contradict each other: {figures}"
        figures = queue.figures()
    ids = queue.ids(0, 1024)
    assert figures["total"] == len(ids)
    keys = [queue.read(id).key for id in ids]
    busy = len({key for key in keys if key is not None})
    assert figures["waiting"] == sum(key is not None for key in keys) - busy
    index_lists(queue)


def record(message: rota.Message) -> tuple[str, int]:
    return str(message.key), int(message.body)


def consumer(link: Link, path: pathlib.Path, failpoint: str, seed: int) -> None:
    """Take one or some, tell, commit each into "done" with its settlement; die somewhere."""
    random.seed(seed)
    repo = rota.open(path, **SMALL)
    queue, done = repo.queue("g"), repo.queue("done")
    platform.arm_from(failpoint)
    while True:
        batch = list(queue.get_many(random.choice((1, 1, 3)), timeout=0.05))
        if not batch and not len(queue):
            break
        for message in batch:
            _ = message.body
        for message in batch:
            if random.random() < 0.1:
                message.nack()
                continue
            with repo.transaction() as t:
                t.ack(message)
                t.put(done, message.body, key=message.key)
    repo.close()


def test_order_of_each_key_with_killed_consumers(directory: pathlib.Path, seed: int) -> None:
    """Commit order is the order of arrival for each key, and never are two of one key in flight: a message is only
    committed when all older ones of its key are."""
    random.seed(seed)
    path = directory / "r"
    with rota.open(path, **SMALL) as repo, contextlib.ExitStack() as stack:
        queue, done = repo.queue("g", **GROUP), repo.queue("done", max_attempts=None)
        sent: dict[str, list[int]] = defaultdict(list)
        for number in range(MESSAGES):
            key = f"k{random.randrange(KEYS)}"
            queue.put(b"%d" % number, key=key, headers={"n": number % 5})
            sent[key].append(number)
        counts_agree(queue)
        children: list[Child] = []
        deaths, deadline = 0, time.monotonic() + 60
        while len(queue):
            assert time.monotonic() < deadline, f"{queue!r} does not run empty"
            while len(children) < PROCESSES:
                point = f"{random.choice(POINTS)}=kill@{random.randrange(5, 60)}" if deaths < 40 else ""
                children.append(stack.enter_context(Child(consumer, path, point, random.randrange(2**32))))
            for child in list(children):
                with contextlib.suppress(TimeoutError):
                    if random.random() < 0.05 and deaths < 40:
                        child.signal(signal.SIGKILL)
                    deaths += child.wait(0.02) == -signal.SIGKILL
                    children.remove(child)
        for child in children:
            with contextlib.suppress(Died):
                child.receive(20)
            assert child.wait() in (0, -signal.SIGKILL)
        found: dict[str, list[int]] = defaultdict(list)
        while len(done):
            with done.get(timeout=5) as message:
                key, number = record(message)
                found[key].append(number)
        assert found == sent
        assert deaths > 8
        assert index_lists(queue) == []


def holder(link: Link, path: pathlib.Path, failpoint: str, action: str) -> None:
    repo = rota.open(path, **SMALL)
    queue, other = repo.queue("g"), repo.queue("other")
    link.send("open")
    platform.arm_from(failpoint)
    if action == "put":
        queue.put(b"100", key="a", headers={"n": 1})
    elif action == "put many":
        with repo.transaction() as t:
            t.put_many(queue, [b"%d" % i for i in range(100, 130)], keys=[f"k{i % 7}" for i in range(30)])
    elif action == "ack":
        queue.get(timeout=0).ack()
    elif action == "ack many":
        queue.get_many(10).ack()
    elif action == "nack":
        queue.get(timeout=0).nack()
    elif action == "kill":
        queue.kill(queue.ids()[0])
    elif action == "move":
        queue.redrive(queue.ids()[:2], other)
    elif action == "move back":
        other.redrive(other.ids(), queue)
    elif action == "choose":
        queue.get(timeout=0, where=rota.header("n") == 0)
    elif action == "choose and ack":
        queue.get(timeout=0, where=rota.key == "b").ack()


ACTIONS = ["put", "put many", "ack", "ack many", "nack", "kill", "move", "move back", "choose", "choose and ack"]
APPEND = [f"append.{step}" for step in ("admitted", "stamped", "copied", "published", "applying", "applied")]
CLAIM = ["claim.prepared", "claim.cursor", "claim.active"]
CLAIMING = {"ack", "ack many", "nack", "choose", "choose and ack"}


@pytest.mark.parametrize("beside", [True, False], ids=["beside a survivor", "alone"])
@pytest.mark.parametrize(
    ("action", "point"),
    [(a, p) for a in ACTIONS for p in APPEND if a != "choose"] + [(a, p) for a in sorted(CLAIMING) for p in CLAIM],
)
def test_killed_at_every_step(directory: pathlib.Path, action: str, point: str, beside: bool) -> None:
    """The change of index and order happened as a whole or not at all, and all goes on in order."""
    path = directory / "r"
    with rota.open(path, **SMALL) as repo:
        queue, other = repo.queue("g", **GROUP), repo.queue("other", indexes=("key",))
        for number in range(9):
            queue.put(b"%d" % number, key="aab"[number % 3], headers={"n": number % 2})
        queue.put(b"9")
        other.put(b"50", key="a")
        other.put(b"51", key="c", headers={"n": 1})
    with contextlib.ExitStack() as stack:
        survivor = stack.enter_context(rota.open(path, **SMALL)) if beside else None
        child = stack.enter_context(Child(holder, path, f"{point}=kill", action))
        assert child.receive() == "open"
        assert child.wait() == -signal.SIGKILL, f"{point} was not reached"
        repo = survivor if survivor is not None else stack.enter_context(rota.open(path, **SMALL))
        queue, other = repo.queue("g"), repo.queue("other")
        in_order(queue)
        index_lists(other)


def put_thousands(link: Link, path: pathlib.Path, failpoint: str) -> None:
    repo = rota.open(path, capacity="64 MiB", durability="none")
    platform.arm_from(failpoint)
    with repo.transaction() as t:
        t.put_many(repo.queue("g"), [b"%d" % i for i in range(5000)], keys=[f"k{i % 700}" for i in range(5000)])


@pytest.mark.parametrize("point", ["append.copied", "append.published", "append.applying"])
def test_a_large_commit_is_undone_or_done(directory: pathlib.Path, point: str) -> None:
    """Thousands of indexed messages in one section: who lives goes on, without a reopening."""
    with rota.open(directory / "r", capacity="64 MiB", durability="none") as repo:
        queue = repo.queue("g", **GROUP)
        with Child(put_thousands, directory / "r", f"{point}=kill") as child:
            assert child.wait() == -signal.SIGKILL
        queue.put(b"9999", key="k1")
        done = point != "append.copied"
        assert len(queue) == 5000 * done + 1
        assert queue.figures()["waiting"] == (4301 if done else 0)
        in_order(queue)


def in_order(queue: rota.Queue) -> None:
    """Take what is there, with counts checked after each round; each key ascends but for what was moved in."""
    last: dict[Any, int] = {}
    deadline = time.monotonic() + 20
    while len(queue):
        assert time.monotonic() < deadline, f"{queue!r} does not run empty"
        batch = queue.get_many(1000, timeout=0.2)
        keys = [message.key for message in batch if message.key is not None]
        assert len(keys) == len(set(keys)), "two of one key in flight"
        for message in batch:
            if message.key is not None:
                number = int(message.body)
                assert number > last.get(message.key, -1)
                last[message.key] = number
        batch.ack()
        if len(queue) < 1000:
            counts_agree(queue)
    assert queue.stats().claimed == queue.stats().waiting == 0
