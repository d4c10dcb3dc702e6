"""Per-key order: of each key one message in flight, in the order of arrival."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

import rota
from rota._core import platform
from rota._core.index_check import index_lists

SMALL: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", **SMALL) as opened:
        yield opened
    platform.shift_clock(wall_ns=0)


def grouped(repo: rota.Repository, **options: Any) -> rota.Queue:
    return repo.queue("g", order="group", **options)


def fill(queue: rota.Queue, *entries: str) -> list[int]:
    """Put "a1" under the key "a"; what begins with "-" has no key."""
    return [queue.put(text.encode(), key=None if text.startswith("-") else text[0]).id for text in entries]


def taken(queue: rota.Queue) -> list[bytes]:
    """All that is ready, acked."""
    with queue.get_many(100) as batch:
        bodies = list(batch.bodies)
    return bodies


def test_a_batch_has_one_message_of_each_key(repo: rota.Repository) -> None:
    queue = grouped(repo)
    fill(queue, "a1", "a2", "b1", "-1", "a3", "-2", "b2")
    assert (queue.stats().ready, queue.stats().waiting) == (4, 3)
    assert taken(queue) == [b"a1", b"b1", b"-1", b"-2"]
    assert taken(queue) == [b"a2", b"b2"]
    assert taken(queue) == [b"a3"]
    assert len(queue) == 0 and index_lists(queue) == []


def test_what_is_in_flight_blocks_its_key_only(repo: rota.Repository) -> None:
    queue = grouped(repo)
    fill(queue, "a1", "a2", "b1")
    first = queue.get(timeout=0)
    assert queue.get(timeout=0).body == b"b1"
    with pytest.raises(rota.Empty):
        queue.get(timeout=0)
    first.ack()
    assert queue.get(timeout=0).body == b"a2"


@pytest.mark.parametrize("how", ["nack", "release"])
def test_what_comes_back_goes_before_the_others_of_its_key(repo: rota.Repository, how: str) -> None:
    queue = grouped(repo)
    fill(queue, "a1", "a2", "b1", "b2")
    message = queue.get(timeout=0)
    getattr(message, how)()
    assert taken(queue) == [b"a1", b"b1"]
    assert taken(queue) == [b"a2", b"b2"]


def test_a_delayed_head_keeps_its_key_blocked(repo: rota.Repository) -> None:
    queue = grouped(repo)
    queue.put(b"a1", key="a", delay=1000)
    fill(queue, "a2", "b1")
    assert taken(queue) == [b"b1"]
    queue.kill(queue.ids()[0])
    message = queue.get(timeout=0)
    message.nack(delay=1000)
    fill(queue, "a3")
    assert taken(queue) == [] and queue.stats().delayed == 1
    platform.shift_clock(wall_ns=int(1001e9))
    assert taken(queue) == [b"a2"]
    assert taken(queue) == [b"a3"]


def test_what_is_due_waits_for_an_older_one_of_its_key(repo: rota.Repository) -> None:
    queue = grouped(repo)
    fill(queue, "a1")
    queue.put(b"a2", key="a", delay=1000)
    fill(queue, "a3")
    held = queue.get(timeout=0)
    platform.shift_clock(wall_ns=int(1001e9))
    assert taken(queue) == [] and queue.stats().waiting == 2
    held.ack()
    assert taken(queue) == [b"a2"]
    assert taken(queue) == [b"a3"]


def test_a_head_that_is_parked_or_moved(repo: rota.Repository) -> None:
    queue = grouped(repo, max_attempts=1)
    errors = repo.queue("g.errors")
    errors.stop()
    first, second, third = fill(queue, "a1", "a2", "a3")
    queue.get(timeout=0).nack()
    assert queue.stats().parked == 1 and taken(queue) == []
    queue.kill(first)
    errors.start()
    queue.get(timeout=0).nack()
    assert errors.ids() == [second]
    assert queue.get(timeout=0).id == third


def test_kill_and_expiry_of_heads_and_of_those_behind(repo: rota.Repository) -> None:
    queue = grouped(repo, max_attempts=None)
    a1, a2, a3, _, b1 = fill(queue, "a1", "a2", "a3", "a4", "b1")
    queue.put(b"b2", key="b", ttl=10)
    queue.put(b"b3", key="b")
    queue.kill(a2)
    queue.kill(a1)
    held = queue.get(timeout=0)
    assert held.id == a3
    queue.kill(a3)
    with pytest.raises(rota.Killed):
        held.ack()
    assert taken(queue) == [b"a4", b"b1"]
    assert b1 not in queue.ids()
    platform.shift_clock(wall_ns=int(11e9))
    assert queue.get(timeout=1).body == b"b3"


def test_redriven_messages_arrive_anew(repo: rota.Repository) -> None:
    queue = grouped(repo, max_attempts=1)
    fill(queue, "a1", "a2", "a3")
    queue.get(timeout=0).nack()
    errors = repo.queue("g.errors")
    assert errors.redrive(errors.ids()) == 1
    assert [taken(queue) for _ in range(3)] == [[b"a2"], [b"a3"], [b"a1"]]


def test_moving_in_from_elsewhere_with_any_priority(repo: rota.Repository) -> None:
    queue = grouped(repo)
    other = repo.queue("other")
    fill(queue, "a1")
    other.put(b"a2", key="a", priority=7)
    other.redrive(other.ids(), queue)
    fill(queue, "a3")
    assert [taken(queue) for _ in range(3)] == [[b"a1"], [b"a2"], [b"a3"]]


def test_keys_of_text_and_bytes_are_different(repo: rota.Repository) -> None:
    queue = grouped(repo)
    queue.put(b"text", key="a")
    queue.put(b"bytes", key=b"a")
    assert taken(queue) == [b"text", b"bytes"]


def test_transactions_hold_a_key_and_give_it_back(repo: rota.Repository) -> None:
    queue = grouped(repo)
    fill(queue, "a1", "a2")
    with repo.transaction() as t:
        assert t.get(queue).body == b"a1"
        t.put(queue, b"a3", key="a")
        with pytest.raises(rota.Empty):
            t.get(queue)
    t = repo.transaction()
    assert t.get(queue).body == b"a2"
    t.rollback()
    assert taken(queue) == [b"a2"]
    assert taken(queue) == [b"a3"]


def test_options_that_do_not_fit(repo: rota.Repository) -> None:
    queue = grouped(repo)
    with pytest.raises(rota.OptionMismatch):
        queue.put(b"x", priority=1)
    with pytest.raises(rota.OptionMismatch):
        queue.put_many([b"x", b"y"], priority=3)
    assert len(queue) == 0
    queue.put(b"x")
    with pytest.raises(rota.InUse):
        queue.configure(order="skip")
    queue.configure(lease=60)
    taken(queue)
    queue.configure(order="skip")
    queue.put(b"x", key="a", priority=1)
    with pytest.raises(rota.InUse):
        queue.configure(order="group")
    taken(queue)
    queue.configure(order="group")
    fill(queue, "a1", "a2")
    assert taken(queue) == [b"a1"]


def test_order_survives_reopening(directory: pathlib.Path) -> None:
    """Once from a checkpoint (the close takes one, as more than half a segment was logged)."""
    pad = "." * 3000
    with rota.open(directory / "r", **SMALL) as repo:
        queue = grouped(repo, max_attempts=1)
        for i in range(4):
            fill(queue, f"a{i}" + pad, f"b{i}" + pad, f"-{i}" + pad)
        queue.get(timeout=0).nack()
        errors = repo.queue("g.errors")
        errors.redrive(errors.ids())
        fill(queue, "a4", "a5")
        before = index_lists(queue)
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("g")
        assert sorted(index_lists(queue)) == sorted(before)
        found = []
        while len(queue):
            found.append([body[:2] for body in taken(queue)])
    assert sorted(found[0]) == [b"-0", b"-1", b"-2", b"-3", b"a1", b"b0"]
    keyed = [body for some in found for body in some if body.startswith(b"a")]
    assert keyed == [b"a1", b"a2", b"a3", b"a0", b"a4", b"a5"]


def test_many_keys(directory: pathlib.Path) -> None:
    """Every end pushes the next one on the heap, which grows beyond a leaf."""
    keys = 5000
    with rota.open(directory / "r", capacity="64 MiB", durability="none") as repo:
        queue = grouped(repo)
        for turn in range(3):
            with repo.transaction() as t:
                t.put_many(queue, [b"%d" % turn] * keys, keys=[f"k{i}" for i in range(keys)])
        for left in (2, 1, 0):
            assert (queue.stats().ready, queue.stats().waiting) == (keys, left * keys)
            assert taken_all(queue) == [b"%d" % (2 - left)] * keys
        assert len(queue) == 0


def taken_all(queue: rota.Queue) -> list[bytes]:
    """As many rounds of claims as it takes to hold all that is ready, then acks."""
    batches = []
    while len(batch := queue.get_many(1000)):
        batches.append(batch)
    bodies = [body for batch in batches for body in batch.bodies]
    for batch in batches:
        batch.ack()
    return bodies
