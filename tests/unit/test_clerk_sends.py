"""Ids of requests, windows, and queues that several clerks share."""

from __future__ import annotations

import pathlib

import pytest

import rota
from tests.clerks import PATIENCE_S, bring, facts, open_small, serve, teller

# --- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["at once", "a connect", "a crash"])
def test_sending_an_outstanding_id_again_gives_the_old_receipt(directory: pathlib.Path, after: str) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "connected")
        receipt = clerk.send(b"a", b"1")
        if after == "a connect":
            clerk.connect()
        if after != "a crash":
            again = clerk.send(b"another body", b"1")
    with open_small(directory) as repo:
        if after == "a crash":
            clerk = teller(repo)
            clerk.connect()
            again = clerk.send(b"another body", b"1")
            assert again.wait(PATIENCE_S)
        assert again.id == receipt.id
        assert [message.body for message in repo.queue("orders").browse()] == [b"a"]


@pytest.mark.parametrize("how", ["answered", "cancelled", "answered, then a crash"])
def test_an_id_that_was_answered_is_not_sent_again(directory: pathlib.Path, how: str) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "sent")
        if how == "cancelled":
            assert clerk.cancel()
        else:
            serve(repo)
            clerk.receive()
        if how.endswith("crash"):
            clerk = teller(repo)
            clerk.connect()
        with pytest.raises(rota.StateError, match="answered"):
            clerk.send(b"a", b"1")
        assert clerk.state == "received"


def test_without_an_id_the_next_integer_is_taken_after_a_crash_too(directory: pathlib.Path) -> None:
    sent: list[bytes] = []
    for rid in (None, None, b"41", None, b"a name", None, b"007", None):
        with open_small(directory) as repo:
            clerk = teller(repo)
            clerk.connect()
            clerk.send(b"x", rid)
            sent.extend(clerk.outstanding)
            serve(repo)
            clerk.receive()
    assert sent == [b"1", b"2", b"41", b"42", b"a name", b"43", b"007", b"44"]


@pytest.mark.parametrize("rid", [b"", b"r" * 201])
def test_an_id_has_a_length(directory: pathlib.Path, rid: bytes) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "connected")
        with pytest.raises(ValueError, match="1 to 200"):
            clerk.send(b"x", rid)
        assert clerk.state == "connected"


def test_the_longest_of_everything_fits(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        clerk = repo.clerk("c" * 200, "orders", "replies", window=22)
        clerk.connect()
        rids = [b"%d" % number * 200 for number in range(9)] + [b"r%03d" % number * 49 for number in range(13)]
        for rid in rids[:20]:
            clerk.send(b"x", rid[:200])
        serve(repo, 20)
        for _ in range(20):
            clerk.receive(b"p" * 4096, timeout=PATIENCE_S)
        assert clerk.connect().checkpoint == b"p" * 4096
        with pytest.raises(ValueError, match="4096"):
            clerk.send(b"x") and clerk.receive(b"p" * 4097)


def test_ids_too_long_for_the_window_are_refused(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        clerk = teller(repo, window=64)
        clerk.connect()
        for number in range(21):
            clerk.send(b"x", b"%03d" % number + b"r" * 197)
        with pytest.raises(ValueError, match="shorter ids or a smaller window"):
            clerk.send(b"x", b"too" + b"r" * 197)
        assert len(clerk.outstanding) == len(repo.queue("orders")) == 21


# --- how a send may be -----------------------------------------------------------------------------------------------


def test_a_send_without_waiting_is_visible_and_then_durable(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        clerk = bring(repo, "connected")
        receipt = clerk.send(b"a", wait=False)
        assert receipt.visible
        assert len(repo.queue("orders")) == 1
        assert clerk.send(b"a", b"1").durable  # the same one, and this time it waits


def test_a_send_that_is_refused_leaves_the_state(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "connected")
        repo.queue("orders").stop()
        with pytest.raises(rota.QueueStopped):
            clerk.send(b"a")
        assert clerk.state == "connected"
        assert facts(clerk.connect()) == (None, None, None, ())
        repo.queue("orders").start()
        clerk.send(b"a", key="k", headers={"amount": 3}, priority=4, ttl=60.0)
        message = repo.queue("orders").peek()
        assert (message.key, message.headers, message.priority) == ("k", {"amount": 3}, 4)


# --- windows and shared queues ---------------------------------------------------------------------------------------


def test_a_window_of_three(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        clerk = teller(repo, window=3)
        clerk.connect()
        for _ in range(3):
            clerk.send(b"x")
        with pytest.raises(rota.StateError, match="3 requests are outstanding"):
            clerk.send(b"x")
        serve(repo, 2)
        assert clerk.receive().rid == b"1"
        assert clerk.outstanding == (b"2", b"3")
        clerk = teller(repo, window=3)
        assert facts(clerk.connect()) == (b"3", b"1", None, (b"2", b"3"))
        clerk.send(b"x")
        assert facts(clerk.connect()) == (b"4", b"1", None, (b"2", b"3", b"4"))
        serve(repo, 2)
        assert {clerk.receive().rid for _ in range(3)} == {b"2", b"3", b"4"}
        assert clerk.state == "received"
        assert facts(clerk.connect()) == (b"4", b"4", None, ())


@pytest.mark.parametrize("window", [0, 65])
def test_a_window_has_bounds(directory: pathlib.Path, window: int) -> None:
    with open_small(directory) as repo, pytest.raises(ValueError, match="1 to 64"):
        teller(repo, window=window)


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "not indexed"])
def test_clerks_that_share_a_queue_get_their_own(directory: pathlib.Path, indexed: bool) -> None:
    with open_small(directory) as repo:
        if not indexed:
            repo.queue("replies", max_attempts=None)
        clerks = [repo.clerk(f"teller-{number}", "orders", "replies") for number in range(5)]
        for clerk in clerks:
            clerk.connect()
            clerk.send(str(clerk.client).encode())
        repo.queue("replies").put(b"of somebody else", key=b"teller")
        serve(repo, 5)
        for clerk in reversed(clerks):
            assert clerk.receive(timeout=PATIENCE_S).body == b"done " + str(clerk.client).encode()
        for clerk in clerks:
            clerk.connect()
            assert clerk.rereceive().body == b"done " + str(clerk.client).encode()
        assert len(repo.queue("replies")) == 1


def test_a_reply_that_nobody_waits_for_is_dropped_and_told(
    directory: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "sent")
        repo.queue("teller-7.replies").put(b"no reply", key=b"teller-7")
        serve(repo)
        assert clerk.receive(timeout=PATIENCE_S).body == b"done a"
        assert "drops message" in caplog.text


@pytest.mark.parametrize(("client", "queues"), [("", ("a", "b")), ("c" * 256, ("a", "b")), ("c", ("a", "a"))])
def test_what_no_clerk_can_be_is_refused(directory: pathlib.Path, client: str, queues: tuple[str, str]) -> None:
    with open_small(directory) as repo, pytest.raises(ValueError):
        repo.clerk(client, *queues)
