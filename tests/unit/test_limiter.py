"""Limiters: rates over windows, keys, options, giving turns back, reboots and damage."""

from __future__ import annotations

import asyncio
import math
import pathlib
import signal
import threading
from collections.abc import Iterator

import pytest

import rota
from rota._core import platform

BOOT_ID, NOTED_BOOT = 16, 32  # offsets in the file of a limiter


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", capacity="1 MiB", durability="none") as repository:
        yield repository
    platform.injections_clear()


def file_of(repo: rota.Repository) -> pathlib.Path:
    """The one limiter's file."""
    (found,) = pathlib.Path(repo.path).glob("limiter.*")
    return found


def test_a_burst_comes_at_once_and_the_rest_at_the_rate(repo: rota.Repository) -> None:
    limiter = repo.limiter("calls", rate=0.01, burst=3)
    assert [limiter.acquire(timeout=0) for _ in range(5)] == [True, True, True, False, False]
    assert 99 < limiter.reserve() <= 100
    assert 199 < limiter.reserve() <= 200
    assert -2 <= limiter.level() < -1.9


def test_a_wait_ends_at_its_time_and_not_before(repo: rota.Repository) -> None:
    limiter = repo.limiter("calls", rate=200, burst=1)
    begun = [platform.clocks()[1]]
    assert limiter.acquire()
    first = platform.clocks()[1]
    for _ in range(20):
        assert limiter.acquire()
        begun.append(platform.clocks()[1])
    early = [at for number, at in enumerate(begun) if number and at < begun[0] + number * 5_000_000]
    assert early == []
    assert first < begun[1]


def test_a_cost_counts_as_so_many_and_what_never_fits_is_refused(repo: rota.Repository) -> None:
    limiter = repo.limiter("bytes", rate=1, burst=1000)
    assert limiter.acquire(999.5, timeout=0)
    assert not limiter.acquire(1, timeout=0)
    assert limiter.acquire(0.25, timeout=0)
    for cost in (1000.5, 0, -1, math.nan, math.inf):
        with pytest.raises(ValueError):
            limiter.acquire(cost)
    with pytest.raises(ValueError):
        limiter.acquire(timeout=-1)


def test_a_call_that_cannot_be_in_time_takes_nothing(repo: rota.Repository) -> None:
    limiter = repo.limiter("calls", rate=0.1, burst=1)
    assert limiter.acquire(timeout=0)
    level = limiter.level()
    assert not limiter.acquire(timeout=5)
    assert limiter.level() >= level


def test_each_key_has_its_own_bucket(repo: rota.Repository) -> None:
    limiter = repo.limiter("calls", rate=0.001, burst=2)
    keys: list[str | bytes | int] = ["a", b"b", 3]
    assert [limiter.acquire(key=key, timeout=0) for key in keys * 3] == [True] * 6 + [False] * 3
    assert limiter.acquire(timeout=0)
    assert limiter.level("never used") == 2
    assert 0 <= limiter.level("a") < 0.1


def test_keys_whose_time_is_over_make_room_and_live_ones_do_not(repo: rota.Repository) -> None:
    limiter = repo.limiter("calls", rate=1e9, burst=1, capacity=64)
    for key in range(10_000):
        assert limiter.acquire(key=key)
    limiter.configure(rate=1e-3)
    with pytest.raises(rota.Full, match="64 keys"):
        all(limiter.acquire(key=key, timeout=0) for key in range(200))
    assert limiter.capacity == 64


def test_options_are_kept_compared_and_changed_for_all(repo: rota.Repository) -> None:
    with pytest.raises(rota.NotFound, match="rate"):
        repo.limiter("calls")
    first = repo.limiter("calls", rate=100)
    second = repo.limiter("calls")
    assert second.rate == pytest.approx(100)
    assert (second.burst, second.capacity) == (5, 4096)
    with pytest.raises(rota.OptionMismatch, match="burst"):
        repo.limiter("calls", burst=7)
    first.configure(rate=50, burst=7)
    assert second.rate == pytest.approx(50)
    assert second.burst == 7
    for wrong in ({"rate": 0}, {"rate": math.nan}, {"burst": 0}, {"rate": 1, "capacity": 0}):
        with pytest.raises(ValueError):
            repo.limiter("other", **wrong)
    with pytest.raises(ValueError):
        first.configure(rate=-1)
    with pytest.raises(ValueError):
        repo.limiter("", rate=1)


