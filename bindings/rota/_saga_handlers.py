"""What serves the queues of a saga: begin, forward, undo, failed.

What holds:

1. Each is called with a message and the transaction that settles it; what it does to the saga is in that commit.
2. A message that is not the current one of its saga is settled and has no effect.
3. A step that fails for good leaves nothing of what it did: the savepoint drops it, and the way back begins in the
   commit that settles its message.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote_from_bytes

from rota._core import request as _request
from rota._saga_records import (
    ENDED,
    LOCKS_MAX,
    SAGA,
    TURN,
    Book,
    Record,
    end,
    entries_of,
    go_back,
    go_to,
    locks_of,
    look,
    note_undo,
    prepared,
    result_of,
    take_lock,
)
from rota.errors import StateError
from rota.server import NotNow, Refused

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from rota._core.message import Message
    from rota._core.transaction import Transaction
    from rota.repository import Repository

ALARM_ATTEMPTS = 5
_NAME_BYTES_MAX = 255
_log = logging.getLogger("rota")


@dataclass(slots=True)
class SagaStep:
    """What a step, or what undoes it, is called with.

    `id` is that of the saga, `body` what the step before returned (for an undo: what undo_with() was given),
    `transaction` the one that will settle the step, `attempts` how often it was tried, this time included, `error` why
    the saga is undone, None while it goes forward.
    """

    id: str
    body: bytes
    transaction: Transaction
    attempts: int
    error: str | None = None
    _undo: bytes | None = field(default=None, repr=False)
    _locked: set[str] = field(default_factory=set, repr=False)
    _is_last: bool = field(default=False, repr=False)

    @property
    def repository(self) -> Repository:
        """Where it runs."""
        return self.transaction.repository

    def undo_with(self, body: Buffer) -> None:
        """What the undo of this step is to be given, in the place of the step's own body.

        Raises StateError in an undo.
        """
        if self.error is not None:
            raise StateError(f"saga {self.id!r} is being undone, and an undo is not undone", path=self.repository.path)
        self._undo = bytes(body)

    def lock(self, name: str, delay: float = 0.1) -> None:
        """Take a lock for the saga, 1 to 255 bytes, with the commit of the step; kept until the saga has ended.

        While another saga has it the step is tried again after `delay` seconds: this raises NotNow.  Two sagas that
        take two locks in different orders wait for each other until one is cancelled: take all in the first step, in
        one order.  Raises StateError in an undo, ValueError also for more than 100 locks of one saga.
        """
        if self.error is not None:
            raise StateError(f"saga {self.id!r} is being undone: it keeps its locks", path=self.repository.path)
        if name in self._locked:
            return
        if len((locks_of(self.repository, self.id) | self._locked) - {name}) >= LOCKS_MAX:
            raise ValueError(f"a saga has at most {LOCKS_MAX} locks: lock what is larger, such as the whole account")
        if not take_lock(self.transaction, self.id, name, not self._is_last):
            raise NotNow(delay)
        self._locked.add(name)


StepFunction: TypeAlias = "Callable[[SagaStep], Buffer | None]"


def id_of_request(client: bytes, rid: bytes) -> str:
    """The id of the saga that a clerk's request starts: "client/rid", percent-encoded; too long, a digest."""
    found = f"{quote_from_bytes(client, safe='')}/{quote_from_bytes(rid, safe='')}"
    return found if len(found) <= _NAME_BYTES_MAX else hashlib.sha256(found.encode()).hexdigest()


def start(transaction: Transaction, book: Book, record: Record, body: bytes) -> None:
    """Begin a saga: its first message and its record; what is left of an earlier one of that id goes."""
    left = result_of(book)
    for entry in [*entries_of(book), *([] if left is None else [left])]:
        transaction.kill(book.queue, entry.id)
    go_to(transaction, book, record, body)


