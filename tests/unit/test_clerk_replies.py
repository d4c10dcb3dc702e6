"""Replies: exactly once for a device that can be tested, and what cancelling comes to."""

from __future__ import annotations

import pathlib

import pytest

import rota
from tests.clerks import PATIENCE_S, Printer, bring, facts, open_small, serve, teller

# --- checkpoints and devices -----------------------------------------------------------------------------------------


def test_a_receive_without_a_checkpoint_stores_none_never_the_former_one(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "received")
        assert clerk.connect().checkpoint == b"before 1"
        for checkpoint in (None, b"", b"x"):
            clerk.send(b"x")
            serve(repo)
            clerk.receive(checkpoint)
            assert clerk.connect().checkpoint == checkpoint


CRASHED = {
    "before the receive": ("sent", 0, [b"done a"]),
    "after the receive, before the printing": ("received", 0, [b"done a"]),
    "after the printing": ("printed", 1, []),
}


@pytest.mark.parametrize("row", CRASHED)
def test_a_device_that_can_be_tested_gets_each_reply_once(directory: pathlib.Path, row: str) -> None:
    state, printed, expected = CRASHED[row]
    printer = Printer()
    with open_small(directory) as repo:
        clerk = bring(repo, "sent")
        serve(repo)
        if state != "sent":
            clerk.receive(printer.state())
        printer.tickets = [b"done a"] * printed
    with open_small(directory) as repo:
        clerk = teller(repo)
        session = clerk.connect()
        with session.reply(device=printer, timeout=PATIENCE_S) as reply:
            assert ([] if reply is None else [reply.body]) == expected
            if reply is not None:
                printer.tickets.append(reply.body)
        assert printer.tickets == [b"done a"]
        clerk.send(b"b")
        serve(repo)
        with session.reply(device=printer, timeout=PATIENCE_S) as reply:
            assert reply is not None and reply.body == b"done b"
        assert clerk.connect().checkpoint == b"1"


@pytest.mark.parametrize("checkpoint", [b"0", None], ids=["no device", "no checkpoint"])
def test_what_cannot_be_tested_is_processed_again(directory: pathlib.Path, checkpoint: bytes | None) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "sent")
        serve(repo)
        clerk.receive(checkpoint)
        printer = Printer()
        printer.tickets.append(b"done a")
        for _ in range(2):
            session = clerk.connect()
            with session.reply(device=None if checkpoint else printer) as reply:
                assert reply is not None and reply.body == b"done a"


def test_a_block_that_raises_leaves_the_reply_to_be_tested_again(directory: pathlib.Path) -> None:
    printer = Printer()
    with open_small(directory) as repo:
        clerk = teller(repo)
        session = clerk.connect()
        clerk.send(b"a")
        serve(repo)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError), session.reply(device=printer):
                raise ZeroDivisionError
        with pytest.raises(ZeroDivisionError), session.reply(device=printer):
            raise printer.print_and_fail(b"done a")
        with session.reply(device=printer) as reply:
            assert reply is None
        assert printer.tickets == [b"done a"]


def test_in_a_window_the_last_reply_is_tested_and_then_the_next_one_taken(directory: pathlib.Path) -> None:
    printer = Printer()
    with open_small(directory) as repo:
        clerk = teller(repo, window=2)
        clerk.connect()
        clerk.send(b"a")
        clerk.send(b"b")
        serve(repo, 2)
        clerk.receive(printer.state())
        clerk = teller(repo, window=2)
        session = clerk.connect()
        for _ in range(2):
            with session.reply(device=printer) as reply:
                assert reply is not None
                printer.tickets.append(reply.body)
            session = clerk.connect()
        with session.reply(device=printer) as reply:
            assert reply is None
        assert printer.tickets == [b"done a", b"done b"]


# --- cancelling ------------------------------------------------------------------------------------------------------


def test_a_request_that_waits_is_cancelled(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "sent")
        assert clerk.cancel()
        assert clerk.state == "received"
        assert (clerk.rereceive().rid, clerk.rereceive().status) == (b"1", "cancelled")
        assert len(repo.queue("orders")) == len(repo.queue("teller-7.replies")) == 0
        assert facts(clerk.connect()) == (b"1", b"1", None, ())


def test_a_request_in_the_hands_of_a_server_is_cancelled_and_the_server_told(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "sent")
        transaction = repo.transaction()
        transaction.get(repo.queue("orders"))
        assert clerk.cancel()
        with pytest.raises(rota.Killed):
            transaction.commit()
        assert clerk.rereceive().status == "cancelled"
        assert len(repo.queue("teller-7.replies")) == 0


def test_a_request_that_was_processed_is_not_cancelled(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "sent")
        serve(repo)
        assert not clerk.cancel()
        assert clerk.state == "sent"
        assert clerk.receive(timeout=PATIENCE_S).status == "ok"


@pytest.mark.parametrize("how", ["delayed", "in the error queue"])
def test_a_request_is_cancelled_wherever_it_lies(directory: pathlib.Path, how: str) -> None:
    with open_small(directory) as repo:
        orders = repo.queue("orders", max_attempts=1)
        clerk = bring(repo, "connected")
        clerk.send(b"a", delay=3600.0 if how == "delayed" else 0.0)
        if how != "delayed":
            orders.get().nack()
            assert len(repo.queue("orders.errors")) == 1
        was_cancelled = clerk.cancel()
        reply = clerk.rereceive() if was_cancelled else clerk.receive(timeout=PATIENCE_S)
        assert reply.status == ("cancelled" if was_cancelled else "failed")
        assert len(repo.queue("teller-7.replies")) == 0
        assert how != "delayed" or was_cancelled


def test_after_a_crash_a_cancelled_reply_waits(directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trap: after the kill no server will ever answer."""
    with open_small(directory) as repo:
        clerk = bring(repo, "sent")
        monkeypatch.setattr(clerk, "_receive", lambda *_: None)
        assert clerk.cancel()
    with open_small(directory) as repo:
        clerk = teller(repo)
        assert facts(clerk.connect()) == (b"1", None, None, (b"1",))
        assert clerk.receive(timeout=PATIENCE_S).status == "cancelled"


def test_one_of_a_window_is_cancelled_by_its_id_after_a_connect_too(directory: pathlib.Path) -> None:
    with open_small(directory) as repo:
        clerk = teller(repo, window=3)
        clerk.connect()
        for _ in range(3):
            clerk.send(b"x")
        assert clerk.cancel(b"2")
        assert clerk.outstanding == (b"1", b"2", b"3")
        clerk.connect()
        assert clerk.cancel(b"3")
        serve(repo)
        assert {(reply.rid, reply.status) for reply in (clerk.receive() for _ in range(3))} == {
            (b"1", "ok"),
            (b"2", "cancelled"),
            (b"3", "cancelled"),
        }
        with pytest.raises(rota.StateError, match="not outstanding"):
            clerk.send(b"x") and clerk.cancel(b"2")
