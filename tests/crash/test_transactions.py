"""Histories of transactions: money between queues, moved by processes that are killed; none is lost or made."""

from __future__ import annotations

import os
import pathlib
import random
from typing import Any

import pytest

import rota
from rota._core import platform
from tests.crash.kit import Child, Link

OPTIONS: dict[str, Any] = {"capacity": "2 MiB", "durability": "none"}
ACCOUNTS = [f"account-{i}" for i in range(4)]
COINS = 60
POINTS = [
    *("append.admitted", "append.stamped", "append.copied", "append.published", "append.applying", "append.applied"),
    *("claim.prepared", "claim.cursor", "claim.active", "lock.acquired"),
]


def move(link: Link, path: pathlib.Path, seed: int, rounds: int, failpoints: str) -> None:
    """Move coins: take some from one account, split or join them, put the same sum into others."""
    draw = random.Random(seed)
    platform.arm_from(failpoints)
    with rota.open(path, **OPTIONS) as repo:
        accounts = [repo.queue(name, max_attempts=None) for name in ACCOUNTS]
        for _ in range(rounds):
            source, one, other = draw.choice(accounts), draw.choice(accounts), draw.choice(accounts)
            t = repo.transaction()
            try:
                total = int(t.get(source).body)
                if draw.random() < 0.5:
                    total += int(t.get(other).body)
            except rota.Empty:
                t.rollback()
                continue
            part = draw.randint(0, total)
            with t.savepoint() as point:
                t.put(one, b"%d" % total)
                t.get(one)
                point.rollback()
            t.put(one, b"%d" % part, priority=draw.choice([0, 0, 9]))
            if part < total:
                t.put(other, b"%d" % (total - part))
            if draw.random() < 0.2:
                t.rollback(excused=draw.random() < 0.5)
            else:
                t.commit()
            link.send("moved")


def total(repo: rota.Repository) -> int:
    """All the money, which comes back from the dead first."""
    found = 0
    for name in ACCOUNTS:
        queue = repo.queue(name)
        while len(queue):
            with queue.get(timeout=10) as message:
                found += int(message.body)
    return found


def prepared(path: pathlib.Path) -> None:
    with rota.open(path, **OPTIONS) as repo:
        for name in ACCOUNTS:
            repo.queue(name, max_attempts=None).put_many([b"10"] * (COINS // len(ACCOUNTS)))


@pytest.mark.parametrize("killed", range(4))
def test_no_money_is_lost_or_made(directory: pathlib.Path, seed: int, killed: int) -> None:
    """Four processes move, some are killed at any moment; those who live go on beside the dead."""
    path = directory / "r"
    prepared(path)
    draw = random.Random(seed + killed)
    with (
        Child(move, path, draw.random(), 200, "") as a,
        Child(move, path, draw.random(), 200, "") as b,
        Child(move, path, draw.random(), 10**9, "") as c,
        Child(move, path, draw.random(), 10**9, "") as d,
    ):
        for victim in (c, d):
            for _ in range(draw.randint(1, 60)):
                victim.receive()
            victim.kill()
        a.finish()
        b.finish()
    with rota.open(path, **OPTIONS) as repo:
        assert total(repo) == 10 * COINS
        assert all(repo.queue(name).stats().claimed == 0 for name in ACCOUNTS)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("nth", [1, 7, 40])
def test_killed_inside_of_a_transaction(directory: pathlib.Path, seed: int, point: str, nth: int) -> None:
    path = directory / "r"
    prepared(path)
    with Child(move, path, seed, 10**9, f"{point}=kill@{nth}") as child:
        assert child.wait() == -9, f"{point} was not reached"
    with rota.open(path, **OPTIONS) as repo:
        assert total(repo) == 10 * COINS


def hold(link: Link, path: pathlib.Path) -> None:
    """Die with an open transaction of three messages: one shown by get, two in a batch that was not looked at."""
    repo = rota.open(path, **OPTIONS)
    queue = repo.queue("q")
    t = repo.transaction()
    t.get(queue)
    t.get_many(queue, 2)
    t.put(queue, b"never seen")
    os.kill(os.getpid(), 9)


@pytest.mark.parametrize("beside", [True, False], ids=["beside a survivor", "alone"])
def test_a_transaction_whose_process_dies_is_as_any_claim(directory: pathlib.Path, beside: bool) -> None:
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q").put_many([b"0", b"1", b"2"])
    survivor = rota.open(path, **OPTIONS) if beside else None
    with Child(hold, path) as child:
        assert child.wait() == -9
    repo = survivor or rota.open(path, **OPTIONS)
    with repo:
        queue = repo.queue("q")
        found = [queue.get(timeout=10) for _ in range(3)]
        assert [(message.body, message.attempts) for message in found] == [(b"0", 2), (b"1", 1), (b"2", 1)]
        assert len(queue) == 3


def test_transactions_of_different_messages_do_not_wait(directory: pathlib.Path) -> None:
    """And write skew is possible: each looks at what the other changes."""
    with rota.open(directory / "r", **OPTIONS) as repo:
        queue, log = repo.queue("on call"), repo.queue("log")
        queue.put_many([b"anna", b"berta"])
        first, second = repo.transaction(), repo.transaction()
        for t in (first, second):
            assert len(queue) == 2
            t.put(log, t.get(queue, timeout=0).body)
        with repo.transaction() as third, pytest.raises(rota.Empty):
            third.get(queue, timeout=0)  # both are held
        second.commit()
        first.commit()
        assert len(queue) == 0
        assert [m.body for m in log.get_many(2)] == [b"berta", b"anna"]  # visible in the order of the commits
