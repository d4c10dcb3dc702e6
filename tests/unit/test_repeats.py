"""The repeat profile against the exact shares, and its replay against an automaton in plain Python."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import rota

POINT = 0.01


def zipf(exponent: float, count: int, keys: int) -> npt.NDArray[np.int64]:
    """Return a stream of Zipf keys."""
    weights = np.arange(1, keys + 1) ** -exponent
    chances = np.cumsum(weights) / weights.sum()
    return np.searchsorted(chances, np.random.default_rng(3).random(count)).astype(np.int64)


def exact(keys: npt.NDArray[np.int64], queue_length: int) -> tuple[float, float, float]:
    """Return the shares of none, sparse and high."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    gaps = np.diff(order)[ranked[1:] == ranked[:-1]]
    high = int((gaps <= queue_length).sum())
    none = len(np.unique(keys))
    return none / len(keys), (len(keys) - high - none) / len(keys), high / len(keys)


def declined(keys: list[int], service_length: int) -> float:
    """Return the share that the automaton declines when work takes so many requests."""
    ends: dict[int, list[int]] = {}  # of the one at work and of the one that waits
    count = 0
    for now, key in enumerate(keys, 1):
        turns = [end for end in ends.get(key, ()) if end > now]
        if len(turns) == 2:
            count += 1
        else:
            turns.append((turns[0] if turns else now) + service_length)
        ends[key] = turns
    return count / len(keys)


@pytest.mark.parametrize("exponent", [0.6, 0.99, 1.3])
@pytest.mark.parametrize("queue_length", [1, 100, 32_768])
def test_shares_are_within_a_point_of_the_exact_ones(exponent: float, queue_length: int) -> None:
    keys = zipf(exponent, 500_000, 1_000_000)
    profile = rota.RepeatProfile(queue_length=queue_length)
    profile.add_many(keys)
    shares = profile.shares()
    assert shares.requests == len(keys)
    assert np.abs(np.subtract((shares.none, shares.sparse, shares.high), exact(keys, queue_length))).max() < POINT


@pytest.mark.parametrize("service_length", [1, 2, 50, 16_384])
def test_what_is_saved_is_what_an_automaton_declines(service_length: int) -> None:
    keys = zipf(1.1, 50_000, 10_000)
    profile = rota.RepeatProfile(service_length=service_length)
    profile.add_many(keys)
    assert profile.shares().saved == pytest.approx(declined(keys.tolist(), service_length), abs=POINT / 10)


def test_a_stream_of_one_key_of_all_different_ones_and_of_none() -> None:
    profile = rota.RepeatProfile(queue_length=5)
    assert profile.shares() == rota.RepeatShares(0, 0, 0.0, 0.0, 0.0, 0.0)
    for _ in range(1000):
        profile.add("k")
    assert profile.shares().high == pytest.approx(0.999)
    different = rota.RepeatProfile()
    different.add_many(np.arange(100_000))
    assert different.shares().none == pytest.approx(1, abs=POINT)
    assert different.shares().saved == 0


def test_single_requests_are_those_of_an_array_and_limits_are_told() -> None:
    keys = zipf(1.1, 20_000, 1000)
    one, many = rota.RepeatProfile(100, 10), rota.RepeatProfile(100, 10)
    many.add_many(keys)
    for key in keys.tolist():
        one.add(key)
    assert one.shares().high == pytest.approx(many.shares().high, abs=POINT / 10)
    assert one.shares().saved == pytest.approx(many.shares().saved, abs=POINT / 10)
    for wrong in ({"queue_length": 0}, {"queue_length": 40_000}, {"service_length": 20_000}):
        with pytest.raises(ValueError):
            rota.RepeatProfile(**wrong)