def current(message: Message, transaction: Transaction, state: str) -> tuple[Book, Record] | None:
    """The saga whose current message this is; None when the message is late, or of no saga."""
    headers = message.headers
    book = look(transaction.repository, str(headers.get(SAGA, ""))) if headers.get(SAGA) else None
    record = None if book is None else book.record
    if book is None or record is None or record.state != state or record.turn != headers.get(TURN):
        _log.warning("message %d of %r is not the current one of a saga and is ignored", message.id, message.queue.name)
        return None
    return book, record


@dataclass(frozen=True)
class Begin:
    """Serves the queue of the plan: a request becomes a saga, which will answer it."""

    record: Record
    answers_itself = True

    def __call__(self, message: Message, transaction: Transaction) -> None:
        carried = _request.carried_by(message)
        waiting = _request.waiting_for(message, transaction.repository)
        reply = None if waiting is None else (waiting[0].name, waiting[1].hex(), waiting[2].hex())
        identity = f"{self.record.plan}/{message.id}" if carried is None else id_of_request(*carried[:2])
        book = prepared(transaction.repository, identity)
        if book.record is not None and book.record.state not in ENDED:
            raise Refused(f"a saga {identity!r} is under way already")
        start(transaction, book, self.record._replace(reply=reply), message.body)


@dataclass(frozen=True)
class Forward:
    """Serves the queue of one step; `next_step` is None for the last one."""

    number: int
    step: str
    function: StepFunction
    attempts: int
    undo_queue: str | None
    next_step: str | None

    def __call__(self, message: Message, transaction: Transaction) -> None:
        found = current(message, transaction, "running")
        if found is None:
            return
        book, record = found
        step = SagaStep(str(book.registration.name), message.body, transaction, message.attempts)
        step._is_last = self.next_step is None
        try:
            with transaction.savepoint():
                answer = self.function(step)
                body = step.body if answer is None else bytes(memoryview(answer))
        except NotNow:
            raise
        except Exception as error:
            final = isinstance(error, Refused) or message.attempts >= self.attempts
            if not final or not transaction.is_open:
                raise
            if isinstance(error, Refused):
                reason = str(error)
                _log.info("step %r of saga %r is refused, it is undone: %s", self.step, step.id, reason)
            else:
                reason = f"{type(error).__name__}: {error}"
                _log.warning("step %r of saga %r failed, it is undone", self.step, step.id, exc_info=error)
            go_back(transaction, book, "failed", f"{self.step}: {reason}")
            return
        if self.next_step is None:
            end(transaction, book, record, body)
            return
        if self.undo_queue is not None:
            note_undo(
                transaction, book, self.number, self.undo_queue, message.body if step._undo is None else step._undo
            )
        go_to(transaction, book, record._replace(step=self.next_step, queue=f"{record.plan}.{self.next_step}"), body)


@dataclass(frozen=True)
class Undo:
    """Serves the queue of what undoes a step: tried until it succeeds; somebody is told when it does not."""

    step: str
    function: StepFunction
    alarms: str

    def __call__(self, message: Message, transaction: Transaction) -> None:
        found = current(message, transaction, "compensating")
        if found is None:
            return
        book, record = found
        identity = str(book.registration.name)
        try:
            self.function(SagaStep(identity, message.body, transaction, message.attempts, record.error or ""))
        except Exception as error:
            if message.attempts == ALARM_ATTEMPTS and not isinstance(error, NotNow):
                _log.error("the undo of step %r of saga %r fails again and again", self.step, identity, exc_info=error)
                text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
                transaction.repository.queue(self.alarms).put(text, key=book.key, headers={"step": self.step})
            raise
        go_back(transaction, book, "failed", "")


@dataclass(frozen=True)
class Failed:
    """Serves the error queue of all steps: what is there killed whoever worked on it, as often as it may."""

    def __call__(self, message: Message, transaction: Transaction) -> None:
        found = current(message, transaction, "running")
        if found is not None:
            book, record = found
            go_back(transaction, book, "failed", f"{record.step}: its attempts are used up")
