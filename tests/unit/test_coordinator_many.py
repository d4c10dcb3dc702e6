"""Calls of a coordinator on arrays: the same answers as one by one, all or nothing when there is no room."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rota
from rota import Action, Turn

ACCEPT, BLOCK, DECLINE = int(Action.ACCEPT), int(Action.BLOCK), int(Action.DECLINE)


def other(work: object, *arguments: object) -> object:
    """Do it in another thread, now."""
    assert callable(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *arguments).result(20)


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u8", "i8", "S3", ">i4"])
def test_elements_are_the_keys_of_their_values(dtype: str) -> None:
    coordinator = rota.Coordinator()
    array = np.array([b"a", b"bc", b"def"] if dtype == "S3" else [1, 5, 100], dtype)
    assert (coordinator.enqueue_many(array) == ACCEPT).all()
    assert all(coordinator.dequeue(key) for key in array.tolist())
    for key in array.tolist():
        coordinator.enqueue(key)
    assert coordinator.dequeue_many(array[::-1]).tolist() == [True] * 3
    assert coordinator.dequeue_many(array).tolist() == [False] * 3


def test_large_numbers_and_records() -> None:
    coordinator = rota.Coordinator()
    coordinator.enqueue_many(np.array([2**64 - 1, 2**63, 3], np.uint64))
    coordinator.enqueue_many(np.array([-1, -(2**63)], np.int64))
    coordinator.enqueue_many(np.array([(1, 2)], [("x", "<i2"), ("y", "<i2")]))
    assert [coordinator.dequeue(key) for key in (2**64 - 1, 2**63, 3, -1, -(2**63), b"\1\0\2\0")] == [True] * 6


def test_other_arrays_are_refused() -> None:
    coordinator = rota.Coordinator()
    for wrong in (np.array([1.5]), np.array(["text"]), np.array([None]), np.array([True])):
        with pytest.raises(TypeError, match="integers or of bytes"):
            coordinator.enqueue_many(wrong)
    with pytest.raises(ValueError, match="one dimension"):
        coordinator.dequeue_many(np.zeros((2, 2), int))
    assert coordinator.enqueue_many(np.zeros(0, int)).shape == (0,)


def test_repeats_are_declined_and_the_first_is_accepted() -> None:
    coordinator = rota.Coordinator(capacity=10_000)
    keys = np.tile(np.arange(5000), 4)
    answers = coordinator.enqueue_many(keys)
    assert (answers[:5000] == ACCEPT).all()
    assert (answers[5000:] == DECLINE).all()
    done = coordinator.dequeue_many(keys)
    assert done[:5000].all()
    assert not done[5000:].any()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 20), max_size=30)), max_size=20))
def test_arrays_answer_as_single_calls_do(calls: list[tuple[bool, list[int]]]) -> None:
    many = rota.Coordinator()
    held: set[int] = set()
    for enqueues, keys in calls:
        array = np.array(keys, np.int64)
        for key, answer in zip(
            keys, (many.enqueue_many if enqueues else many.dequeue_many)(array).tolist(), strict=True
        ):
            assert bool(answer) == ((key in held) != enqueues)
            (held.add if enqueues else held.discard)(key)
        assert many.stats().live == len(held)


def test_without_room_for_all_nothing_was_enqueued() -> None:
    coordinator = rota.Coordinator(capacity=20_000)
    mine = np.arange(100)
    other(coordinator.enqueue_many, np.arange(50, 60))
    coordinator.enqueue_many(mine[:10])
    with pytest.raises(rota.Full, match="of 40000"):
        coordinator.enqueue_many(np.arange(40_000))
    assert coordinator.stats().live == 20
    assert coordinator.enqueue_many(mine)[45:65].tolist() == [ACCEPT] * 5 + [BLOCK] * 10 + [ACCEPT] * 5


def test_many_waits_share_one_clock_and_are_woken_by_one_call() -> None:
    coordinator = rota.Coordinator(timeout=None)
    keys = np.arange(9000)
    coordinator.enqueue_many(keys[1:])
    blocked = threading.Event()

    def second() -> tuple[object, object]:
        answers = coordinator.enqueue_many(keys)
        blocked.set()
        turns = coordinator.wait_many(keys)
        return answers.tolist(), turns.tolist()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second)
        assert blocked.wait(20)
        assert coordinator.dequeue_many(keys).sum() == 8999
        answers, turns = waiting.result(20)
    assert answers == [ACCEPT] + [BLOCK] * 8999
    assert turns == [0] + [int(Turn.ENDED)] * 8999


def test_many_waits_evict_after_one_timeout() -> None:
    coordinator = rota.Coordinator(timeout=0.05)
    keys = np.array([b"a", b"b", b"c"])
    coordinator.enqueue_many(keys)

    def second() -> list[int]:
        coordinator.enqueue_many(keys)
        return [int(turn) for turn in coordinator.wait_many(keys)]

    assert other(second) == [int(Turn.EVICTED)] * 3
    assert not coordinator.dequeue_many(keys).any()
