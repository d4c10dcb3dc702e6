"""Named locks of a saga: taken with a step's commit, kept across steps and restarts, freed by the end."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

import rota
from rota._saga_records import take_lock
from tests.sagas import AT_ONCE, PATIENCE_S, SMALL

transfer = rota.SagaPlan("transfer")
WAITS = 0.001


def back(step: rota.SagaStep) -> None:
    with pytest.raises(rota.StateError, match="keeps its locks"):
        step.lock("account 7")


@transfer.step("take", undo=back)
def take(step: rota.SagaStep) -> None:
    step.lock("account 7", WAITS)
    step.lock("account 7")
    step.transaction.put(step.repository.queue("entries"), b"take " + step.body)


@transfer.step("give")
def give(step: rota.SagaStep) -> None:
    step.lock("account 7", WAITS)
    if step.body == b"refused":
        raise rota.Refused("no")
    step.transaction.put(step.repository.queue("entries"), b"give " + step.body)


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", **SMALL) as found:
        yield found


def holder(repo: rota.Repository) -> bytes:
    last = repo.queue("rota.locks", max_attempts=None).register("account 7").last
    return b"" if last is None else last.tag


def test_two_sagas_run_as_if_one_after_the_other(repo: rota.Repository) -> None:
    clerk = repo.clerk("teller", "transfer", window=8)
    clerk.connect()
    with transfer.server(repo, threads=3, backoff=AT_ONCE):
        for number in range(8):
            clerk.send(b"refused" if number == 3 else b"%d" % number)
        replies = [clerk.receive(timeout=PATIENCE_S) for _ in range(8)]
    assert sorted(reply.status for reply in replies) == ["failed"] + ["ok"] * 7
    entries = [entry.body.split() for entry in repo.queue("entries").browse()]
    entries.remove([b"take", b"refused"])
    assert [[verb, entries[at][1]] for at in range(0, 14, 2) for verb in (b"take", b"give")] == entries
    assert holder(repo) == b""


def test_kept_between_two_steps_and_across_a_reopening_and_freed_by_a_cancel(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        transfer.start(repo, b"1", "one")
        with transfer.server(repo, steps=["take"]):
            repo.queue("transfer.give").get(timeout=PATIENCE_S).release()
    with rota.open(directory / "r", **SMALL) as repo:
        assert holder(repo) == b"one"
        transaction = repo.transaction()
        assert not take_lock(transaction, "two", "account 7")
        transaction.rollback()
        assert repo.saga("one").cancel()
        assert holder(repo) == b"one", "it is kept until it is undone"
        with transfer.server(repo) as server:
            while not repo.saga("one").ended:
                assert server.running
        assert holder(repo) == b""


def test_of_two_that_saw_it_free_one_is_refused(repo: rota.Repository) -> None:
    first, second = repo.transaction(), repo.transaction()
    assert take_lock(first, "one", "account 7") and take_lock(second, "two", "account 7")
    first.commit()
    with pytest.raises(rota.Conflict):
        second.commit()
    assert holder(repo) == b"one"


def test_the_end_frees_as_many_locks_as_a_saga_may_have(repo: rota.Repository) -> None:
    many, errors = rota.SagaPlan("many"), []

    def lock_half(step: rota.SagaStep) -> None:
        for number in range(50):
            step.lock(f"{step.body.decode()} {number}")

    @many.step("first", undo=lambda step: None)
    def first(step: rota.SagaStep) -> bytes:
        lock_half(step)
        return b"two"

    @many.step("second")
    def second(step: rota.SagaStep) -> None:
        lock_half(step)
        step.lock("two 0")
        with pytest.raises(ValueError, match="at most 100 locks") as caught:
            step.lock("one more")
        errors.append(caught.value)

    many.start(repo, b"one", "many locks")
    with many.server(repo) as server:
        while not repo.saga("many locks").ended:
            assert server.running
    assert errors and repo.saga("many locks").state == "done"
    queue = repo.queue("rota.locks", max_attempts=None)
    for name in [f"{half} {number}" for half in ("one", "two") for number in range(50)]:
        last = queue.register(name).last
        assert last is not None and last.tag == b""


def test_a_lock_of_the_last_step_is_free_after_it_and_refuses_who_took_it_meanwhile(repo: rota.Repository) -> None:
    first, second = repo.transaction(), repo.transaction()
    assert take_lock(first, "one", "account 7", is_kept=False) and take_lock(second, "two", "account 7")
    first.commit()
    with pytest.raises(rota.Conflict):
        second.commit()
    assert holder(repo) == b""
