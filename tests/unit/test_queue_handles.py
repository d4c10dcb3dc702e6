"""Handles that are used too late, in the wrong process, or for the wrong repository: an error, never a fault."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import rota
from tests.crash.kit import Child, Link

CALLS: dict[str, Callable[[Any], Any]] = {
    "put": lambda u: u.queue.put(b"x"),
    "put_many": lambda u: u.queue.put_many([b"x"]),
    "put_array": lambda u: u.queue.put_array(numpy.zeros(3)),
    "get": lambda u: u.queue.get(timeout=0),
    "get_many": lambda u: u.queue.get_many(3),
    "get_array": lambda u: u.queue.get_array(3, "u1"),
    "qsize": lambda u: u.queue.qsize(),
    "empty": lambda u: u.queue.empty(),
    "full": lambda u: u.queue.full(),
    "len": lambda u: len(u.queue),
    "stats": lambda u: u.queue.stats(),
    "figures": lambda u: u.queue.figures(),
    "peek": lambda u: u.queue.peek(),
    "browse": lambda u: list(u.queue.browse()),
    "read": lambda u: u.queue.read(u.receipt.id),
    "kill": lambda u: u.queue.kill(u.receipt.id),
    "purge": lambda u: u.queue.purge(),
    "stop": lambda u: u.queue.stop(),
    "configure": lambda u: u.queue.configure(lease=3.0),
    "register": lambda u: u.queue.register("me"),
    "redrive": lambda u: u.queue.redrive([u.receipt.id]),
    "message.body": lambda u: u.batch[0].body,
    "message.key": lambda u: u.batch[1].key,
    "message.headers": lambda u: u.batch[1].headers,
    "message.enqueued_at": lambda u: u.batch[1].enqueued_at,
    "message.ack": lambda u: u.message.ack(),
    "message.nack": lambda u: u.message.nack(),
    "message.release": lambda u: u.message.release(),
    "message.extend": lambda u: u.message.extend(3),
    "batch.bodies": lambda u: u.batch.bodies,
    "batch.ids": lambda u: u.batch.ids,
    "batch.ack": lambda u: u.batch.ack(),
    "batch.nack": lambda u: u.batch.nack(),
    "batch.release": lambda u: u.batch.release(),
    "batch.extend": lambda u: u.batch.extend(3),
    "queue.ack": lambda u: u.queue.ack([u.message]),
    "receipt.durable": lambda u: u.receipt.durable,
    "receipt.wait": lambda u: u.receipt.wait(0),
    "transaction": lambda u: u.repo.transaction(),
    "transaction.get": lambda u: u.transaction.get(u.queue),
    "transaction.put": lambda u: u.transaction.put(u.queue, b"x"),
    "transaction.commit": lambda u: u.transaction.commit(),
    "transaction.rollback": lambda u: u.transaction.rollback(),
    "repo.queue": lambda u: u.repo.queue("other"),
    "repo.queues": lambda u: u.repo.queues(),
    "repo.stats": lambda u: u.repo.stats(),
    "repo.sync": lambda u: u.repo.sync(),
    "repo.destroy": lambda u: u.repo.destroy("q"),
}


class Used:
    """A repository with one of everything in use."""

    def __init__(self, path: pathlib.Path) -> None:
        self.repo = rota.open(path, capacity="1 MiB", durability="none")
        self.queue = self.repo.queue("q")
        self.receipt = self.queue.put_many([b"%d" % i for i in range(10)])
        self.message = self.queue.get()
        self.batch = self.queue.get_many(3)
        self.transaction = self.repo.transaction()
        self.transaction.get(self.queue)
        self.transaction.put(self.queue, b"t")


def refused(link: Link, used: Used, call: str, error: type[Exception]) -> None:
    """The call raises just this; reprs work."""
    with pytest.raises(error):
        CALLS[call](used)
    for thing in (used.repo, used.queue, used.message, used.batch, used.receipt, used.transaction):
        repr(thing)


def closed(link: Link, path: pathlib.Path, call: str) -> None:
    used = Used(path)
    used.repo.close()
    refused(link, used, call, rota.ClosedError)


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_handle_says_so(directory: pathlib.Path, call: str) -> None:
    with Child(closed, directory / "r", call) as child:
        child.finish()


@pytest.mark.parametrize("call", CALLS)
def test_a_forked_handle_says_so(directory: pathlib.Path, call: str) -> None:
    used = Used(directory / "r")
    with used.repo:
        with Child(refused, used, call, rota.ForkedHandleError) as child:
            child.finish()
        used.message.ack()
        used.batch.ack()
        used.transaction.rollback()
        assert len(used.queue) == 6


# --- the wrong object ------------------------------------------------------------------------------------------------


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", capacity="1 MiB", durability="none") as opened:
        yield opened


def test_a_queue_that_was_made_again_is_not_the_old_one(repo: rota.Repository) -> None:
    old = repo.queue("q", max_attempts=None)
    repo.destroy("q")
    new = repo.queue("q", max_attempts=None)
    for call in (
        lambda: old.put(b"x"),
        lambda: old.put(b"x" * 10_000),
        lambda: old.put(b"x", key="k"),
        lambda: old.put_many([b"x"]),
        lambda: old.put_array(numpy.zeros(3)),
        lambda: old.get(timeout=0),
        lambda: old.get_many(1),
        old.qsize,
        old.stop,
        lambda: old.configure(lease=1),
        lambda: old.register("me"),
        old.purge,
    ):
        with pytest.raises(rota.NotFound):
            call()
    with pytest.raises(rota.NotFound), repo.transaction() as t:
        t.put(old, b"x")
    assert len(new) == 0


def test_settling_twice_in_one_call_settles_once(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.put_many([b"%d" % i for i in range(6)])
    one = queue.get()
    queue.ack([one, one])
    batch = queue.get_many(3)
    message = batch[0]
    with repo.transaction() as t:
        t.ack(batch)
        with pytest.raises(rota.StateError):
            t.ack(message)
        with pytest.raises(rota.StateError):
            t.ack(batch)
    figures = queue.stats()
    assert (figures.claimed, figures.total, figures.ready) == (0, 2, 2)
    other = queue.get()
    with repo.transaction() as t:
        t.ack(other)
        with pytest.raises(rota.StateError):
            t.ack(other)
        with pytest.raises(rota.StateError):
            other.ack()
    assert queue.stats().claimed == 0
    assert len(queue) == 1


def test_an_ack_of_a_transaction_that_aborts_leaves_the_claim(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.put(b"x")
    message = queue.get()
    t = repo.transaction()
    t.ack(message)
    t.rollback()
    message.ack()
    assert len(queue) == 0


def test_messages_of_another_repository_are_refused(repo: rota.Repository, directory: pathlib.Path) -> None:
    with rota.open(directory / "other", capacity="1 MiB", durability="none") as other:
        mine, theirs = repo.queue("q"), other.queue("q")
        mine.put_many([b"mine", b"mine too"])
        theirs.put_many([b"theirs", b"theirs too"])
        own, foreign = mine.get(), theirs.get()
        batch = theirs.get_many(1)
        acks: list[Callable[[], object]] = [lambda: mine.ack([foreign]), lambda: mine.ack([own, foreign])]
        for call in acks:
            with pytest.raises(rota.Misuse):
                call()
        with repo.transaction() as t:
            calls: list[Callable[[], object]] = [
                lambda: t.ack(foreign),
                lambda: t.ack(batch),
                lambda: t.get(theirs),
                lambda: t.get_many(theirs, 1),
                lambda: t.put(theirs, b"x"),
                lambda: t.put_many(theirs, [b"x"]),
            ]
            for call in calls:
                with pytest.raises(rota.Misuse):
                    call()
        with pytest.raises(rota.Misuse):
            mine.redrive([own.id], target=theirs)
        own.ack()
        foreign.ack()
        batch.ack()
        assert (len(mine), len(theirs)) == (1, 0)


def test_hands_that_hold_nothing_settle_nothing(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.put(b"x")
    queue.ack([])
    with pytest.raises(rota.StateError):
        queue.peek().ack()
    with pytest.raises(rota.StateError):
        queue.ack([queue.peek()])
    with pytest.raises(TypeError):
        queue.ack([b"x"])  # type: ignore[list-item]
    queue.get_many(0).ack()
    assert len(queue) == 1


@pytest.mark.parametrize("thing", ["message", "batch", "transaction", "receipt"])
def test_claims_do_not_pickle(repo: rota.Repository, thing: str) -> None:
    queue = repo.queue("q")
    receipt = queue.put_many([b"1", b"2"])
    things = {"message": queue.get(), "batch": queue.get_many(1), "transaction": repo.transaction(), "receipt": receipt}
    with pytest.raises(TypeError):
        pickle.dumps(things[thing])


def test_repository_and_queue_pickle_as_names(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.put(b"x")
    again = pickle.loads(pickle.dumps(repo))
    with again:
        assert again.queue("q").get(timeout=0).body == b"x"
    copy = pickle.loads(pickle.dumps(queue))
    with copy.repository:
        assert (copy.name, len(copy)) == ("q", 1)


@pytest.mark.parametrize("name", ["\udcff", "a\0b", "ä" * 120, "x" * 248, "../up", " "])
def test_odd_names_go_round(repo: rota.Repository, name: str) -> None:
    repo.queue(name, max_attempts=None).put(b"x")
    assert name in repo.queues()
    assert repo.queue(name).get(timeout=0).body == b"x"


@pytest.mark.parametrize("name", ["", "x" * 256, "ä" * 128, "\ud800"])
def test_impossible_names_are_refused(repo: rota.Repository, name: str) -> None:
    with pytest.raises(ValueError):
        repo.queue(name, max_attempts=None)
    assert repo.queues() == []


def test_an_unclosed_repository_warns(directory: pathlib.Path) -> None:
    opened = rota.open(directory / "r", capacity="1 MiB", durability="none")
    with pytest.warns(ResourceWarning):
        del opened


# --- processes and threads -------------------------------------------------------------------------------------------


def test_the_end_of_a_forked_child_leaves_the_slot_of_its_parent(directory: pathlib.Path) -> None:
    """A child that ends takes neither the lock of the parent's slot nor its claims with it."""
    with rota.open(directory / "r", capacity="1 MiB", durability="none") as repo:
        queue = repo.queue("q")
        queue.put_many([b"1", b"2"])
        message = queue.get()
        with Child(lambda link: link.send("here")) as child:
            child.finish()
        with Child(other_process, directory / "r") as child:
            assert child.receive() == [b"2"]
            child.finish()
        message.ack()
        assert len(queue) == 0


