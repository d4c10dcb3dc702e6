"""Replies that the engine gives: one for each request that is killed, expires or uses up its attempts, never two."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota._core.request import encode_request
from tests.asking import CLIENT, answer, ask

SMALL: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}
USED_UP = (b"", b"1", "failed", "the attempts of the request are used up")
KILLED = (b"", b"1", "cancelled", "the request was killed")
EXPIRED = (b"", b"1", "expired", "the request expired before it was processed")


@pytest.fixture
def repo(directory: pathlib.Path) -> Any:
    with rota.open(directory / "r", **SMALL) as opened:
        opened.queue("orders", max_attempts=1)
        opened.queue("replies", max_attempts=None)
        yield opened


def only_answer(repo: rota.Repository) -> tuple[bytes, bytes, str, str | None]:
    found = answer(repo)
    assert len(repo.queue("replies")) == 0
    return found


# --- each way of being set aside -------------------------------------------------------------------------------------


def killed(repo: rota.Repository) -> None:
    assert repo.queue("orders").kill(ask(repo, b"x"))


def killed_while_held(repo: rota.Repository) -> None:
    identity = ask(repo, b"x")
    held = repo.queue("orders").get(timeout=0)
    assert repo.queue("orders").kill(identity)
    with pytest.raises(rota.Killed):
        held.ack()


def killed_by_a_transaction(repo: rota.Repository) -> None:
    identity = ask(repo, b"x")
    with repo.transaction() as t:
        t.put(repo.queue("notes"), b"y")
        before = len(repo.queue("replies"))
        assert t.kill(repo.queue("orders"), identity)
        assert len(repo.queue("replies")) == before
    assert t.receipt is not None
    assert t.receipt.count == 1


def killed_with_its_queue(repo: rota.Repository) -> None:
    ask(repo, b"x")
    repo.destroy("orders", force=True)


def returned(repo: rota.Repository) -> None:
    ask(repo, b"x")
    repo.queue("orders").get(timeout=0).nack()


def aborted(repo: rota.Repository) -> None:
    ask(repo, b"x")
    t = repo.transaction()
    assert t.get(repo.queue("orders"), timeout=0).body == b"x"
    t.rollback(excused=False)


def lease_ended(repo: rota.Repository) -> None:
    ask(repo, b"x")
    orders = repo.queue("orders")
    held = orders.get(timeout=0)
    held.extend(0.01)
    with pytest.raises(rota.Empty):
        orders.get(timeout=0.3)


def expired(repo: rota.Repository) -> None:
    attributes = encode_request(CLIENT, b"1", repo.queue("replies"), expiry_ns=1)
    with repo.transaction() as t:
        t.put_encoded(repo.queue("orders"), b"x", attributes, flags=8)
    with pytest.raises(rota.Empty):
        repo.queue("orders").get(timeout=0.1)


WAYS: dict[str, tuple[Callable[[rota.Repository], None], tuple[bytes, bytes, str, str]]] = {
    "killed": (killed, KILLED),
    "killed while held": (killed_while_held, KILLED),
    "killed by a transaction": (killed_by_a_transaction, KILLED),
    "killed with its queue": (killed_with_its_queue, KILLED),
    "returned": (returned, USED_UP),
    "aborted": (aborted, USED_UP),
    "its lease ended": (lease_ended, USED_UP),
    "expired": (expired, EXPIRED),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_request_that_is_set_aside_is_answered_once(repo: rota.Repository, way: str) -> None:
    WAYS[way][0](repo)
    assert only_answer(repo) == WAYS[way][1]


@pytest.mark.parametrize("hindrance", ["full", "stopped"])
@pytest.mark.parametrize("way", WAYS)
def test_the_reply_is_not_refused(repo: rota.Repository, way: str, hindrance: str) -> None:
    replies = repo.queue("replies")
    replies.configure(max_messages=1)
    replies.put(b"another")
    if hindrance == "stopped":
        replies.stop()
    WAYS[way][0](repo)
    assert len(replies) == 2
    replies.start()
    replies.get(timeout=0).ack()
    assert only_answer(repo) == WAYS[way][1]


@pytest.mark.parametrize("how", ["kill", "nack"])
def test_a_queue_of_replies_that_is_gone_hinders_nothing(repo: rota.Repository, how: str) -> None:
    """A queue that gets its number later gets no reply either."""
    number = repo.queue("replies").number_
    identity = ask(repo, b"x")
    repo.destroy("replies")
    later = repo.queue("later", max_attempts=None)
    assert later.number_ == number, "the number was not given again: this proves nothing"
    if how == "kill":
        assert repo.queue("orders").kill(identity)
    else:
        repo.queue("orders").get(timeout=0).nack()
        assert len(repo.queue("orders.errors")) == 1
    assert len(later) == 0


# --- never two -------------------------------------------------------------------------------------------------------


def test_what_failed_is_not_answered_again_when_it_ends(repo: rota.Repository) -> None:
    identity = ask(repo, b"x")
    repo.queue("orders").get(timeout=0).nack()
    assert only_answer(repo) == USED_UP
    assert repo.queue("orders").kill(identity)
    assert len(repo.queue("replies")) == 0


def test_an_error_queue_that_was_an_ordinary_one_gives_no_second_reply(repo: rota.Repository) -> None:
    repo.queue("triage", max_attempts=None)
    orders = repo.queue("more orders", max_attempts=1, error_queue="triage")
    identity = ask(repo, b"x", queue="more orders")
    orders.get(timeout=0).nack()
    assert only_answer(repo) == USED_UP
    assert repo.queue("triage").kill(identity)
    assert len(repo.queue("replies")) == 0


def test_an_excused_return_and_a_plain_message_give_none(repo: rota.Repository) -> None:
    ask(repo, b"x")
    repo.queue("orders").get(timeout=0).release()
    repo.queue("orders").purge()
    repo.queue("orders").put(b"plain")
    repo.queue("orders").get(timeout=0).nack()
    assert len(repo.queue("orders.errors")) == 1
    assert len(repo.queue("replies")) == 0


def test_a_transaction_that_is_rolled_back_kills_and_answers_nothing(repo: rota.Repository) -> None:
    identity = ask(repo, b"x")
    t = repo.transaction()
    t.kill(repo.queue("orders"), identity)
    t.rollback()
    assert (len(repo.queue("orders")), len(repo.queue("replies"))) == (1, 0)


def test_a_parked_request_is_not_answered_yet(repo: rota.Repository) -> None:
    repo.queue("orders.errors").configure(max_messages=1)
    repo.queue("orders.errors").put(b"full")
    ask(repo, b"x")
    repo.queue("orders").get(timeout=0).nack()
    assert (len(repo.queue("orders")), len(repo.queue("orders.errors")), len(repo.queue("replies"))) == (1, 1, 0)


def test_hundreds_are_answered_in_parts(repo: rota.Repository) -> None:
    """More replies than one commit takes."""
    for number in range(300):
        ask(repo, b"x" * 10, b"%d" % number + b"r" * 100)
    t = repo.transaction()
    assert len(t.get_many(repo.queue("orders"), 300).bodies) == 300
    t.rollback(excused=False)
    assert len(repo.queue("orders.errors")) == 300
    rids = [answer(repo)[1] for _ in range(300)]
    assert len(set(rids)) == 300
