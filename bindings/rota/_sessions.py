"""What a clerk hands out: what connect() found, replies, and what a device must be able to tell."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from rota._core import request as _request

if TYPE_CHECKING:
    from rota._core.message import Message
    from rota.clerk import Clerk

ReplyStatus: TypeAlias = Literal["ok", "failed", "cancelled", "expired"]
ClerkState: TypeAlias = Literal["disconnected", "connected", "sent", "received"]


class Device(Protocol):
    """Something whose state changes with each reply that is processed: a ticket printer, a file, a far end."""

    def state(self) -> bytes:
        """The present state, at most 4096 bytes: equal to an earlier one only if nothing was processed between."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of the request `rid`: `body` and `headers` are what the server gave when `status` is "ok".

    `error` says why when it is not.
    """

    rid: bytes
    body: bytes
    status: ReplyStatus
    error: str | None = None
    headers: Mapping[str, bytes | str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Session:
    """What connect() found: `sent_rid` and `received_rid` are the ids of the last request and of the last reply.

    `checkpoint` is what came with the last reply; None: nothing was sent, or received, or no checkpoint came with it.
    `outstanding` are the ids of the requests whose replies were not received, `clerk` is whose session it is.
    """

    sent_rid: bytes | None
    received_rid: bytes | None
    checkpoint: bytes | None
    outstanding: tuple[bytes, ...]
    clerk: Clerk = field(repr=False, compare=False)

    def reply(self, device: Device | None = None, timeout: float | None = None) -> AbstractContextManager[Reply | None]:
        """The next reply to process: `with session.reply(device=printer) as reply: ...`.

        It is received with the device's state as its checkpoint.  After a crash it is the last one again, unless the
        device's state says that it was processed: then the next one, and None when nothing is outstanding.  Without a
        device the last reply is always processed again.  A block that raises leaves the reply to be tested again.
        Raises as Clerk.receive().
        """
        return self.clerk._processing(device, timeout)


def reply_in(message: Message) -> Reply | None:
    """The reply that a message is, None: it is none."""
    found = _request.reply_of(message)
    if found is None:
        return None
    _, rid, status, error = found
    return Reply(rid, message.body, status, error, message.headers)