def test_a_shift_of_the_wall_clock_changes_nothing(repo: rota.Repository) -> None:
    limiter = repo.limiter("calls", rate=0.01, burst=1)
    assert limiter.acquire(timeout=0)
    for shift in (3600, -3600):
        platform.shift_clock(wall_ns=shift * 10**9)
        again = repo.limiter("calls")
        assert not again.acquire(timeout=0)
        assert again.level() < 0.1


def test_an_interrupted_wait_gives_its_turn_back(repo: rota.Repository) -> None:
    limiter = repo.limiter("calls", rate=0.01, burst=1)
    assert limiter.acquire(timeout=0)
    threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        limiter.acquire()
    assert limiter.level() > -0.1


def test_a_turn_behind_which_others_stand_is_not_given_back(repo: rota.Repository) -> None:
    limiter = repo.limiter("calls", rate=0.01, burst=1)

    async def main() -> float:
        assert await limiter.acquire_async(timeout=0)
        waits = asyncio.create_task(limiter.acquire_async())
        await asyncio.sleep(0)
        assert limiter.reserve() > 199
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        return limiter.level()

    assert -2 <= asyncio.run(main()) < -1.9


def test_tasks_wait_without_stopping_their_loop(repo: rota.Repository) -> None:
    limiter = repo.limiter("calls", rate=500, burst=1)

    async def main() -> float:
        start = platform.clocks()[1]
        assert all(await asyncio.gather(*(limiter.acquire_async() for _ in range(11))))
        return (platform.clocks()[1] - start) / 1e9

    assert asyncio.run(main()) >= 0.02


def rebooted(repo: rota.Repository) -> None:
    """Let the file look as if another boot had written it, whose clock was far ahead of this one."""
    path = file_of(repo)
    data = bytearray(path.read_bytes())
    data[BOOT_ID : BOOT_ID + 16] = bytes(16)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("wall_s", "least", "most"),
    [(0, -4.1, -3.9), (100, -3.1, -2.9), (1000, 1, 1), (-5000, -4.1, -3.9)],
    ids=["at once", "later", "long after", "the wall clock was set back"],
)
def test_debts_outlive_a_reboot_by_the_wall_clock(
    repo: rota.Repository, wall_s: int, least: float, most: float
) -> None:
    platform.shift_clock(boot_ns=10**15)
    limiter = repo.limiter("calls", rate=0.01, burst=1)
    for _ in range(5):
        limiter.reserve()
        limiter.reserve(key="k")
    assert -4.1 < limiter.level() < -3.9
    rebooted(repo)
    platform.shift_clock(wall_ns=wall_s * 10**9)
    after = repo.limiter("calls")
    assert least <= after.level() <= most
    assert least <= after.level("k") <= most


def test_a_damaged_file_is_refused_and_a_half_made_one_made_again(repo: rota.Repository) -> None:
    repo.limiter("calls", rate=0.01, burst=1).reserve()
    path = file_of(repo)
    good = path.read_bytes()
    for offset, value in ((0, b"x"), (8, b"\1"), (12, b"\1"), (320, b"z")):
        path.write_bytes(good[:offset] + value + good[offset + 1 :])
        with pytest.raises(rota.Corrupt):
            repo.limiter("calls")
    path.write_bytes(good[:-24])
    with pytest.raises(rota.Corrupt, match="size"):
        repo.limiter("calls")
    path.write_bytes(good[:72] + bytes(8) + good[80:])
    with pytest.raises(rota.Corrupt, match="rate"):
        repo.limiter("calls").acquire()
    path.write_bytes(bytes(8) + good[8:])
    assert repo.limiter("calls", rate=5, burst=1).level() == 1


def test_a_limiter_ends_with_its_repository(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        limiter = repo.limiter("calls", rate=1)
        assert (limiter.name, limiter.repository) == ("calls", repo)
    with pytest.raises(rota.ClosedError):
        limiter.acquire()
    with rota.open(directory / "r", read_only=True) as repo, pytest.raises(rota.ReadOnlyError):
        repo.limiter("calls")
