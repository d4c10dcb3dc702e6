"""What died with its owner beside others comes one at a time, but not in the way of the transaction that holds it."""

from __future__ import annotations

import os
import pathlib
import signal
import threading

import pytest

import rota
from tests.crash.kit import Child, Link
from tests.crash.workload import SMALL

ATTEMPTS = 3


def dies_with_two(link: Link, path: pathlib.Path) -> None:
    """Take one message of each queue in one transaction; wait to be killed."""
    with rota.open(path, **SMALL) as repo, repo.transaction() as t:
        link.send([t.get(repo.queue(name), timeout=10).body for name in "ab"])
        link.receive()


@pytest.fixture
def repo(directory: pathlib.Path) -> rota.Repository:
    """A repository whose queues hold two suspects, one each."""
    path = directory / "r"
    with rota.open(path, **SMALL) as repo:
        for name in "ab":
            repo.queue(name, max_attempts=ATTEMPTS, indexes=("n",)).put(name.encode(), headers={"n": 1})
    with Child(dies_with_two, path) as child:
        assert child.receive() == [b"a", b"b"]
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    return rota.open(path, **SMALL)


def first(t: rota.Transaction, queue: rota.Queue) -> bytes:
    return bytes(t.get(queue, timeout=5).body)


def where(t: rota.Transaction, queue: rota.Queue) -> bytes:
    return bytes(t.get(queue, timeout=5, where=rota.header("n") == 1).body)


def asked(t: rota.Transaction, queue: rota.Queue) -> bytes:
    return bytes(t.get(queue, timeout=5, where=lambda message: True).body)


def many(t: rota.Transaction, queue: rota.Queue) -> bytes:
    (body,) = t.get_many(queue, 5, timeout=5).bodies
    return bytes(body)


@pytest.mark.parametrize("second", [first, where, asked, many])
@pytest.mark.parametrize("take", [first, where, asked, many])
def test_a_transaction_gets_both_of_two_suspects(repo: rota.Repository, take, second) -> None:  # type: ignore[no-untyped-def]
    with repo:
        with repo.transaction() as t:
            assert (take(t, repo.queue("a")), second(t, repo.queue("b"))) == (b"a", b"b")
        assert (len(repo.queue("a")), len(repo.queue("b"))) == (0, 0)


@pytest.mark.parametrize("suspect_first", [True, False])
def test_a_transaction_gets_a_suspect_and_what_never_was_one(repo: rota.Repository, suspect_first: bool) -> None:
    with repo:
        repo.queue("c").put(b"c")
        names = "ac" if suspect_first else "ca"
        with repo.transaction() as t:
            assert [first(t, repo.queue(name)) for name in names] == [name.encode() for name in names]
        assert len(repo.queue("c")) == 0


def test_others_of_the_process_still_wait_for_the_transaction(repo: rota.Repository) -> None:
    """Another thread gets nothing beside the suspect, nor the suspect beside what it holds; then all of it."""
    with repo:
        repo.queue("c").put_many([b"c", b"d"])
        with repo.transaction() as t, repo.transaction() as other:
            assert first(t, repo.queue("a")) == b"a"
            for name in "bc":
                with pytest.raises(rota.Empty):
                    other.get(repo.queue(name), timeout=0)
                with pytest.raises(rota.Empty):
                    repo.queue(name).get(timeout=0)
            assert first(t, repo.queue("b")) == b"b"
            message = None
            got = threading.Event()

            def wait() -> None:
                nonlocal message
                message = repo.queue("c").get(timeout=10)
                got.set()

            thread = threading.Thread(target=wait)
            thread.start()
            t.commit()
            assert got.wait(10)
            thread.join()
        assert message is not None
        message.ack()


def test_a_savepoint_gives_one_suspect_back_and_the_next_transaction_gets_it(repo: rota.Repository) -> None:
    with repo:
        with repo.transaction() as t:
            assert first(t, repo.queue("a")) == b"a"
            savepoint = t.savepoint()
            assert first(t, repo.queue("b")) == b"b"
            savepoint.rollback()
            assert first(t, repo.queue("b")) == b"b"
            savepoint.rollback()
        message = repo.queue("b").get(timeout=5)
        assert (message.body, message.attempts) == (b"b", 1)
        message.ack()


@pytest.mark.parametrize("beside", [True, False], ids=["beside a survivor", "alone"])
def test_deaths_with_both_come_to_an_end(repo: rota.Repository, beside: bool) -> None:
    """The suspect that came first is charged, the other one is not: it is free when the first is set apart."""
    path = repo.path
    if not beside:
        repo.close()
    for _ in range(ATTEMPTS):
        with Child(dies_with_two, pathlib.Path(path)) as child:
            assert child.receive() == [b"a", b"b"]
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
    if not beside:
        repo = rota.open(path, **SMALL)
    with repo:
        message = repo.queue("b").get(timeout=5)
        assert (message.body, message.attempts) == (b"b", 1)
        message.ack()
        dead = repo.queue("a.errors").get(timeout=5)
        assert dead.body == b"a"
        dead.ack()
