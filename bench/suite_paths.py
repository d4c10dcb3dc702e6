"""The hot paths for pytest-benchmark: `pytest bench/suite_paths.py --benchmark-enable`."""

from __future__ import annotations

import pathlib
import queue as standard
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import rota
from bench.measure import bodies_of, drain

BATCH = 1000


@pytest.fixture
def queue(tmp_path: pathlib.Path) -> Iterator[rota.Queue]:
    with rota.open(tmp_path / "log", capacity="1 GiB", durability="none") as repo:
        yield repo.queue("bench")


def test_simple_queue_put(benchmark: Any) -> None:
    memory: standard.SimpleQueue[bytes] = standard.SimpleQueue()
    benchmark.pedantic(memory.put, (b"x" * 100,), rounds=20, iterations=1000)


def test_put(benchmark: Any, queue: rota.Queue) -> None:
    benchmark.pedantic(queue.put, (b"x" * 100,), rounds=20, iterations=1000)


def test_put_many(benchmark: Any, queue: rota.Queue) -> None:
    benchmark.pedantic(queue.put_many, (bodies_of(BATCH),), rounds=50)
    assert len(queue) >= BATCH


def test_put_array(benchmark: Any, queue: rota.Queue) -> None:
    benchmark.pedantic(queue.put_array, (numpy.zeros((BATCH, 100), numpy.uint8),), rounds=50)
    assert len(queue) >= BATCH


def test_get_many(benchmark: Any, queue: rota.Queue) -> None:
    bodies = bodies_of(BATCH)

    def take() -> list[bytes]:
        batch = queue.get_many(BATCH)
        found: list[bytes] = batch.bodies
        batch.ack()
        return found

    assert benchmark.pedantic(take, setup=lambda: queue.put_many(bodies) and None, rounds=50) == bodies


def test_get_and_ack(benchmark: Any, queue: rota.Queue) -> None:
    queue.put_many(bodies_of(BATCH))
    benchmark.pedantic(lambda: queue.get().ack(), rounds=20, iterations=40)
    drain(queue)
    assert queue.empty()
