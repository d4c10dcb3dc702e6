"""Kill by id: each row of the table of kills, and what tombstones tell."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota._core import platform
from tests.crash.kit import Child, Link

OPTIONS: dict[str, Any] = {"capacity": "2 MiB", "durability": "none"}


class World:
    """A repository, its queue, and one message in it: what a row begins with."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.repo = rota.open(path, **OPTIONS)
        self.queue = self.repo.queue("q", max_attempts=2)
        self.errors = self.repo.queue("q.errors")
        self.others = list(self.queue.put_many([b"before", b"after"]).ids)

    def put(self, **how: Any) -> int:
        return self.queue.put(b"victim", priority=5, **how).id

    def get(self) -> rota.Message:
        message = self.queue.get(timeout=0)
        assert message.body == b"victim"
        return message


# --- rows: what is done to the message before, and what the kill says -------------------------------------------------


def free(world: World) -> int:
    return world.put()


def delayed(world: World) -> int:
    return world.put(delay=60)


def leased(world: World) -> int:
    identity = world.put()
    world.get()
    return identity


def leased_in_a_batch(world: World) -> int:
    identity = world.put()
    assert identity in world.queue.get_many(3).ids
    return identity


def came_back(world: World) -> int:
    identity = world.put()
    world.get().nack()
    return identity


def returned_and_leased(world: World) -> int:
    came_back(world)
    return world.get().id


def parked(world: World) -> int:
    world.errors.stop()
    identity = came_back(world)
    world.get().nack()
    assert world.queue.stats().parked == 1
    return identity


def in_the_error_queue(world: World) -> int:
    identity = came_back(world)
    world.get().nack()
    assert world.errors.ids() == [identity]
    return identity


def redriven_elsewhere(world: World) -> int:
    identity = in_the_error_queue(world)
    world.errors.redrive([identity], target=world.repo.queue("elsewhere"))
    return identity


def redriven_home(world: World) -> int:
    identity = in_the_error_queue(world)
    world.errors.redrive([identity])
    return identity


def in_an_open_transaction(world: World) -> int:
    identity = world.put()
    world.repo.transaction().get(world.queue)
    return identity


def killed_before(world: World) -> int:
    identity = world.put()
    assert world.queue.kill(identity)
    return identity


def killed_before_in_hand(world: World) -> int:
    identity = leased(world)
    assert world.queue.kill(identity)
    return identity


def killed_and_forgotten_by_its_chunk(world: World) -> int:
    """Its slot is gone, the tombstone tells."""
    identity = killed_before(world)
    for _ in range(20):
        batch = world.queue.get_many(1000)
        world.queue.put_many([b"x"] * 100, priority=5)
        batch.ack()
    return identity


def acked(world: World) -> int:
    identity = world.put()
    world.get().ack()
    return identity


def committed(world: World) -> int:
    identity = world.put()
    with world.repo.transaction() as t:
        assert t.get(world.queue).id == identity
    return identity


def acked_long_ago(world: World) -> int:
    identity = acked(world)
    for _ in range(20):
        world.queue.put_many([b"x"] * 100, priority=5)
        world.queue.get_many(1000).ack()
    return identity


def expired_and_dropped(world: World) -> int:
    queue = world.repo.queue("no errors", max_attempts=None)
    identity = queue.put(b"x", ttl=60).id
    platform.shift_clock(wall_ns=61_000_000_000)
    try:
        with pytest.raises(rota.Empty):
            queue.get(timeout=0)
    finally:
        platform.shift_clock()
    return identity


def acked_in_the_error_queue(world: World) -> int:
    identity = in_the_error_queue(world)
    world.errors.get().ack()
    return identity


TRUE = [
    *(free, delayed, leased, leased_in_a_batch, came_back, returned_and_leased, parked, in_the_error_queue),
    *(redriven_elsewhere, redriven_home, in_an_open_transaction),
    *(killed_before, killed_before_in_hand, killed_and_forgotten_by_its_chunk),
]
FALSE = [acked, committed, acked_long_ago, expired_and_dropped, acked_in_the_error_queue]


@pytest.mark.parametrize("row", TRUE, ids=lambda row: row.__name__)
def test_it_is_deleted_and_the_kill_says_true(directory: pathlib.Path, row: Callable[[World], int]) -> None:
    world = World(directory / "r")
    with world.repo as repo:
        identity = row(world)
        assert world.queue.kill(identity) is True
        assert repo.stats().durable_lsn >= repo.stats().tail_lsn  # whatever the level
        for name in repo.queues():
            queue = repo.queue(name)
            assert identity not in queue.ids()
            with pytest.raises(rota.NotFound):
                queue.read(identity)
        assert world.queue.kill(identity) is True  # idempotent
        figures = world.queue.stats()
        assert figures.ready + figures.claimed + figures.delayed + figures.parked == figures.total
        assert figures.total == len(world.queue.ids())
    with rota.open(directory / "r", **OPTIONS) as repo:
        assert all(identity not in repo.queue(name).ids() for name in repo.queues())


@pytest.mark.parametrize("row", FALSE, ids=lambda row: row.__name__)
def test_it_is_too_late_and_the_kill_says_false(directory: pathlib.Path, row: Callable[[World], int]) -> None:
    world = World(directory / "r")
    with world.repo as repo:
        identity = row(world)
        before = repo.stats().commits
        assert world.queue.kill(identity) is False
        assert repo.stats().commits == before
        assert repo.stats().durable_lsn >= repo.stats().tail_lsn


def test_unknown_is_not_found(directory: pathlib.Path) -> None:
    world = World(directory / "r")
    with world.repo:
        victim = acked(world)
        for identity in (0, victim + 1, 1 << 40, (1 << 64) - 1):
            with pytest.raises(rota.NotFound):
                world.queue.kill(identity)
        with pytest.raises(OverflowError):
            world.queue.kill(-1)


def test_after_a_reopening_nothing_is_claimed_that_is_not_known(directory: pathlib.Path) -> None:
    """False would say: it was processed.  Without a tombstone an old id is NotFound, killed or not."""
    world = World(directory / "r")
    with world.repo:
        killed, processed = killed_before(world), acked(world)
    with rota.open(directory / "r", **OPTIONS) as repo:
        for identity in (killed, processed):
            try:
                assert repo.queue("q").kill(identity) is (identity == killed)
            except rota.NotFound:
                continue


def test_a_tombstone_survives_the_last_process(directory: pathlib.Path) -> None:
    """As far as the log tells: after kill -9 it is read again."""
    with Child(kill_and_die, directory / "r") as child:
        killed, processed = child.receive()
        assert child.wait() == -signal.SIGKILL
    with rota.open(directory / "r", **OPTIONS) as repo:
        assert repo.queue("q").kill(killed) is True
        with pytest.raises(rota.NotFound):
            repo.queue("q").kill(processed)


def kill_and_die(link: Link, path: pathlib.Path) -> None:
    world = World(path)
    link.send((killed_before(world), acked_long_ago(world)))
    signal.raise_signal(signal.SIGKILL)
