"""Waiting for a message: no wake-up is lost, a spinner costs a put no system call, idleness does not spin."""

from __future__ import annotations

import pathlib
import threading
import time
from collections.abc import Iterator

import pytest

import rota
from rota._core import platform

SLICE_S = 0.05  # a lost wake-up costs what is left of it
TRIES = 5


@pytest.fixture
def queue(directory: pathlib.Path) -> Iterator[rota.Queue]:
    with rota.open(directory / "r", create=True, capacity="1 MiB", durability="none") as repo:
        platform.call_counts()
        yield repo.queue("q")
        platform.disarm()
        platform.injections_clear()


def wake_calls() -> int:
    return platform.call_counts()["futex_wake"]


def put_while_paused(queue: rota.Queue, point: str) -> tuple[float, int]:
    """Put while a getter stands at a point of its wait: how long it took to get it from then on, and system calls of
    the put to wake it."""
    got: list[bytes] = []
    platform.arm(point, "pause")
    getter = threading.Thread(target=lambda: got.append(queue.get().body))
    getter.start()
    while not platform.paused():
        pass
    before = wake_calls()
    queue.put(b"here")
    calls = wake_calls() - before
    begun = time.monotonic()
    platform.disarm(point)
    getter.join()
    assert got == [b"here"]
    return time.monotonic() - begun, calls


@pytest.mark.parametrize("point", ["wait.begin", "wait.spinning", "wait.sleeping"])
def test_no_wake_up_is_lost(directory: pathlib.Path, point: str) -> None:
    """The best of a few tries, since a machine can be slow, and a lost wake-up takes the whole slice every time."""
    least = 1.0
    for number in range(TRIES):  # a new handle is one that would spin
        with rota.open(directory / str(number), create=True, capacity="1 MiB", durability="none") as repo:
            least = min(least, put_while_paused(repo.queue("q"), point)[0])
    assert least < SLICE_S / 2


def test_a_spinner_costs_no_system_call(queue: rota.Queue) -> None:
    assert put_while_paused(queue, "wait.spinning")[1] == 0


def test_a_sleeper_is_woken_by_one(queue: rota.Queue) -> None:
    assert put_while_paused(queue, "wait.sleeping")[1] == 1


def test_idle_getters_do_not_spin(queue: rota.Queue) -> None:
    """One short spin at first, then none: the processor is yielded only inside a spin."""
    with pytest.raises(rota.Empty):
        queue.get(timeout=2 * SLICE_S)
    before = platform.call_counts()["yield_processor"]
    with pytest.raises(rota.Empty):
        queue.get(timeout=6 * SLICE_S)
    assert platform.call_counts()["yield_processor"] == before
