"""The state machine of a clerk, row by row: what connect() finds, what each call leads to, which calls are wrong."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

import rota
from tests.clerks import PATIENCE_S, bring, facts, open_small, serve, teller

# --- what connect() finds ---------------------------------------------------------------------------------------------

FOUND = {
    "nothing sent": ("connected", (None, None, None, ()), "connected"),
    "sent, not received": ("sent", (b"1", None, None, (b"1",)), "sent"),
    "received": ("received", (b"1", b"1", b"before 1", ()), "received"),
    "received, then sent": ("sent again", (b"2", b"1", b"before 1", (b"2",)), "sent"),
}


@pytest.mark.parametrize("row", FOUND)
def test_connect_tells_where_it_was(directory: pathlib.Path, row: str) -> None:
    before, expected, after = FOUND[row]
    with open_small(directory) as repo:
        bring(repo, before)
    with open_small(directory) as repo:
        clerk = teller(repo)
        assert clerk.state == "disconnected"
        session = clerk.connect()
        assert facts(session) == expected
        assert clerk.state == after


@pytest.mark.parametrize("row", FOUND)
def test_connecting_again_changes_nothing(directory: pathlib.Path, row: str) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, FOUND[row][0])
        first = clerk.connect()
        assert clerk.connect() == first
        assert teller(repo).connect() == first


def test_a_disconnected_client_is_a_new_one(directory: pathlib.Path) -> None:
    for state in ("connected", "received"):
        with open_small(directory) as repo:
            clerk = bring(repo, state)
            clerk.disconnect()
            assert clerk.state == "disconnected"
            assert repo.registrations() == []
            assert len(repo.queue("teller-7.replies.kept")) == 0
            assert facts(clerk.connect()) == (None, None, None, ())
            assert clerk.send(b"again", b"1").count == 1  # the memory of the id went too
            serve(repo)
            clerk.receive()
            clerk.disconnect()


def test_leaving_the_block_keeps_everything(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        with teller(repo) as clerk:
            clerk.connect()
            clerk.send(b"a", b"1")
        assert clerk.state == "disconnected"
        assert facts(teller(repo).connect()) == (b"1", None, None, (b"1",))


# --- what each call leads to ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["connected", "received"])
def test_a_send_leads_to_sent(directory: pathlib.Path, state: str) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, state)
        clerk.send(b"next", b"next")
        assert clerk.state == "sent"
        assert clerk.outstanding == (b"next",)


def test_a_receive_waits_for_the_reply(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "sent")
        with pytest.raises(rota.Empty):
            clerk.receive(timeout=0)
        assert clerk.outstanding == (b"1",)
        server = threading.Thread(target=serve, args=(repo,))
        server.start()
        reply = clerk.receive(timeout=PATIENCE_S)
        server.join()
        assert (reply.rid, reply.body, reply.status, reply.error) == (b"1", b"done a", "ok", None)
        assert reply.headers == {"seat": 7}
        assert clerk.state == "received"


@pytest.mark.parametrize("after", ["the call", "a crash"])
def test_a_rereceive_gives_the_reply_again_and_again(directory: pathlib.Path, after: str) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "received")
        reply = clerk.rereceive()
    with open_small(directory) as repo:
        if after == "a crash":
            clerk = teller(repo)
            clerk.connect()
            assert [clerk.rereceive() for _ in range(3)] == [reply] * 3
            assert clerk.state == "received"
        assert (reply.rid, reply.body, reply.headers) == (b"1", b"done a", {"seat": 7})


def test_the_kept_reply_is_the_last_one_and_the_only_one(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "received")
        for number in range(2, 6):
            clerk.send(b"%d" % number)
            serve(repo)
            clerk.receive()
            assert len(repo.queue("teller-7.replies.kept")) == 1
        clerk.connect()
        assert clerk.rereceive().body == b"done 5"
        assert len(repo.queue("teller-7.replies")) == 0


@pytest.mark.parametrize("status", ["failed", "cancelled", "expired"])
def test_a_reply_says_what_became_of_the_request(directory: pathlib.Path, status: Any) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "sent")
        serve(repo, status=status)
        reply = clerk.receive(timeout=PATIENCE_S)
        assert (reply.status, reply.error) == (status, "no seat")
        clerk.connect()
        assert clerk.rereceive() == reply


# --- wrong calls ------------------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[rota.Clerk], Any]] = {
    "send": lambda clerk: clerk.send(b"x", b"new"),
    "receive": lambda clerk: clerk.receive(timeout=0),
    "rereceive": lambda clerk: clerk.rereceive(),
    "cancel": lambda clerk: clerk.cancel(),
    "disconnect": lambda clerk: clerk.disconnect(),
}
WRONG = {
    "disconnected": ("send", "receive", "rereceive", "cancel", "disconnect"),
    "connected": ("receive", "rereceive", "cancel"),
    "sent": ("send", "rereceive", "disconnect"),
    "received": ("receive", "cancel"),
}


@pytest.mark.parametrize(("state", "call"), [(state, call) for state in WRONG for call in WRONG[state]])
def test_a_wrong_call_is_refused_without_effect(directory: pathlib.Path, state: str, call: str) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, state)
        before = clerk.state, clerk.outstanding, repo.stats().tail_lsn
        with pytest.raises(rota.StateError, match=state):
            CALLS[call](clerk)
        assert (clerk.state, clerk.outstanding, repo.stats().tail_lsn) == before


@pytest.mark.parametrize("state", ["connected", "received"])
def test_the_reply_block_is_refused_when_there_is_nothing(directory: pathlib.Path, state: str) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, state)
        session = clerk.connect()
        if state == "received":
            with session.reply():
                pass
        with pytest.raises(rota.StateError), session.reply():
            pass


def test_another_thread_in_a_call_is_refused(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "sent")
        waiting = threading.Thread(target=clerk.receive)
        waiting.start()
        while not clerk._lock.locked():
            pass
        with pytest.raises(rota.StateError, match="another thread"):
            clerk.cancel()
        serve(repo)
        waiting.join()
        assert clerk.state == "received"


# --- epochs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["connected", "sent", "received"])
def test_the_older_of_two_is_refused_whatever_it_calls(directory: pathlib.Path, state: str) -> None:
    with open_small(directory) as repo:
        old = bring(repo, state)
        session = teller(repo).connect()
        before = repo.stats().tail_lsn
        for call in CALLS.values():
            with pytest.raises(rota.StaleClerk):
                call(old)
            assert old.state == "disconnected"
        assert repo.stats().tail_lsn == before
        assert teller(repo).connect() == session


def test_the_older_one_is_told_while_it_waits(directory: pathlib.Path) -> None:
    told: list[Exception] = []

    def wait(clerk: rota.Clerk) -> None:
        try:
            clerk.receive()
        except rota.StaleClerk as error:
            told.append(error)

    with open_small(directory) as repo:
        old = bring(repo, "sent")
        waiting = threading.Thread(target=wait, args=(old,))
        waiting.start()
        young = teller(repo)
        young.connect()
        waiting.join(PATIENCE_S)
        assert len(told) == 1
        serve(repo)
        assert young.receive(timeout=PATIENCE_S).body == b"done a"


@pytest.mark.parametrize("call", ["send", "receive", "disconnect"])
def test_the_commit_itself_is_fenced(directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A younger one that comes between the look and the commit: as if the look saw nothing."""
    with open_small(directory) as repo:
        old = bring(repo, "sent" if call == "receive" else "connected")
        serve(repo, 1 if call == "receive" else 0)
        teller(repo).connect()
        mine = old._registrations
        monkeypatch.setattr(old, "_connected", lambda: mine)
        with pytest.raises(rota.StaleClerk):
            CALLS[call](old)
        assert len(repo.queue("orders")) == 0
        assert len(repo.queue("teller-7.replies")) == (1 if call == "receive" else 0)
        assert len(repo.registrations()) == 2


def test_a_clerk_is_not_pickled(directory: pathlib.Path) -> None:
    import pickle

    with open_small(directory) as repo, pytest.raises(TypeError, match="clerk"):
        pickle.dumps(teller(repo))
