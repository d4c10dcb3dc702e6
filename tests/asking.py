"""Requests and their replies, as a client without a memory puts and takes them."""

from __future__ import annotations

import rota
from rota._core.request import encode_request, reply_of

CLIENT = b"teller-7"
PATIENCE_S = 20.0


def ask(repo: rota.Repository, body: bytes, rid: bytes = b"1", queue: str = "orders") -> int:
    """Put a request whose reply goes to the queue `replies`."""
    with repo.transaction() as t:
        t.put_encoded(repo.queue(queue), body, encode_request(CLIENT, rid, repo.queue("replies")))
    assert t.receipt is not None
    return t.receipt.id


def answer(repo: rota.Repository) -> tuple[bytes, bytes, str, str | None]:
    """Take the next reply: its body, rid, status, error."""
    with repo.queue("replies").get(timeout=PATIENCE_S) as message:
        reply = reply_of(message)
        assert reply is not None and reply[0] == CLIENT
        return (message.body, *reply[1:])
