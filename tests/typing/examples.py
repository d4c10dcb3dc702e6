"""Uses of the public names as a checker must see them. This file is checked, never run.

A line marked `type: ignore` is a use that must be refused: strict mode reports the mark when it is not.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import assert_type

import numpy as np

import rota


def one_at_a_time(repo: rota.Repository) -> None:
    queue = repo.queue("orders", max_attempts=5, error_queue="orders.errors", lease=30.0)
    assert_type(queue, rota.Queue)
    receipt = queue.put(b"body", key="k", headers={"amount": 3}, priority=1, delay=0.5, ttl=60.0)
    assert_type(receipt, rota.Receipt)
    assert_type(receipt.id, int)
    message = queue.get(timeout=1.0)
    assert_type(message, rota.Message)
    assert_type(message.body, bytes)
    assert_type(message.attempts, int)
    assert_type(message.enqueued_at, float)
    message.extend(30)
    message.nack(delay=1.0, reason="busy")
    with queue.get() as held:
        assert_type(held, rota.Message)
    assert_type(message.key, bytes | str | None)
    assert_type(message.headers, dict[str, bytes | str | int | float | bool])
    assert_type(queue.kill(message.id), bool)


def any_buffer(queue: rota.Queue, mapped: mmap.mmap) -> None:
    queue.put(bytearray(b"body"))
    queue.put(memoryview(b"body"))
    queue.put(mapped)


def waited_for(queue: rota.Queue) -> None:
    receipt = queue.put(b"body", durability="interval")
    assert_type(receipt.durable, bool)
    assert_type(receipt.wait(timeout=1.0), bool)


def many_at_a_time(queue: rota.Queue) -> None:
    receipt = queue.put_many([b"a", bytearray(b"b"), memoryview(b"c")])
    assert_type(receipt.ids, range)
    batch = queue.get_many(1000, timeout=0)
    assert_type(batch, rota.Batch)
    assert_type(batch.bodies, list[bytes])
    assert_type([message.id for message in batch], list[int])
    assert_type(len(batch), int)
    assert_type(batch[0], rota.Message)
    assert_type(batch[:2], list[rota.Message])
    with queue.get_many(10, durable_only=True) as held:
        assert_type(held, rota.Batch)
    batch.ack()
    queue.ack([queue.get(), queue.get()])
    queue.put_array(np.zeros(10, dtype="S100"))
    queue.put_many([b"a"], compression="lz4")
    queue.put_many([b"a"], compression="zip")  # type: ignore[arg-type]


def in_one_commit(repo: rota.Repository, source: rota.Queue, target: rota.Queue) -> None:
    with repo.transaction() as transaction:
        message = transaction.get(source)
        assert_type(message, rota.Message)
        pending = transaction.put(target, message.body)
        assert_type(pending, rota.PendingReceipt)
        assert_type(pending.id, int | None)
        transaction.tag(source.register("teller-7"), b"42")
    assert_type(transaction.receipt, rota.Receipt | None)
    last = source.register("teller-7").last
    assert_type(last, rota.LastOperation | None)


def looked_at(repo: rota.Repository, queue: rota.Queue) -> None:
    assert_type(repo.queues(), list[str])
    assert_type(repo.recovery, rota.Recovery)
    assert_type(repo.stats(), rota.RepositoryStatistics)
    assert_type(queue.stats(), rota.QueueStatistics)
    assert_type(queue.stats().oldest_at, float | None)
    assert_type(queue.browse(), Iterator[rota.Message])
    assert_type(queue.ids(after=7, limit=10), list[int])
    assert_type(queue.qsize(), int)
    assert_type(queue.redrive([1, 2]), int)


def opened() -> None:
    with rota.open("requests", create=True, capacity="4 GiB", durability="interval") as repo:
        assert_type(repo, rota.Repository)
    rota.open("requests", durability="sometimes")  # type: ignore[arg-type]


def passed_on(path: str, level: rota.Durability) -> rota.Repository:
    return rota.open(path, durability=level)


def options(repo: rota.Repository) -> None:
    queue = repo.queue("orders", order="strict", max_messages=None, volatile=True)
    queue.configure(lease=10.0)
    queue.configure(volatile=False)  # type: ignore[call-arg]
    repo.queue("orders", order="sideways")  # type: ignore[arg-type]
    repo.queue("orders", max_atempts=3)  # type: ignore[call-arg]


def refused(queue: rota.Queue) -> None:
    queue.put("text is not bytes")  # type: ignore[arg-type]
    queue.put(b"body", priority="high")  # type: ignore[arg-type]
    queue.put(b"body", headers={"amount": None})  # type: ignore[dict-item]
    queue.put(b"body", durability="always")  # type: ignore[arg-type]
    queue.put_many(["text"])  # type: ignore[list-item]
    queue.ack([1, 2])  # type: ignore[list-item]
    try:
        queue.get_nowait()
    except rota.Empty as empty:
        assert_type(empty, rota.Empty)
    except rota.RotaError as error:
        assert_type(error, rota.RotaError)
        assert_type(error.code, str)
        assert_type(error.offset, int | None)


class Derived(rota.Queue):  # type: ignore[misc]
    pass
