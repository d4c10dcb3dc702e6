"""Sagas: all steps, or the finished ones undone, row by row of what is promised; ids, errors, late messages."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Iterator

import pytest

import rota
from rota._saga_handlers import start
from rota._saga_records import SAGA, TURN, prepared
from tests import sagas
from tests.sagas import AT_ONCE, PATIENCE_S, SMALL, STEPS, ask, identity, is_clean, ledger, plan

UNDONE = {
    "reserve": [],
    "pay": ["reserve", "unreserve"],
    "ship": ["reserve", "pay", "unpay", "unreserve"],
}


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    sagas.reset()
    with rota.open(directory / "r", **SMALL) as found:
        yield found


def server(repo: rota.Repository) -> rota.Server:
    return plan.server(repo, backoff=AT_ONCE)


# --- forward ----------------------------------------------------------------------------------------------------------


def test_all_steps_happen_and_the_last_one_answers(repo: rota.Repository) -> None:
    clerk = ask(repo)
    with server(repo):
        reply = clerk.receive(timeout=PATIENCE_S)
    assert (reply.status, reply.body) == ("ok", b"a lamp reserve pay ship")
    assert ledger(repo) == list(STEPS)
    found = repo.saga("teller-7/1")
    assert (found.state, found.step, found.error, found.message, found.ended) == ("done", "ship", None, 0, True)
    assert found.result == reply.body
    assert repo.sagas() == [found]
    assert is_clean(repo)


def test_started_without_a_clerk_and_only_once(repo: rota.Repository) -> None:
    first = plan.start(repo, b"a lamp", "17")
    assert (first.state, first.step, first.ended) == ("running", "reserve", False)
    assert plan.start(repo, b"another", "17") == first
    sagas.held.add("ship")
    with server(repo):
        assert sagas.reached.wait(PATIENCE_S)
        assert (repo.saga("17").step, repo.saga("17").result) == ("ship", None)
        assert plan.start(repo, b"another", "17").id == "17"
        sagas.hold.set()
    assert repo.saga("17").result == b"a lamp reserve pay ship"
    assert plan.start(repo, b"another", "17").state == "done"
    assert ledger(repo) == list(STEPS)


def test_a_client_that_begins_anew_may_use_its_ids_again(repo: rota.Repository) -> None:
    with server(repo):
        for body in (b"a lamp", b"a chair"):
            clerk = ask(repo, body)
            assert clerk.receive(timeout=PATIENCE_S).body.startswith(body)
            clerk.disconnect()
    assert repo.saga("teller-7/1").result == b"a chair reserve pay ship"
    assert len(repo.queue("rota.sagas")) == 1


def test_an_id_under_way_is_refused_to_a_request(repo: rota.Repository) -> None:
    plan.start(repo, b"mine", "teller-7/1")
    clerk = ask(repo)
    repo.queue("order.reserve").stop()
    with server(repo):
        reply = clerk.receive(timeout=PATIENCE_S)
    assert (reply.status, reply.error) == ("failed", "a saga 'teller-7/1' is under way already")


@pytest.mark.parametrize(
    ("client", "rid", "id"),
    [("a", b"b/c", "a/b%2Fc"), ("a/b", b"c", "a%2Fb/c"), (b"\xff", b"1", "%FF/1"), ("a" * 255, b"1" * 9, None)],
)
def test_ids_of_requests_are_different(client: str | bytes, rid: bytes, id: str | None) -> None:
    found = plan.id_of(client, rid)
    assert found == id if id else len(found) == 64


# --- back -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("way", ["refused", "raises"])
def test_a_step_that_fails_undoes_the_finished_ones_last_first(repo: rota.Repository, step: str, way: str) -> None:
    sagas.fails[step] = rota.Refused("sold out") if way == "refused" else RuntimeError("no lamp")
    clerk = ask(repo)
    with server(repo):
        reply = clerk.receive(timeout=PATIENCE_S)
    error = f"{step}: sold out" if way == "refused" else f"{step}: RuntimeError: no lamp"
    assert (reply.status, reply.error) == ("failed", error)
    assert ledger(repo) == UNDONE[step]
    assert sagas.seen.count(step) == (1 if way == "refused" else 3)
    found = repo.saga(identity(clerk))
    assert (found.state, found.error, found.result) == ("failed", error, None)
    assert is_clean(repo)


@pytest.mark.parametrize("step", STEPS)
def test_a_cancel_kills_the_step_under_way_and_undoes_the_finished_ones(repo: rota.Repository, step: str) -> None:
    sagas.held.add(step)
    clerk = ask(repo)
    with server(repo):
        assert sagas.reached.wait(PATIENCE_S)
        found = repo.saga(identity(clerk))
        assert found.step == step
        assert found.cancel()
        assert found.cancel(), "a second one says the same"
        sagas.hold.set()
        reply = clerk.receive(timeout=PATIENCE_S)
    assert (reply.status, reply.error) == ("cancelled", "cancelled")
    assert ledger(repo) == UNDONE[step]
    assert repo.saga(identity(clerk)).state == "cancelled"
    assert is_clean(repo)


@pytest.mark.parametrize("step", STEPS)
def test_a_cancel_of_a_step_that_waits(repo: rota.Repository, step: str) -> None:
    for each in STEPS[: STEPS.index(step)]:
        plan.start(repo, b"a lamp", "17")
        with plan.server(repo, steps=[each], backoff=AT_ONCE):
            message = repo.queue(f"order.{STEPS[STEPS.index(each) + 1]}").get(timeout=PATIENCE_S)
            message.release()
    found = plan.start(repo, b"a lamp", "17")
    assert found.step == step and found.cancel()
    with server(repo) as serving:
        while not repo.saga("17").ended:
            assert serving.running
    assert (repo.saga("17").state, ledger(repo)) == ("cancelled", UNDONE[step])
    assert is_clean(repo)


def test_a_cancel_comes_too_late(repo: rota.Repository) -> None:
    clerk = ask(repo)
    with server(repo):
        clerk.receive(timeout=PATIENCE_S)
    assert not repo.saga("teller-7/1").cancel()
    assert (repo.saga("teller-7/1").state, ledger(repo)) == ("done", list(STEPS))


def test_a_cancel_of_what_fails_already_is_no_cancel(repo: rota.Repository) -> None:
    sagas.fails["ship"] = rota.Refused("sold out")
    sagas.held.add("unpay")
    clerk = ask(repo)
    with server(repo):
        assert sagas.reached.wait(PATIENCE_S)
        assert (repo.saga("teller-7/1").state, repo.saga("teller-7/1").step) == ("compensating", "pay")
        assert not repo.saga("teller-7/1").cancel()
        sagas.hold.set()
        assert clerk.receive(timeout=PATIENCE_S).status == "failed"
    assert ledger(repo) == UNDONE["ship"]


def test_a_message_killed_alone_leaves_the_way_back(repo: rota.Repository) -> None:
    found = plan.start(repo, b"a lamp", "17")
    repo.queue("order.reserve").kill(found.message)
    assert repo.saga("17").cancel()
    assert repo.saga("17").state == "cancelled"


def test_an_undo_is_tried_until_it_succeeds_and_somebody_is_told(
    repo: rota.Repository, caplog: pytest.LogCaptureFixture
) -> None:
    sagas.fails |= {"ship": rota.Refused("sold out"), "unpay": RuntimeError("the bank is closed")}
    clerk = ask(repo)
    with caplog.at_level(logging.ERROR, "rota"), server(repo):
        told = repo.queue("order.stuck").get(timeout=PATIENCE_S)
        assert (told.key, told.headers, told.body) == (
            b"teller-7/1", {"step": "pay"}, b"RuntimeError: the bank is closed")  # fmt: skip
        told.ack()
        del sagas.fails["unpay"]
        assert clerk.receive(timeout=PATIENCE_S).status == "failed"
    assert sagas.seen.count("unpay") > 5
    assert ledger(repo) == UNDONE["ship"]
    assert "fails again and again" in caplog.text


def test_what_a_failing_step_put_is_dropped_and_what_not_now_asks_for_happens(repo: rota.Repository) -> None:
    sagas.fails["pay"] = rota.NotNow(0.0)
    sagas.held.add("pay")
    clerk = ask(repo)
    with server(repo):
        assert sagas.reached.wait(PATIENCE_S)
        sagas.reached.clear()
        sagas.hold.set()
        assert sagas.reached.wait(PATIENCE_S)
        sagas.fails.clear()
        assert clerk.receive(timeout=PATIENCE_S).status == "ok"
    assert sagas.seen.count("pay") > 1
    assert ledger(repo) == list(STEPS)


# --- late and strange -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["order.pay", "order.pay.undo", "order.failed"])
@pytest.mark.parametrize("turn", [1, 3, None])
def test_a_message_of_another_turn_has_no_effect(repo: rota.Repository, queue: str, turn: int | None) -> None:
    """At turn 2 the saga waits for its step "pay"."""
    plan.start(repo, b"a lamp", "17")
    with plan.server(repo, steps=["reserve"], backoff=AT_ONCE):
        repo.queue("order.pay").get(timeout=PATIENCE_S).release()
    before = repo.saga("17")
    headers: dict[str, str | int] = {} if turn is None else {SAGA: "17", TURN: turn}
    repo.queue("order.pay").kill(before.message)
    repo.queue(queue).put(b"money back", headers=headers)
    with server(repo) as serving:
        while len(repo.queue(queue)):
            assert serving.running
    assert (repo.saga("17"), ledger(repo)) == (before, ["reserve"])


def test_the_right_turn_in_the_wrong_direction_has_no_effect(repo: rota.Repository) -> None:
    plan.start(repo, b"a lamp", "17")
    with plan.server(repo, steps=["reserve"], backoff=AT_ONCE):
        repo.queue("order.pay").get(timeout=PATIENCE_S).release()
    repo.queue("order.pay").stop()
    repo.queue("order.pay.undo").put(b"money back", headers={SAGA: "17", TURN: 2})
    with server(repo) as serving:
        while len(repo.queue("order.pay.undo")):
            assert serving.running
    assert ledger(repo) == ["reserve"]


def test_forgotten(repo: rota.Repository) -> None:
    found = plan.start(repo, b"a lamp", "17")
    with pytest.raises(rota.StateError, match="is running"):
        found.forget()
    sagas.held.add("ship")
    with server(repo):
        assert sagas.reached.wait(PATIENCE_S)
        sagas.hold.set()
    found.forget()
    found.forget()
    assert (repo.sagas(), len(repo.queue("rota.sagas"))) == ([], 0)
    assert [each.name for each in repo.registrations()] == ["lamps"], "a lock, which is free"
    for call in (lambda: repo.saga("17"), found.cancel):
        with pytest.raises(rota.NotFound, match="no saga '17'"):
            call()


@pytest.mark.parametrize("fails", [False, True])
def test_not_kept(repo: rota.Repository, fails: bool) -> None:
    brief = rota.SagaPlan("brief", keep=False)

    def undo(step: rota.SagaStep) -> None:
        with pytest.raises(rota.StateError, match="is being undone"):
            step.undo_with(b"")

    brief.step("one", undo=undo)(lambda step: None)

    @brief.step("two")
    def two(step: rota.SagaStep) -> None:
        assert (step.id, step.body, step.attempts, step.error) == ("clerk/1", b"body", 1, None)
        if fails:
            raise rota.Refused("no")

    clerk = repo.clerk("clerk", "brief")
    clerk.connect()
    clerk.send(b"body")
    with brief.server(repo):
        assert clerk.receive(timeout=PATIENCE_S).status == ("failed" if fails else "ok")
    assert (repo.sagas(), len(repo.queue("rota.sagas"))) == ([], 0)


def test_a_record_of_another_version_is_told(repo: rota.Repository) -> None:
    plan.start(repo, b"a lamp", "17")
    with repo.transaction() as transaction:
        transaction.tag(repo.queue("rota.sagas").register("17"), b"[9]", of=False)
    with pytest.raises(rota.Corrupt, match="no record of this version: version 9"):
        repo.saga("17")


def test_plans_are_checked(repo: rota.Repository) -> None:
    empty = rota.SagaPlan("empty")
    with pytest.raises(rota.StateError, match="no steps"):
        empty.start(repo, b"", "1")
    for wrong in ("", "a.b", "a" * 61, "failed", "stuck"):
        with pytest.raises(ValueError, match=r"name of a step|already"):
            empty.step(wrong)
    with pytest.raises(ValueError, match="name of a plan"):
        rota.SagaPlan("a b")
    with pytest.raises(ValueError, match="max_attempts is 1 to 1000"):
        rota.SagaPlan("a", max_attempts=0)
    with pytest.raises(ValueError, match="no step 'nothing'"):
        plan.server(repo, steps=["nothing"])
    for number in range(64):
        empty.step(f"s{number}")(lambda step: None)
    with pytest.raises(ValueError, match="at most 64 steps"):
        empty.step("s64")
    assert (plan.steps, repr(plan)) == (STEPS, "<rota.SagaPlan 'order': reserve, pay, ship>")


def test_of_two_starts_that_saw_nothing_one_is_refused(repo: rota.Repository) -> None:
    plan.start(repo, b"", "1").cancel()
    books = [prepared(repo, "17") for _ in range(2)]
    record = plan._first()
    with repo.transaction() as transaction:
        start(transaction, books[0], record, b"a lamp")
    with pytest.raises(rota.Conflict), repo.transaction() as transaction:
        start(transaction, books[1], record, b"a chair")
    assert len(repo.queue("order.reserve")) == 1
