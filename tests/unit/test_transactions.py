"""Transactions: all or nothing, savepoints, own messages, limits; what an abort does to attempts and places."""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rota


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", capacity="8 MiB", durability="none") as repository:
        yield repository


def bodies(queue: rota.Queue) -> list[bytes]:
    """What others see, in the order of the queue, without a claim."""
    return [message.body for message in queue.browse()]


# --- commit and abort ------------------------------------------------------------------------------------------------


def test_begin_commit_rollback(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    t = repo.transaction().begin()
    receipt = t.put(queue, b"1")
    assert (receipt.id, receipt.ids, receipt.visible, receipt.durable, receipt.count) == (None, None, False, False, 1)
    assert len(queue) == 0
    t.commit()
    assert receipt.ids == range(queue.peek().id, queue.peek().id + 1) and receipt.visible
    assert t.receipt is not None and t.receipt.ids == receipt.ids
    u = repo.transaction()
    lost = u.put(queue, b"2")
    u.rollback()
    assert (lost.id, lost.visible, lost.count) == (None, False, 0)
    assert bodies(queue) == [b"1"]
    for call in (t.commit, t.rollback, t.savepoint, u.commit, u.begin, lambda: u.put(queue, b"3")):
        with pytest.raises(rota.StateError, match=r"was committed|was rolled back"):
            call()


@pytest.mark.parametrize(
    ("end", "attempts"),
    [
        (lambda t: t.rollback(), 1),
        (lambda t: t.rollback(excused=False), 2),
        (lambda t: t.__exit__(ValueError, ValueError(), None), 2),
        (lambda t: t.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None), 1),
    ],
    ids=["rollback", "rollback that counts", "exception", "interrupt"],
)
def test_an_abort_puts_messages_back_at_their_places(
    repo: rota.Repository, end: Callable[[rota.Transaction], Any], attempts: int
) -> None:
    """SEMANTICS 3.8: at the old place; the attempt counts unless the abort was asked for."""
    queue = repo.queue("q")
    queue.put_many([b"%d" % i for i in range(8)])
    t = repo.transaction()
    assert t.get(queue).body == b"0"
    batch = t.get_many(queue, 3)
    assert batch.bodies == [b"1", b"2", b"3"]
    unseen = t.get_many(queue, 2)  # nobody looks at these two
    assert len(unseen) == 2
    end(t)
    found = {message.body: message.attempts for message in queue.get_many(8)}
    assert list(found) == [b"%d" % i for i in range(8)]
    assert found == {b"%d" % i: attempts if i < 4 else 1 for i in range(8)}
    assert queue.stats().claimed == 8


def test_the_last_attempt_goes_to_the_error_queue(repo: rota.Repository) -> None:
    """SEMANTICS 3.9: the n-th abort moves it, in the step that gives it back."""
    queue = repo.queue("q", max_attempts=2)
    queue.put(b"bad")
    for attempt in (1, 2):
        with contextlib.suppress(ZeroDivisionError), repo.transaction() as t:
            assert t.get(queue).attempts == attempt
            raise ZeroDivisionError
    assert (len(queue), bodies(repo.queue("q.errors"))) == (0, [b"bad"])


