"""One bucket for many processes: the rate in every window, restarts, and kills inside the check."""

from __future__ import annotations

import contextlib
import pathlib
from typing import Any

import pytest

import rota
from rota._core import platform
from tests.crash.kit import Child, Died, Link

RATE, BURST, WORKERS, EACH = 2000.0, 20.0, 8, 100


def opened(path: pathlib.Path) -> rota.Repository:
    return rota.open(path, capacity="1 MiB", durability="none")


def begins(link: Link, path: pathlib.Path) -> None:
    """Acquire as often as one may, and tell when each began."""
    with opened(path) as repo:
        limiter = repo.limiter("calls")
        link.send("ready")
        link.receive()
        times = []
        for _ in range(EACH):
            assert limiter.acquire()
            times.append(platform.clocks()[1])
        link.send(times)


def most_in_a_window(times: list[int]) -> float:
    """By how much the fullest window holds more than its length times the rate."""
    most, lowest = 0.0, float("inf")
    for number, at in enumerate(times):
        lowest = min(lowest, number - at * RATE / 1e9)
        most = max(most, number - at * RATE / 1e9 - lowest + 1)
    return most


def test_eight_processes_share_one_rate(directory: pathlib.Path) -> None:
    with opened(directory / "r") as repo, contextlib.ExitStack() as stack:
        repo.limiter("calls", rate=RATE, burst=BURST)
        children = [stack.enter_context(Child(begins, directory / "r")) for _ in range(WORKERS)]
        assert [child.receive() for child in children] == ["ready"] * WORKERS
        start = platform.clocks()[1]
        for child in children:
            child.send("go")
        times = sorted(at for child in children for at in child.receive())
    assert len(times) == WORKERS * EACH
    early = [n for n, at in enumerate(times) if at - start < (n + 1 - BURST) / RATE * 1e9]
    assert early == []
    # One that had its turn may be taken off the processor before it looks at the clock: one of each process.
    assert most_in_a_window(times) <= BURST + WORKERS


def takes(link: Link, path: pathlib.Path, point: str, key: Any) -> None:
    with opened(path) as repo:
        limiter = repo.limiter("calls")
        platform.arm(point, "kill")
        limiter.reserve(key=key)
        link.send("alive")


def dies(path: pathlib.Path, point: str) -> None:
    with Child(takes, path, f"limit.{point}", "k") as child, pytest.raises(Died):
        child.receive()


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside another"])
@pytest.mark.parametrize("point", ["chosen", "busy", "named", "filled", "taken"])
def test_a_death_inside_the_check_costs_one_turn_at_most(directory: pathlib.Path, point: str, alone: bool) -> None:
    path = directory / "r"
    with opened(path) as repo:
        limiter = repo.limiter("calls", rate=0.01, burst=2, capacity=32)
        assert limiter.acquire(key="other")
        if not alone:
            dies(path, point)
            settled(limiter, point)
    if alone:
        dies(path, point)
        with opened(path) as repo:
            settled(repo.limiter("calls"), point)


def settled(limiter: rota.Limiter, point: str) -> None:
    taken = 1 if point in ("filled", "taken") else 0
    assert limiter.acquire(key="new")
    assert 2 - taken <= limiter.level("k") < 2.1 - taken
    left = [limiter.acquire(key="k", timeout=0) for _ in range(3)]
    assert left == [True] * (2 - taken) + [False] * (1 + taken)
    assert 1 <= limiter.level("other") < 1.1
    for key in range(29):
        assert limiter.acquire(key=key), "a slot is lost"


def test_a_bucket_outlives_all_processes(directory: pathlib.Path) -> None:
    path = directory / "r"
    with opened(path) as repo:
        limiter = repo.limiter("calls", rate=0.01, burst=2)
        assert limiter.acquire(2)
    with opened(path) as repo:
        assert not repo.limiter("calls").acquire(timeout=0)


def makes(link: Link, path: pathlib.Path) -> None:
    with opened(path) as repo:
        platform.arm("limit.created", "kill")
        repo.limiter("calls", rate=0.01, burst=1)


def test_a_death_while_the_file_is_made_leaves_nothing(directory: pathlib.Path) -> None:
    with opened(directory / "r") as repo:
        with Child(makes, directory / "r") as child, pytest.raises(Died):
            child.receive()
        with pytest.raises(rota.NotFound):
            repo.limiter("calls")
        assert repo.limiter("calls", rate=7).rate == pytest.approx(7)


def test_a_waiter_that_is_killed_holds_up_nobody(directory: pathlib.Path) -> None:
    def waits(link: Link, path: pathlib.Path) -> None:
        with opened(path) as repo:
            limiter = repo.limiter("calls")
            limiter.reserve()
            link.send("waits")
            limiter.acquire()

    with opened(directory / "r") as repo:
        limiter = repo.limiter("calls", rate=20, burst=1)
        with Child(waits, directory / "r") as child:
            assert child.receive() == "waits"
            child.kill()
            assert limiter.reserve() <= 0.1
