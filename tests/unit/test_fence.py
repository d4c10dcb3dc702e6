"""Fencing: who may act on a queue, what a new leader gets of the old one's, what survives a restart."""

from __future__ import annotations

import pathlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rota
from rota._core import platform
from tests.crash.kit import Child, Link

HIGH = 1 << 127  # a token of two halves


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", capacity="8 MiB", durability="none") as repository:
        yield repository


def in_transaction(queue: rota.Queue, token: int, act: Callable[[rota.Transaction], Any]) -> None:
    with queue.repository.transaction(token) as transaction:
        act(transaction)


ACTS: dict[str, Callable[[rota.Queue, int], Any]] = {
    "get": lambda queue, token: queue.under(token).get(timeout=0),
    "get_many": lambda queue, token: queue.under(token).get_many(2),
    "get where": lambda queue, token: queue.under(token).get(timeout=0, where=rota.key == "k"),
    "get of a transaction": lambda queue, token: in_transaction(queue, token, lambda t: t.get(queue)),
    "put": lambda queue, token: queue.under(token).put(b"late"),
    "put with a key": lambda queue, token: queue.under(token).put(b"late", key="k"),
    "put_many": lambda queue, token: queue.under(token).put_many([b"late", b"later"]),
    "put of a transaction": lambda queue, token: in_transaction(queue, token, lambda t: t.put(queue, b"late")),
    "kill of a transaction": lambda queue, token: in_transaction(
        queue, token, lambda t: t.kill(queue, queue.peek().id)
    ),
    "registration": lambda queue, token: queue.under(token).register("r").put(b"late", tag=b"t"),
    "fence": lambda queue, token: queue.fence(token),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("fence", "older"), [(8, 7), (HIGH, HIGH - 1), (1 << 64, (1 << 64) - 1), (HIGH + 1, HIGH)])
def test_an_older_token_is_refused_and_an_equal_one_is_not(
    repo: rota.Repository, act: str, fence: int, older: int
) -> None:
    queue = repo.queue("q")
    queue.put_many([b"1", b"2", b"3"])
    for body in (b"4", b"5"):
        queue.put(body, key="k")
    queue.fence(fence)
    before = queue.ids()
    with pytest.raises(rota.StaleLeader):
        ACTS[act](queue, older)
    assert queue.ids() == before
    assert queue.stats().claimed == 0
    ACTS[act](queue, fence)
    ACTS[act](queue, fence + 1)
    assert queue.fencing_token in (fence, fence + 1)


