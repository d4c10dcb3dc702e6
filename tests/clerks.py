"""A clerk's surroundings in tests: a server that is one transaction, and clerks brought into each state."""

from __future__ import annotations

import pathlib
from typing import Any

import rota
from rota._core.request import encode_reply, waiting_for

SMALL: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}
PATIENCE_S = 20.0


def open_small(directory: pathlib.Path) -> rota.Repository:
    return rota.open(directory / "r", **SMALL)


def teller(repo: rota.Repository, **more: Any) -> rota.Clerk:
    """The clerk of most tests; again, it is the same client."""
    return repo.clerk("teller-7", "orders", **more)


def serve(repo: rota.Repository, count: int = 1, status: Any = "ok") -> list[bytes]:
    """Process so many requests that wait, each in one transaction: their bodies."""
    done = []
    orders = repo.queue("orders")
    for _ in range(count):
        with repo.transaction() as transaction:
            request = transaction.get(orders, timeout=PATIENCE_S)
            waiting = waiting_for(request, repo)
            assert waiting is not None
            error = None if status == "ok" else "no seat"
            reply = encode_reply(waiting[1], waiting[2], status, error, {"seat": 7})
            transaction.put_encoded(waiting[0], b"done " + request.body, reply, answer=True)
            done.append(request.body)
    return done


def bring(repo: rota.Repository, state: str) -> rota.Clerk:
    """A clerk in that state; where it was received something, the ids are 1 and, if sent again, 2."""
    clerk = teller(repo)
    if state == "disconnected":
        return clerk
    clerk.connect()
    if state in ("sent", "received", "sent again"):
        clerk.send(b"a", b"1")
    if state in ("received", "sent again"):
        serve(repo)
        clerk.receive(b"before 1")
    if state == "sent again":
        clerk.send(b"b", b"2")
    return clerk


def facts(session: rota.Session) -> tuple[bytes | None, bytes | None, bytes | None, tuple[bytes, ...]]:
    return session.sent_rid, session.received_rid, session.checkpoint, session.outstanding


class Printer:
    """A device that can be tested: its state is the tickets that it printed."""

    def __init__(self) -> None:
        self.tickets: list[bytes] = []

    def state(self) -> bytes:
        return b"%d" % len(self.tickets)

    def print_and_fail(self, ticket: bytes) -> Exception:
        """Print, and an error to raise afterwards."""
        self.tickets.append(ticket)
        return ZeroDivisionError()
