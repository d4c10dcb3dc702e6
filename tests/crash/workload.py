"""A bit of everything, told to a ledger: what a process does until it is killed somewhere inside."""

from __future__ import annotations

import pathlib
from typing import Any

import rota
from rota._core import platform
from tests.crash.kit import Link, announced

SMALL: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}
OPTIONS: dict[str, Any] = {"max_attempts": None}


def one_round(link: Link, queue: rota.Queue, prefix: bytes, size: int = 40) -> None:
    """Every kind of operation once; bodies begin with the prefix and are unique."""
    pad = b"." * size
    repo = queue.repository

    with announced(link, adds=[prefix + b"one" + pad]):
        queue.put(prefix + b"one" + pad)
    many = [prefix + b"many%d" % i + pad for i in range(6)]
    with announced(link, adds=many):
        queue.put_many(many)
    with announced(link, adds=[prefix + b"key" + pad]):
        queue.put(prefix + b"key" + pad, key="k", headers={"n": 1}, priority=7)
    message = queue.get(timeout=0)
    with announced(link, removes=[message.body]):
        message.ack()
    queue.get(timeout=0).nack()
    queue.get(timeout=0).release()
    queue.get_many(2).release()
    batch = queue.get_many(2)
    with announced(link, removes=batch.bodies):
        batch.ack(durability="sync")
    with repo.transaction() as t:
        removed = t.get(queue).body
        added = [prefix + b"answer%d" % i + pad for i in range(2)]
        for body in added:
            t.put(queue, body)
        link.send(("begin", [removed], added))
    link.send(("end",))
    batch = queue.get_many(3)
    first = batch[0]
    with announced(link, removes=[first.body]):
        first.ack()
    batch.release()
    message = queue.peek()
    with announced(link, removes=[message.body]):
        queue.kill(message.id)


def work(link: Link, path: pathlib.Path, failpoints: str, rounds: int, size: int = 40) -> None:
    """Open, work, close, with failpoints armed; tells at the end which of them were hit."""
    platform.arm_from(failpoints)
    repo = rota.open(path, **SMALL)
    queue = repo.queue("q", **OPTIONS)
    link.send(("ready",))
    for number in range(rounds):
        one_round(link, queue, b"%d-%d-" % (number, len(failpoints)), size)
    repo.close()
    link.send(("hits", platform.hits()))