def test_without_a_token_one_may_put_but_not_claim_or_ack(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.put_many([b"1", b"2"])
    mine = queue.get()
    queue.fence(3)
    queue.put(b"3")
    queue.put_many([b"4"])
    with repo.transaction() as transaction:
        transaction.put(queue, b"5")
    for call in (
        lambda: queue.get(timeout=0),
        lambda: queue.get_many(1),
        mine.ack,
        mine.nack,
        mine.release,
        lambda: queue.ack([mine]),
    ):
        with pytest.raises(rota.StaleLeader, match="only its leader"):
            call()
    transaction = repo.transaction()
    with pytest.raises(rota.StaleLeader):
        transaction.get(queue)
    transaction.ack(mine)
    with pytest.raises(rota.StaleLeader):
        transaction.commit()
    assert [message.body for message in queue.browse()] == [b"1", b"2", b"3", b"4", b"5"]


def test_other_queues_are_not_touched(repo: rota.Repository) -> None:
    queue, free = repo.queue("q"), repo.queue("free")
    queue.fence(9)
    free.put(b"1")
    free.get().ack()
    free.under(2).put(b"2")
    free.under(1).get().ack()
    with repo.transaction(token=5) as transaction:
        transaction.put(free, b"3")
        transaction.get(free)
    assert len(free) == 0


def test_one_stale_queue_refuses_the_whole_transaction(repo: rota.Repository) -> None:
    queue, other = repo.queue("q"), repo.queue("other")
    queue.put(b"1")
    transaction = repo.transaction(token=4)
    transaction.get(queue)
    transaction.put(other, b"done")
    queue.fence(5)
    with pytest.raises(rota.StaleLeader):
        transaction.commit()
    assert len(other) == 0
    assert queue.under(5).get().body == b"1"


def test_what_was_claimed_carries_the_token_of_its_claim(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.fence(5)
    queue.put_many([b"%d" % i for i in range(8)])
    leader = queue.under(5)
    leader.get().ack()
    leader.get().nack()
    leader.get().ack()
    leader.get().release()
    leader.get_many(2).ack()
    leader.ack([leader.get(), leader.get()])
    leader.register("r").get(tag=b"t")
    with repo.transaction() as transaction:  # takes the token of what it claims by
        transaction.get(leader)
    assert len(queue) == 0


def test_a_transaction_acts_under_its_own_token(repo: rota.Repository) -> None:
    """What was claimed under a higher one does not lend it."""
    queue = repo.queue("q")
    queue.put(b"1")
    queue.fence(7)
    message = queue.under(7).get()
    transaction = repo.transaction(token=6)
    transaction.ack(message)
    with pytest.raises(rota.StaleLeader):
        transaction.commit()
    message.ack()


def test_the_new_leader_gets_what_the_old_one_had_claimed_in_order(repo: rota.Repository) -> None:
    """At once, with leases of 30 seconds; only what was shown counts as an attempt."""
    queue = repo.queue("q", order="skip")
    queue.put_many([b"%d" % i for i in range(10)])
    queue.fence(1)
    old = queue.under(1)
    shown = old.get()
    batch = old.get_many(3)
    assert batch[0].body == b"1"
    with repo.transaction(token=1) as transaction:
        held = transaction.get(queue)
        assert held.body == b"4"
        queue.fence(2)
        new = queue.under(2)
        assert [(m.body, m.attempts) for m in new.get_many(10)] == [
            (b"%d" % i, 2 if i in (0, 1, 4) else 1) for i in range(10)
        ]
        with pytest.raises(rota.StaleLeader):
            transaction.commit()
    for call in (shown.ack, shown.nack, batch.ack, lambda: old.get(timeout=0)):
        with pytest.raises(rota.StaleLeader):
            call()
    with pytest.raises(rota.LeaseLost):
        shown.extend(5)


def test_an_equal_fence_leaves_what_is_claimed_under_it(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.put_many([b"1", b"2"])
    queue.fence(3)
    message = queue.under(3).get()
    queue.fence(3)
    assert queue.stats().claimed == 1
    message.ack()


def test_a_strict_queue_goes_on_at_the_message_that_was_held(repo: rota.Repository) -> None:
    queue = repo.queue("q", order="strict")
    queue.put_many([b"1", b"2"])
    queue.fence(1)
    assert queue.under(1).get().body == b"1"
    with pytest.raises(rota.Empty):
        queue.under(1).get(timeout=0)
    queue.fence(2)
    assert queue.under(2).get(timeout=0).body == b"1"


@pytest.mark.parametrize("token", [0, -1, 1 << 128])
def test_tokens_are_of_128_bits(repo: rota.Repository, token: int) -> None:
    queue = repo.queue("q")
    for call in (queue.fence, queue.under, repo.transaction):
        with pytest.raises(ValueError, match="a token is above 0"):
            call(token)
        with pytest.raises(TypeError):
            call("7")  # type: ignore[arg-type]
    assert queue.fencing_token is None


def test_the_highest_token(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.fence((1 << 128) - 1)
    assert queue.fencing_token == (1 << 128) - 1
    queue.under((1 << 128) - 1).put(b"1")


@pytest.mark.parametrize("clean", [True, False], ids=["checkpoint", "scan"])
def test_the_fence_survives_a_restart(directory: pathlib.Path, clean: bool) -> None:
    """Also when the last process is killed, at any level: the fence is always synced."""
    path = directory / "r"

    def child(link: Link) -> None:
        repo = rota.open(path, capacity="8 MiB", durability="none")
        queue = repo.queue("q")
        queue.put_many([b"1", b"2"])
        queue.fence(HIGH + 5)
        link.send(queue.under(HIGH + 5).get().body)
        if clean:
            repo.close()
        link.receive(60)

    with Child(child) as worker:
        assert worker.receive() == b"1"
        if clean:
            worker.send("end")
            assert worker.wait() == 0
    with rota.open(path) as repo:
        assert repo.recovery.clean == clean
        queue = repo.queue("q")
        assert queue.fencing_token == HIGH + 5
        with pytest.raises(rota.StaleLeader):
            queue.under(HIGH + 4).put(b"late")
        with pytest.raises(rota.StaleLeader):
            queue.get(timeout=0)
        with pytest.raises(rota.StaleLeader):
            queue.fence(HIGH + 4)
        assert [message.body for message in queue.under(HIGH + 5).get_many(5)] == [b"1", b"2"]


def test_a_queue_that_gets_the_name_again_has_no_fence(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="8 MiB") as repo:
        queue = repo.queue("q")
        queue.fence(7)
        repo.destroy("q")
        with pytest.raises(rota.NotFound):
            queue.fence(8)
        repo.queue("q").put(b"1")
        repo.queue("q").get().ack()
    with rota.open(directory / "r") as repo:
        assert repo.queue("q").fencing_token is None


@pytest.mark.parametrize("dies", [False, True], ids=["frozen", "killed"])
def test_a_leader_that_is_gone_hands_over_at_the_fence(directory: pathlib.Path, dies: bool) -> None:
    """A new leader that dies between its fence and the return of the claims leaves them to the next one."""
    path = directory / "r"

    def old(link: Link) -> None:
        with rota.open(path) as repo:
            queue = repo.queue("q")
            link.send(queue.under(1).get().body)
            link.receive(60)

    def interrupted(link: Link) -> None:
        platform.arm_from("fence.committed=kill")
        with rota.open(path) as repo:
            repo.queue("q").fence(2)

    with rota.open(path, capacity="8 MiB") as repo:
        queue = repo.queue("q")
        queue.fence(1)
        queue.put_many([b"1", b"2"])
        with Child(old) as leader:
            assert leader.receive() == b"1"
            if dies:
                with Child(interrupted) as next_leader:
                    assert next_leader.wait() < 0
                assert queue.stats().claimed == 1
                assert queue.fencing_token == 2
            queue.fence(2)
            assert [m.body for m in queue.under(2).get_many(5)] == [b"1", b"2"]


def test_a_waiter_learns_of_the_fence(directory: pathlib.Path) -> None:
    path = directory / "r"

    def waiter(link: Link) -> None:
        with rota.open(path) as repo:
            queue = repo.queue("q").under(1)
            link.send("waiting")
            with pytest.raises(rota.StaleLeader):
                queue.get()
            link.send("told")

    with rota.open(path, capacity="8 MiB") as repo:
        queue = repo.queue("q")
        queue.fence(1)
        with Child(waiter) as child:
            assert child.receive() == "waiting"
            queue.fence(2)
            assert child.receive(5) == "told"
            assert child.wait() == 0


def test_a_handle_with_a_token_pickles_with_it(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.fence(4)
    copy = pickle.loads(pickle.dumps(queue.under(4)))
    try:
        assert (copy.token, copy.name, queue.token) == (4, "q", None)
        copy.put(b"1")
    finally:
        copy.repository.close()


def test_operators_and_the_engine_need_no_token(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    ids = queue.put_many([b"1", b"2"]).ids
    queue.fence(2)
    queue.stop()
    queue.start()
    assert queue.kill(ids[0])
    queue.configure(lease=10.0)
    assert queue.redrive([ids[1]], repo.queue("other")) == 1
    assert [message.body for message in repo.queue("other").browse()] == [b"2"]


def test_the_dead_give_back_without_a_token(directory: pathlib.Path) -> None:
    """Who takes over from a process that died settles nothing of a living holder."""
    path = directory / "r"

    def holder(link: Link) -> None:
        with rota.open(path) as repo:
            link.send(repo.queue("q").under(2).get().body)
            link.receive(60)

    with rota.open(path, capacity="8 MiB") as repo:
        queue = repo.queue("q")
        queue.put(b"1")
        queue.fence(2)
        with Child(holder) as child:
            assert child.receive() == b"1"
        message = queue.under(2).get(timeout=5)
        assert (message.body, message.attempts) == (b"1", 2)
