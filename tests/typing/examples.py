"""Uses of the public names as a checker must see them. This file is checked, never run.

A line marked `type: ignore` is a use that must be refused: strict mode reports the mark when it is not.
"""

from __future__ import annotations

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


def many_at_a_time(queue: rota.Queue) -> None:
    receipt = queue.put_many([b"a", bytearray(b"b"), memoryview(b"c")])
    assert_type(receipt.ids, range)
    batch = queue.get_many(1000, timeout=0)
    assert_type(batch, rota.Batch)
    assert_type(batch.bodies, list[bytes])
    assert_type([message.id for message in batch], list[int])
    assert_type(len(batch), int)
    batch.ack()
    queue.put_array(np.zeros(10, dtype="S100"))


def in_one_commit(repo: rota.Repository, source: rota.Queue, target: rota.Queue) -> None:
    with repo.transaction() as transaction:
        message = transaction.get(source)
        assert_type(message, rota.Message)
        transaction.put(target, message.body)


def opened() -> None:
    with rota.open("requests", create=True, capacity="4 GiB", durability="interval") as repo:
        assert_type(repo, rota.Repository)
    rota.open("requests", durability="sometimes")  # type: ignore[arg-type]


def refused(queue: rota.Queue) -> None:
    queue.put("text is not bytes")  # type: ignore[arg-type]
    queue.put(b"body", priority="high")  # type: ignore[arg-type]
    try:
        queue.get_nowait()
    except rota.Empty as empty:
        assert_type(empty, rota.Empty)
    except rota.RotaError as error:
        assert_type(error, rota.RotaError)