def test_an_abort_of_many_is_one_commit(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.put_many([b"x"] * 200)
    t = repo.transaction()
    for _ in range(200):
        t.get(queue)
    before = repo.stats().commits
    t.rollback()
    assert repo.stats().commits == before + 1


def test_a_commit_of_nothing(repo: rota.Repository) -> None:
    before = repo.stats().commits
    with repo.transaction() as t:
        pass
    assert t.receipt is not None and len(t.receipt) == 0
    assert repo.stats().commits == before


def test_puts_of_many_queues_and_priorities_have_their_ids(repo: rota.Repository) -> None:
    queues = [repo.queue(name) for name in "abc"]
    with repo.transaction() as t:
        receipts = [
            (queues[i % 3], t.put(queues[i % 3], b"%d" % i, key=f"k{i}", priority=i % 2 * 9), i) for i in range(30)
        ]
        many = t.put_many(queues[1], [b"m1", bytearray(b"m2")], keys=["a", None])
    assert many.ids is not None
    assert [(m.body, m.key) for m in map(queues[1].read, many.ids)] == [(b"m1", "a"), (b"m2", None)]
    for queue, receipt, i in receipts:
        assert receipt.id is not None
        message = queue.read(receipt.id)
        assert (message.body, message.key, message.priority) == (b"%d" % i, f"k{i}", i % 2 * 9)


def test_a_queue_with_the_number_of_a_destroyed_one_gets_nothing(repo: rota.Repository) -> None:
    queue, other = repo.queue("old", max_attempts=None), repo.queue("other")
    t = repo.transaction()
    t.put(other, b"1")
    t.put(queue, b"2")
    repo.destroy("old")
    repo.queue("new", max_attempts=None)
    with pytest.raises(rota.NotFound):
        t.commit()
    assert (len(other), len(repo.queue("new"))) == (0, 0)


def test_a_transaction_is_of_one_repository(repo: rota.Repository, directory: pathlib.Path) -> None:
    with rota.open(directory / "other", durability="none", capacity="1 MiB") as stranger:
        theirs = stranger.queue("q")
        theirs.put(b"x")
        with repo.transaction() as t:
            for call in (
                lambda: t.put(theirs, b"x"),
                lambda: t.put_many(theirs, [b"x"]),
                lambda: t.get(theirs),
                lambda: t.get_many(theirs, 1),
                lambda: t.ack(theirs.get()),
            ):
                with pytest.raises(rota.StateError, match="another repository"):
                    call()


def test_what_is_foreign_stays_claimed_after_an_abort(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.put_many([b"1", b"2", b"3"])
    message, batch = queue.get(), queue.get_many(2)
    with contextlib.suppress(ZeroDivisionError), repo.transaction() as t:
        t.ack(message)
        t.ack(batch)
        raise ZeroDivisionError
    message.ack()
    batch.ack()
    assert len(queue) == 0


# --- own messages ----------------------------------------------------------------------------------------------------


def test_a_transaction_takes_what_it_put(repo: rota.Repository) -> None:
    """SEMANTICS 3.8: own transaction can dequeue its own uncommitted element; then neither appears."""
    queue = repo.queue("q")
    queue.put(b"committed")
    with repo.transaction() as t:
        first = t.put(queue, b"first", key="k", headers={"n": 1})
        many = t.put_many(queue, [b"m0", b"m1", b"m2"])
        high = t.put(queue, b"high", priority=5)
        t.put(queue, b"late", delay=60)
        assert t.get(queue).body == b"committed"
        taken = [t.get(queue) for _ in range(3)]
        assert [m.body for m in taken] == [b"high", b"first", b"m0"]
        assert (taken[1].id, taken[1].key, taken[1].headers, taken[1].attempts) == (0, "k", {"n": 1}, 1)
        assert (taken[0].priority, taken[0].queue) == (5, queue)
        with pytest.raises(rota.StateError):
            taken[1].ack()
    assert (first.id, high.id, high.count) == (None, None, 0)
    assert many.ids is not None and [queue.read(i).body for i in many.ids] == [b"m1", b"m2"]
    assert sorted(bodies(queue)) == [b"late", b"m1", b"m2"]
    assert taken[0].settled
    assert t.receipt is not None and len(t.receipt) == 3


def test_all_that_was_put_may_be_taken(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    before = repo.stats().commits
    with repo.transaction() as t:
        t.put(queue, b"1")
        assert t.get(queue).body == b"1"
        with pytest.raises(rota.Empty):
            t.get(queue, timeout=0)
    assert repo.stats().commits == before and len(queue) == 0


def test_no_wait_where_an_own_message_is_there(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    begun = time.monotonic()
    with repo.transaction() as t:
        t.put(queue, b"1")
        t.get(queue, timeout=None)
    assert time.monotonic() - begun < 5


def test_counts_are_of_what_others_see(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    with repo.transaction() as t:
        t.put(queue, b"1")
        assert (len(queue), queue.qsize(), bodies(queue)) == (0, 0, [])
    assert len(queue) == 1


# --- savepoints ------------------------------------------------------------------------------------------------------


def test_nested_savepoints(repo: rota.Repository) -> None:
    a, b = repo.queue("a"), repo.queue("b")
    a.put_many([b"1", b"2", b"3"])
    outside = a.get()
    with repo.transaction() as t:
        t.put(b, b"kept")
        assert t.get(a).body == b"2"
        with contextlib.suppress(ZeroDivisionError), t.savepoint():
            assert t.get(a).body == b"3"
            undone = t.put(b, b"undone")
            t.ack(outside)
            with t.savepoint():
                t.put(b, b"undone too")
            raise ZeroDivisionError
        assert a.qsize() == 1  # the third is back, and free
        inner = t.put(b, b"after")
        with t.savepoint() as released:
            t.put(b, b"released")
        with pytest.raises(rota.StateError, match="released"):
            released.rollback()
    assert bodies(b) == [b"kept", b"after", b"released"]
    assert undone.id is None and inner.id is not None and b.read(inner.id).body == b"after"
    outside.ack()
    message = a.get()
    assert (message.body, message.attempts) == (b"3", 1)
    message.ack()
    assert len(a) == 0


def test_a_savepoint_may_be_rolled_back_again(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    with repo.transaction() as t:
        point = t.savepoint()
        later = t.savepoint()
        for i in range(3):
            t.put(queue, b"%d" % i)
            point.rollback()
        with pytest.raises(rota.StateError):
            later.release()
        t.put(queue, b"last")
        point.release()
    assert bodies(queue) == [b"last"]
    with pytest.raises(rota.StateError, match="has ended"):
        point.rollback()


def test_a_savepoint_gives_back_own_messages_to_the_transaction(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    with repo.transaction() as t:
        receipt = t.put_many(queue, [b"1", b"2"])
        with contextlib.suppress(ZeroDivisionError), t.savepoint():
            assert t.get(queue).body == b"1"
            assert receipt.count == 1
            raise ZeroDivisionError
        assert receipt.count == 2
        assert t.get(queue).body == b"1"
    assert bodies(queue) == [b"2"]


def test_a_savepoint_undoes_tags(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    registration = queue.register("me")
    with repo.transaction() as t:
        t.put(queue, b"1")
        t.tag(registration, b"first")
        point = t.savepoint()
        t.tag(registration, b"second")
        point.rollback()
    assert registration.last is not None and registration.last.tag == b"first"


# --- limits ----------------------------------------------------------------------------------------------------------


def test_too_many_bytes(repo: rota.Repository) -> None:
    """Nothing is written, the text says what to do, and the transaction goes on without the message."""
    queue = repo.queue("q")
    limit = repo.stats().segment_size // 4
    with repo.transaction() as t:
        t.put(queue, b"x" * (limit // 2))
        with pytest.raises(rota.TransactionTooLarge, match="use several"):
            t.put(queue, b"x" * (limit // 2))
        with pytest.raises(rota.TransactionTooLarge, match="use several"):
            t.put_many(queue, [b"x" * 1000] * (limit // 2000))
        t.put(queue, b"small")
    assert len(queue) == 2


def test_too_many_operations(directory: pathlib.Path) -> None:
    with rota.open(directory / "large", capacity="128 MiB", durability="none") as repo:
        queue = repo.queue("q")
        queue.put_many([b"x"] * 1100)
        with repo.transaction() as t:
            for _ in range(1024):
                t.get(queue)
            with pytest.raises(rota.TransactionTooLarge, match=r"at most 1024 operations.*get_many"):
                t.get(queue)
        assert len(queue) == 76
        with repo.transaction() as t:
            for _ in range(2000):  # what is put plainly needs no room there
                t.put(queue, b"")


def test_room_that_does_not_come(directory: pathlib.Path) -> None:
    with rota.open(directory / "small", capacity="768 KiB", durability="none") as repo:
        source, target = repo.queue("source"), repo.queue("target", max_messages=1)
        source.put(b"work")
        target.put(b"full")
        begun = time.monotonic()
        t = repo.transaction(timeout=0.1)
        t.get(source)
        t.put(target, b"more")
        with pytest.raises(rota.Full):
            t.commit()
        assert 0.1 <= time.monotonic() - begun < 5
        message = source.get(timeout=0)
        assert (message.body, message.attempts) == (b"work", 1)
    with pytest.raises(ValueError), rota.open(directory / "small") as repo:
        repo.transaction(timeout=-1)


# --- one that is lost ------------------------------------------------------------------------------------------------


def test_a_lost_lease_aborts_all_and_is_named(repo: rota.Repository) -> None:
    short, long = repo.queue("short", lease=0.05), repo.queue("long")
    short.put(b"1")
    long.put(b"2")
    t = repo.transaction()
    lost, held = t.get(short), t.get(long)
    t.put(long, b"3")
    again = short.get(timeout=10)  # after the end of the lease
    assert (again.id, again.attempts) == (lost.id, 2)
    with pytest.raises(rota.LeaseLost) as caught:
        t.commit()
    assert caught.value.id == lost.id
    message = long.get()
    assert (message.id, message.attempts, len(long)) == (held.id, 1, 1)
