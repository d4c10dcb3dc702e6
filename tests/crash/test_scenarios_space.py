"""F12 to F15: full repositories, old messages, expiry; see test_scenarios.py for the others."""

from __future__ import annotations

import itertools
import pathlib
from typing import Any

import pytest

import rota
from rota._core import platform
from tests.crash.kit import drain

OPTIONS: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}
DAY_NS = 86_400 * 10**9
REAP_POINTS = ("reap.verdict", "reap.committed", "reap.freed")


def churn(queue: rota.Queue, total: int, size: int = 2000) -> None:
    """Put and ack so many bytes."""
    for number in range(total // size):
        queue.put(b"%08d" % number + b"c" * size)
        queue.get(timeout=0).ack()


def fill(queue: rota.Queue) -> int:
    """Put until there is no room; how many there were."""
    for count in itertools.count():
        try:
            queue.put(b"f" * 3000, timeout=0)
        except rota.Full:
            return count
    raise AssertionError


def test_f12_a_full_repository_can_be_worked_off(directory: pathlib.Path) -> None:
    """Puts are refused; nacks, kills, moves, answers and acks go on, down to nothing, and puts work again."""
    with rota.open(directory / "r", **OPTIONS) as repo:
        queue = repo.queue("q", max_attempts=2)
        answers = repo.queue("answers")
        for _ in range(3):
            assert fill(queue) > 50
            for _ in range(10):
                queue.get(timeout=0).nack()
                queue.get(timeout=0).release(delay=0.001)
                queue.kill(queue.peek().id)
                with repo.transaction() as t:
                    t.get(queue, timeout=1)
                    t.put(answers, b"small")
            while len(queue):
                queue.get(timeout=1).ack()
            drain(repo.queue("q.errors"))
            drain(answers)


def test_f13_one_old_message_does_not_stop_the_ring(directory: pathlib.Path) -> None:
    """C33: it is carried along while many times the capacity passes, and comes out whole."""
    with rota.open(directory / "r", **OPTIONS) as repo:
        queue, old = repo.queue("q"), repo.queue("old")
        old.put(b"old" * 100, key="k", headers={"n": 1})
        held = repo.queue("held")
        held.put(b"held" * 100)
        message = held.get()
        churn(queue, 12 << 20, 5000)
        assert message.body == b"held" * 100
        message.ack()
        found = old.get(timeout=0)
        assert (found.body, found.key, found.headers, found.attempts) == (b"old" * 100, "k", {"n": 1}, 1)


def test_f15_what_expired_stays_expired(directory: pathlib.Path) -> None:
    """Expiry and delayed returns are in the log: a clock set back revives nothing, and an unread queue pins nothing."""
    path = directory / "r"
    try:
        with rota.open(path, **OPTIONS) as repo:
            plain = repo.queue("plain", max_attempts=None)
            plain.put_many([b"stays"])
            plain.put(b"expires", ttl=100)
            late = repo.queue("late")
            late.put(b"late", delay=100)
            platform.shift_clock(wall_ns=DAY_NS)
            assert plain.get(timeout=0).body == b"stays"
            with pytest.raises(rota.Empty):
                plain.get(timeout=0)
            late.get(timeout=0).nack(delay=100)
            platform.shift_clock(wall_ns=0)
            with pytest.raises(rota.Empty):
                plain.get(timeout=0)
            assert len(plain) == 1
        with rota.open(path, **OPTIONS) as repo:
            assert len(repo.queue("plain")) == 1
            with pytest.raises(rota.Empty):
                repo.queue("late").get(timeout=0)
            platform.shift_clock(wall_ns=DAY_NS + 200 * 10**9)
            assert repo.queue("late").get(timeout=0).attempts == 2
            unread = repo.queue("unread", max_attempts=None)
            for day in range(2, 42):
                for _ in range(8):
                    unread.put(b"u" * 8000, ttl=1)
                platform.shift_clock(wall_ns=day * DAY_NS)
                with pytest.raises(rota.Empty):
                    unread.get(timeout=0.01)
    finally:
        platform.shift_clock()
