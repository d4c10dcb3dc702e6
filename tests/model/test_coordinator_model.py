"""The compiled automata against plain Python: every schedule of three owners and two keys, and random long ones."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rota
from tests.model.dedup_oracle import OWN_HEAD, Automata, Key

CALLS = ("enqueue", "dequeue", "evict", "give up")
Call = tuple[str, int, Key]


def ask(coordinator: rota.Coordinator, call: Call) -> object:
    """Return what the compiled one answers."""
    name, owner, key = call
    if name == "enqueue":
        try:
            return coordinator._enqueue_as(owner, key)[0]
        except rota.StateError:
            return OWN_HEAD
    if name == "dequeue":
        return coordinator._dequeue_as(owner, key)
    return coordinator._wait_end_as(owner, key, name == "evict")


def expect(model: Automata, call: Call) -> object:
    name, owner, key = call
    if name == "enqueue":
        return model.enqueue(owner, key)
    if name == "dequeue":
        return model.dequeue(owner, key)
    return model.end_wait(owner, key, name == "evict")


def compare(coordinator: rota.Coordinator, model: Automata, calls: list[Call]) -> None:
    """Make the calls at both."""
    for number, call in enumerate(calls):
        assert ask(coordinator, call) == expect(model, call), calls[: number + 1]


def fill(coordinator: rota.Coordinator, keys: range) -> None:
    for key in keys:
        coordinator._enqueue_as(1, key)


def test_every_schedule_of_three_owners_and_two_keys() -> None:
    # Each reachable state is reached by a shortest way at a new table; then each call is made there. A state is known
    # by all that later answers depend on, so this covers schedules of any length.
    possible = [(name, owner, key) for name in CALLS for owner in (1, 2, 3) for key in (b"a", 7)]
    todo: deque[list[Call]] = deque([[]])
    seen = {Automata().state()}
    while todo:
        way = todo.popleft()
        for call in possible:
            coordinator, model = rota.Coordinator(capacity=2), Automata()
            compare(coordinator, model, [*way, call])
            for owner in (1, 2, 3):
                for key in (b"a", 7):
                    assert coordinator._turn_as(owner, key) == model.turns.get((owner, key)), [*way, call]
            assert coordinator.stats().live == len(model.heads)
            if model.state() not in seen:
                seen.add(model.state())
                todo.append([*way, call])
    # A key: free, or one of three heads with no waiter or one of two; besides turns that were not collected.
    assert len(seen) > (1 + 3 + 6) ** 2


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from(CALLS), st.integers(1, 4), st.one_of(st.integers(-40, 40), st.binary(max_size=1))),
        max_size=400,
    )
)
def test_random_schedules_of_many_keys_in_a_crowded_table(calls: list[Call]) -> None:
    compare(rota.Coordinator(capacity=337), Automata(), calls)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 30), min_size=60, max_size=400), st.integers(1, 12))
def test_a_table_that_fills_up_again_and_again(keys: list[int], capacity: int) -> None:
    # Removal from full stripes moves others up; whoever is in use stays found, whoever is not is not.
    coordinator = rota.Coordinator(capacity=capacity)
    inside: set[int] = set()
    for key in keys:
        if key in inside:
            assert coordinator._dequeue_as(1, key)
            inside.remove(key)
            continue
        try:
            coordinator._enqueue_as(1, key)
            inside.add(key)
        except rota.Full:
            assert len(inside) >= capacity
        assert coordinator.stats().live == len(inside)
    for key in range(31):
        assert coordinator._dequeue_as(1, key) == (key in inside)


def test_a_head_that_was_evicted_ends_nothing_even_when_it_came_back() -> None:
    coordinator = rota.Coordinator(capacity=2)
    _, first = coordinator._enqueue_as(1, b"k")
    coordinator._enqueue_as(2, b"k")
    assert coordinator._wait_end_as(2, b"k", True) is rota.Turn.EVICTED
    assert coordinator._dequeue_as(2, b"k")
    _, second = coordinator._enqueue_as(1, b"k")
    assert first != second
    assert not coordinator._dequeue_as(1, b"k", first)
    assert coordinator._dequeue_as(1, b"k", second)


@pytest.mark.parametrize("capacity", [100, 3000, 3300, 50_000])
def test_a_table_takes_its_capacity_and_sixty_four_bytes_a_key_at_half_load(capacity: int) -> None:
    coordinator = rota.Coordinator(capacity=capacity)
    fill(coordinator, range(capacity))
    figures = coordinator.stats()
    assert figures.live == capacity
    assert figures.memory_bytes <= 64 * (capacity // 2)
    with pytest.raises(rota.Full, match=f"capacity {capacity}"):
        fill(coordinator, range(capacity, 2 * capacity))
