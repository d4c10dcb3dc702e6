"""What requests and replies carry, and that an answer is never refused by its queue."""

from __future__ import annotations

import pathlib
from typing import Any, Literal

import pytest

import rota
from rota import inspection
from rota._core.request import (
    STATUSES,
    attributes_in,
    carried_by,
    encode_reply,
    encode_request,
    reply_of,
    waiting_for,
)

SMALL: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}
CLIENT, RID = b"teller-7", b"42"


def put_request(repo: rota.Repository, **more: Any) -> None:
    with repo.transaction() as transaction:
        attributes = encode_request(CLIENT, RID, repo.queue("replies"), **more)
        transaction.put_encoded(repo.queue("requests"), b"two tickets", attributes)


def test_a_request_says_who_waits_and_where_after_reopening_too(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        put_request(repo, key="k", headers={"amount": 3})
    with rota.open(directory / "r", **SMALL) as repo:
        message = repo.queue("requests").get(timeout=0)
        assert (message.body, message.key, message.headers) == (b"two tickets", "k", {"amount": 3})
        found = waiting_for(message, repo)
        assert found is not None
        assert (found[0].name, found[1:]) == ("replies", (CLIENT, RID))
        assert reply_of(message) is None


def test_a_message_that_is_no_request_waits_for_nothing(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("requests")
        queue.put(b"plain", key="k")
        message = queue.get(timeout=0)
        assert (carried_by(message), waiting_for(message, repo), reply_of(message)) == (None, None, None)
        with repo.transaction() as transaction:
            transaction.put_encoded(queue, b"one way", encode_request(CLIENT, RID))
        message = queue.get(timeout=0)
        assert carried_by(message) == (CLIENT, RID, None)
        assert waiting_for(message, repo) is None


def test_a_queue_made_later_under_the_number_gets_no_reply(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        requests, replies = repo.queue("requests"), repo.queue("replies", max_attempts=None)
        put_request(repo)
        repo.destroy("replies")
        other = repo.queue("other", max_attempts=None)
        assert other.number_ == replies.number_, "the number was not given again: this proves nothing"
        message = requests.get(timeout=0)
        assert carried_by(message) is not None
        assert waiting_for(message, repo) is None


@pytest.mark.parametrize("status", STATUSES)
def test_a_reply_carries_its_status(
    directory: pathlib.Path, status: Literal["ok", "failed", "cancelled", "expired"]
) -> None:
    error = None if status == "ok" else "no seat \N{SNOWMAN}"
    with rota.open(directory / "r", **SMALL) as repo:
        replies = repo.queue("replies", indexes=("key",))
        with repo.transaction() as transaction:
            transaction.put_encoded(replies, b"body", encode_reply(CLIENT, RID, status, error), answer=True)
        (message,) = replies.find(key=CLIENT)
        assert reply_of(message) == (CLIENT, RID, status, error)
        assert carried_by(message) is None
        (stored,) = (found for _, found in inspection.live(directory / "r"))
        assert stored.attributes["status"] == STATUSES.index(status)
        assert stored.attributes["client"] == CLIENT


@pytest.mark.parametrize(
    ("client", "rid", "error"),
    [(b"", b"1", ValueError), (b"c", b"", ValueError), (b"c" * 256, b"1", ValueError), ("c", b"1", TypeError)],
    ids=["no client", "no rid", "long client", "text"],
)
def test_what_no_request_can_carry_is_refused(client: Any, rid: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        encode_request(client, rid)
    with pytest.raises(error):
        encode_reply(client, rid)


def test_a_reply_has_one_of_four_statuses() -> None:
    with pytest.raises(ValueError, match="lost"):
        encode_reply(CLIENT, RID, "lost")  # type: ignore[arg-type]


@pytest.mark.parametrize("hindrance", ["full", "stopped"])
def test_only_an_answer_is_put_into_a_queue_that_refuses(directory: pathlib.Path, hindrance: str) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        replies = repo.queue("replies", max_messages=1)
        replies.put(b"first")
        if hindrance == "stopped":
            replies.stop()
        with repo.transaction(timeout=0) as transaction:
            transaction.put_encoded(replies, b"answer", encode_reply(CLIENT, RID), answer=True)
        refused = rota.Full if hindrance == "full" else rota.QueueStopped
        with pytest.raises(refused), repo.transaction(timeout=0) as transaction:
            transaction.put_encoded(replies, b"no answer", encode_reply(CLIENT, RID))
        # One commit, one lane: the answer must not take what stands beside it through.
        transaction = repo.transaction(timeout=0)
        transaction.put_encoded(replies, b"answer", encode_reply(CLIENT, RID), answer=True)
        transaction.put(replies, b"no answer")
        with pytest.raises(refused):
            transaction.commit()
        assert [message.body for message in replies.browse()] == [b"first", b"answer"]
    with rota.open(directory / "r", **SMALL) as repo:
        assert [message.body for message in repo.queue("replies").browse()] == [b"first", b"answer"]


def test_an_answer_that_expires_does(directory: pathlib.Path) -> None:
    """Both flags of the operation at once: DATED must still be seen."""
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q", max_attempts=None)
        with repo.transaction() as transaction:
            attributes = encode_request(CLIENT, RID, expiry_ns=1)
            transaction.put_encoded(queue, b"late", attributes, flags=8, answer=True)
        with pytest.raises(rota.Empty):
            queue.get(timeout=0)


def test_put_encoded_checks_its_arguments(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo, repo.transaction() as transaction:
        queue = repo.queue("q")
        for arguments, more, error in [
            (("text", b""), {}, TypeError),
            ((b"x", b""), {"priority": 10}, ValueError),
            ((b"x", b""), {"flags": 1}, ValueError),
        ]:
            with pytest.raises(error):
                transaction.put_encoded(queue, *arguments, **more)  # type: ignore[arg-type]
        assert attributes_in_own(transaction, queue) == {}


def attributes_in_own(transaction: rota.Transaction, queue: rota.Queue) -> dict[int, bytes]:
    transaction.put(queue, b"plain")
    return attributes_in(transaction.get(queue))


def test_a_tag_of_no_message_beside_a_put(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q")
        registration = queue.register("teller-7")
        with repo.transaction() as transaction:
            transaction.put(queue, b"x")
            transaction.tag(registration, b"of the put")
        assert registration.last == rota.LastOperation("put", 1, b"of the put")
        with repo.transaction() as transaction:
            transaction.put(queue, b"y")
            transaction.tag(registration, b"of none", of=False)
        assert registration.last == rota.LastOperation("get", None, b"of none")
