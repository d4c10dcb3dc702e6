"""After a crash: the book's four cases, what to do by the id that was about to be used, and what cancelling finds."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

import rota
from tests.clerks import PATIENCE_S, bring, facts, open_small, serve, teller

# --- the four cases: which of the three transactions of a request was committed --------------------------------------

CASES = {  # so far; waiting in the two queues; what connect() finds; the bodies that are processed from there on
    "A, the request was not sent": ((), (0, 0), (None, None, (),), [b"x"]),
    "B, it was not processed": (("send",), (1, 0), (b"1", None, (b"1",)), [b"x"]),
    "C, its reply was not received": (("send", "serve"), (0, 1), (b"1", None, (b"1",)), []),
    "D, all is done": (("send", "serve", "receive"), (0, 0), (b"1", b"1", ()), [b"y"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_client_goes_on_from_each_of_four_cases(directory: pathlib.Path, case: str) -> None:
    done, waiting, expected, processed = CASES[case]
    with open_small(directory) as repo:
        clerk = bring(repo, "connected")
        for step in done:
            if step == "send":
                clerk.send(b"x", b"1")
            elif step == "serve":
                serve(repo)
            else:
                clerk.receive()
    with open_small(directory) as repo:
        clerk = teller(repo)
        found = clerk.connect()
        assert (found.sent_rid, found.received_rid, found.outstanding) == expected
        assert (len(repo.queue("orders")), len(repo.queue("teller-7.replies"))) == waiting
        if not found.outstanding:
            clerk.send(b"y" if found.sent_rid else b"x", b"2" if found.sent_rid else b"1")
        assert serve(repo, len(repo.queue("orders"))) == processed
        reply = clerk.receive(timeout=PATIENCE_S)
        assert reply.body == (b"done y" if case.startswith("D") else b"done x")


# --- the decision by `mine`, the id that the client was about to use -------------------------------------------------

DECISIONS = {  # state before the crash; mine; whether sending `mine` blindly adds a message; the state after it
    "nothing sent: start": ("connected", b"1", True, "sent"),
    "mine is not the last: send it": ("received", b"2", True, "sent"),
    "mine is the last and not answered: receive": ("sent", b"1", False, "sent"),
    "the same after an earlier one": ("sent again", b"2", False, "sent"),
    "mine is the last and answered: its reply": ("received", b"1", None, "received"),
}


@pytest.mark.parametrize("row", DECISIONS)
def test_sending_blindly_after_a_crash_is_harmless(directory: pathlib.Path, row: str) -> None:
    before, mine, adds, after = DECISIONS[row]
    with open_small(directory) as repo:
        bring(repo, before)
        waiting = len(repo.queue("orders"))
    with open_small(directory) as repo:
        clerk = teller(repo)
        clerk.connect()
        if adds is None:
            with pytest.raises(rota.StateError, match="answered"):
                clerk.send(b"again", mine)
        else:
            clerk.send(b"again", mine)
        assert len(repo.queue("orders")) == waiting + (1 if adds else 0)
        assert clerk.state == after


def test_presumed_abort_what_was_not_committed_was_not_sent(directory: pathlib.Path) -> None:
    """The tag and the request are one commit: a transaction that is never committed leaves neither."""
    with open_small(directory) as repo:
        clerk = bring(repo, "connected")
        with pytest.raises(rota.TransactionTooLarge):
            clerk.send(b"x" * (1 << 20), b"1")
        assert clerk.state == "connected"
        assert facts(clerk.connect()) == (None, None, None, ())
        assert len(repo.queue("orders")) == 0


@pytest.mark.parametrize("call", ["send", "receive"])
def test_when_the_outcome_is_unknown_connect_tells(
    directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """As if the commit had been interrupted after it was written."""
    with open_small(directory) as repo:
        clerk = bring(repo, "connected" if call == "send" else "sent")
        if call == "receive":
            serve(repo)
        begin = repo.transaction

        class Interrupted:
            def __init__(self, **options: Any) -> None:
                self.inner = begin(**options)

            def __getattr__(self, name: str) -> Any:
                return getattr(self.inner, name)

            def __enter__(self) -> Interrupted:
                return self

            def __exit__(self, *error: Any) -> None:
                self.inner.__exit__(*error)

            def commit(self) -> None:
                self.inner.commit()
                raise KeyboardInterrupt

        monkeypatch.setattr(repo, "transaction", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            clerk.send(b"x", b"1") if call == "send" else clerk.receive(b"before")
        monkeypatch.undo()
        assert clerk.state == "disconnected"
        with pytest.raises(rota.StateError, match="connect"):
            clerk.send(b"x")
        expected = (b"1", None, None, (b"1",)) if call == "send" else (b"1", b"1", b"before", ())
        assert facts(clerk.connect()) == expected


# --- what cancelling finds -------------------------------------------------------------------------------------------

KILLS = {  # where the request is; whether it is cancelled; what the client gets
    "free": (True, "cancelled"),
    "delayed": (True, "cancelled"),
    "came back": (True, "cancelled"),
    "in the hands of a transaction": (True, "cancelled"),
    "in other hands": (True, "cancelled"),
    "processed": (False, "ok"),
}


@pytest.mark.parametrize("row", KILLS)
def test_cancelling_finds_a_request_wherever_it_is(directory: pathlib.Path, row: str) -> None:
    expected, status = KILLS[row]
    with open_small(directory) as repo:
        orders = repo.queue("orders")
        clerk = bring(repo, "connected")
        receipt = clerk.send(b"a", delay=3600.0 if row == "delayed" else 0.0)
        transaction = repo.transaction()
        claimed = None
        if row == "came back":
            orders.get().release()
        elif row == "in the hands of a transaction":
            transaction.get(orders)
        elif row == "in other hands":
            claimed = orders.get()
        elif row == "processed":
            serve(repo)
        assert clerk.cancel() == expected
        reply = clerk.rereceive() if expected else clerk.receive(timeout=PATIENCE_S)
        assert (reply.rid, reply.status) == (b"1", status)
        if row == "in the hands of a transaction":
            with pytest.raises(rota.Killed):
                transaction.commit()
        if claimed is not None:
            with pytest.raises(rota.Killed):
                claimed.ack()
        if expected:
            assert orders.kill(receipt.id)  # the tombstone tells: it was killed
        with pytest.raises(rota.StateError):
            clerk.cancel()  # answered, by then
        assert len(orders) == len(repo.queue("teller-7.replies")) == 0


def test_a_cancel_whose_request_moves_meanwhile_looks_again(
    directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it had come back, or moved, between the look and the commit."""
    with open_small(directory) as repo:
        orders = repo.queue("orders", max_attempts=1)
        clerk = bring(repo, "sent")
        looked = []
        kill = clerk._kill

        def once(*arguments: Any) -> bool:
            looked.append(1)
            if len(looked) == 1:
                raise rota.Conflict("it moved")
            return kill(*arguments)

        monkeypatch.setattr(clerk, "_kill", once)
        assert clerk.cancel()
        assert len(looked) == 2
        assert len(orders) == 0
