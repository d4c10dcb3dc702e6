"""Figures tell what happened, however it happened, since the first process opened the repository."""

from __future__ import annotations

import pathlib
from typing import Any

import rota
from tests.unit.test_service_syncs import eventually

SMALL: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}


def counts(queue: rota.Queue) -> dict[str, int]:
    figures = queue.stats()
    names = ("puts", "gets", "acks", "nacks", "killed", "expired", "moved", "total")
    return {name: getattr(figures, name) for name in names if getattr(figures, name)}


def test_every_way_to_settle_is_counted(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q", max_attempts=2)
        queue.put_many([b"x"] * 20)
        queue.get().ack()
        queue.get_many(3).ack()
        queue.ack([queue.get(), queue.get()])
        with repo.transaction() as transaction:
            transaction.get(queue)
            transaction.get_many(queue, 2)
        assert counts(queue) == {"puts": 20, "gets": 9, "acks": 9, "total": 11}
        queue.kill(queue.put(b"y").id)
        queue.get().nack()
        queue.get().nack()
        assert counts(queue) == {"puts": 21, "gets": 11, "acks": 9, "nacks": 2, "killed": 1, "moved": 1, "total": 10}
        assert counts(repo.queue("q.errors")) == {"puts": 1, "total": 1}
        queue.put(b"z", ttl=0.001)
        eventually(lambda: queue.stats().expired == 1)
        assert queue.purge() == 10
        assert (queue.stats().acks, queue.stats().total) == (19, 0)
        assert repo.stats().messages == len(repo.queue("q.errors")) == 2


def test_figures_begin_with_the_first_open(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q")
        queue.put_many([b"x" * 10] * 5)
        queue.get_many(2).ack()
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q")
        assert counts(queue) == {"total": 3}
        assert queue.stats().bytes == 0
        assert repo.stats().messages == repo.recovery.messages == 3
        with rota.open(directory / "r", **SMALL) as other:
            other.queue("q").put(b"y" * 7)
        assert counts(queue) == {"puts": 1, "total": 4}
        assert 7 <= queue.stats().bytes <= 64


def test_what_cannot_be_copied_is_counted(directory: pathlib.Path) -> None:
    """Making room passes over a damaged message; the statistics tell that there is one."""
    body = b"a body that is nowhere else in the files"
    with rota.open(directory / "r", **SMALL) as repo:
        queue, churn = repo.queue("q"), repo.queue("churn")
        queue.put(body)
        segment = next(path for path in sorted((directory / "r").glob("seg.*")) if body in path.read_bytes())
        with segment.open("r+b") as file:
            file.seek(segment.read_bytes().index(body))
            file.write(b"A")
        assert repo.stats().unreadable == 0
        for number in range(20_000):
            churn.put(b"x" * 500)
            message = churn.get()
            if number % 90 == 0:
                message.release(delay=3600.0)
            else:
                message.ack()
            if repo.stats().unreadable:
                break
        assert repo.stats().unreadable == 1