def other_process(link: Link, path: pathlib.Path) -> None:
    """Take what is free; the parent's message must not be."""
    with rota.open(path) as repo:
        taken = []
        queue = repo.queue("q")
        for message in iter(lambda: next(iter(queue.get_many(1, timeout=0.3)), None), None):
            taken.append(message.body)
            message.ack()
        link.send(taken)


def test_a_living_child_does_not_hold_the_slot_of_a_dead_parent(directory: pathlib.Path) -> None:
    """The grandchild lives on with copies of all descriptors; the death of its parent is noticed all the same."""
    with rota.open(directory / "r", capacity="1 MiB", durability="none") as repo:
        queue = repo.queue("q")
        queue.put(b"x")
        with Child(dies_before_its_child, directory / "r") as child:
            grandchild = child.receive()
            child.wait()
            assert queue.get(timeout=2).attempts == 2
            os.kill(grandchild, signal.SIGKILL)
            os.waitpid(grandchild, 0)


def dies_before_its_child(link: Link, path: pathlib.Path) -> None:
    repo = rota.open(path)
    repo.queue("q").get()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)
        while True:
            signal.pause()
    link.send(pid)
    os.kill(os.getpid(), signal.SIGKILL)


def consume(queue: rota.Queue, results: Any) -> None:
    """Runs in a process of multiprocessing, which unpickled the queue."""
    bodies = []
    for message in iter(lambda: next(iter(queue.get_many(1)), None), None):
        bodies.append(message.body)
        message.ack()
    queue.repository.close()
    results.put(bodies)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_queue_goes_to_a_new_process(directory: pathlib.Path, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    with rota.open(directory / "r", capacity="1 MiB", durability="none") as repo:
        queue = repo.queue("q")
        queue.put_many([b"1", b"2", b"3"])
        results = context.SimpleQueue()
        process = context.Process(target=consume, args=(queue, results))
        process.start()
        assert results.get() == [b"1", b"2", b"3"]
        process.join(20)
        assert process.exitcode == 0
        results.close()
        assert len(queue) == 0


def test_threads_share_a_queue(directory: pathlib.Path) -> None:
    """Every message reaches one thread, and close() waits for those inside."""
    with rota.open(directory / "r", capacity="4 MiB", durability="none") as repo:
        queue = repo.queue("q")
        taken: list[bytes] = []
        failures: list[BaseException] = []

        def produce(number: int) -> None:
            for i in range(300):
                queue.put(b"%d-%d" % (number, i))

        def take() -> None:
            try:
                while True:
                    with queue.get(timeout=5) as message:
                        if message.body == b"end":
                            return
                        taken.append(message.body)
            except BaseException as error:
                failures.append(error)

        takers = [threading.Thread(target=take) for _ in range(4)]
        makers = [threading.Thread(target=produce, args=(i,)) for i in range(4)]
        for thread in takers + makers:
            thread.start()
        for thread in makers:
            thread.join()
        queue.put_many([b"end"] * 4)
        for thread in takers:
            thread.join()
        assert not failures
        assert sorted(taken) == sorted(b"%d-%d" % (n, i) for n in range(4) for i in range(300))
        assert len(queue) == 0


def test_close_ends_the_waits_of_other_threads(directory: pathlib.Path) -> None:
    repo = rota.open(directory / "r", capacity="1 MiB", durability="none")
    queue = repo.queue("q")
    waiting = threading.Event()
    raised: list[BaseException] = []

    def wait() -> None:
        waiting.set()
        try:
            queue.get()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    waiting.wait()
    repo.close()
    for thread in threads:
        thread.join(5)
    assert [type(error) for error in raised] == [rota.ClosedError] * 3


@pytest.mark.parametrize("how", ["rollback", "exception", "lost"])
def test_an_abort_gives_back_what_was_looked_at(repo: rota.Repository, how: str) -> None:
    """Whatever of a batch was made into messages, shown or not: all of it is ready again."""
    queue = repo.queue("q")
    queue.put_many([b"%d" % i for i in range(6)])
    foreign = queue.get_many(2)
    t = repo.transaction()
    batch = t.get_many(queue, 3)
    assert batch[0].body == b"2"
    single = t.get(queue)
    t.ack(foreign)
    t.put(queue, b"never")
    if how == "rollback":
        t.rollback()
    elif how == "exception":
        with pytest.raises(ZeroDivisionError), t:
            raise ZeroDivisionError
    else:
        queue.kill(single.id)
        with pytest.raises(rota.Killed):
            t.commit()
    foreign.ack()
    left = sorted(message.body for message in queue.get_many(10))
    assert left == [b"2", b"3", b"4", b"5"][: 3 if how == "lost" else 4]


def test_a_forced_end_of_a_queue_kills_what_is_held(repo: rota.Repository) -> None:
    """Who holds a message is told, and the next queue of that number starts from nothing."""
    queue = repo.queue("q", max_attempts=None)
    queue.put_many([b"%d" % i for i in range(8)])
    one, two, three = queue.get(), queue.get(), queue.get()
    batch, transaction = queue.get_many(2), repo.transaction()
    transaction.get(queue)
    with pytest.raises(rota.InUse):
        repo.destroy("q")
    repo.destroy("q", force=True)
    for call in (one.ack, two.nack, three.release, batch.ack, transaction.commit):
        with pytest.raises((rota.Killed, rota.LeaseLost)):
            call()
    again = repo.queue("q", max_attempts=None)
    again.put(b"x")
    again.get().ack()
    assert (again.stats().claimed, again.stats().total) == (0, 0)


def test_an_error_queue_in_use_is_not_destroyed(repo: rota.Repository) -> None:
    repo.queue("q")
    with pytest.raises(rota.InUse):
        repo.destroy("q.errors")
    repo.destroy("q")
    repo.destroy("q.errors")
    assert repo.queues() == []
