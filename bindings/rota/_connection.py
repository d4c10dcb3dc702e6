"""The connection behind a clerk: two registrations under one epoch, and what their tags tell.

What holds:

1. Both registrations are renewed, and forgotten, in one commit, so they have one epoch or are not there.
2. What is kept here in memory is what the tags say, as of the last commit; when it is not known whether a commit was
   written, nothing is kept, and only connecting again tells.
3. A younger connection is seen by the epoch: before each operation, and by the commit itself.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from rota import _tags
from rota._core import request as _request
from rota._core import tagged as _tagged
from rota._tags import Received, Request, Sent, low
from rota.errors import Corrupt, LogFailed, NotFound, OptionMismatch, OutcomeUnknown, RotaError, StaleClerk, StateError
from rota.registration import Registration, decoded, encoded

if TYPE_CHECKING:
    from rota._core.put import Receipt
    from rota._core.queue import Queue
    from rota._core.transaction import Transaction
    from rota._sessions import ClerkState, Reply
    from rota.repository import Durability, Repository


class Connection:
    """What is behind a clerk: its registrations, what their tags tell, and whether they are still its own."""

    def __init__(self, repository: Repository, client: str | bytes, requests: str, replies: str | None) -> None:
        self.repository = repository
        self.client = client
        self._encoded = encoded(client)
        self._names = requests, f"{_text(self._encoded)}.replies" if replies is None else replies
        if self._names[0] == self._names[1]:
            raise ValueError(f"requests and replies cannot share the queue {requests!r}")
        self._lock = threading.Lock()
        self._is_fenced = False
        self._forget()

    def _forget(self) -> None:
        self._registrations: tuple[Registration, Registration] | None = None
        self._sent, self._received = Sent(), Received()
        self._waiting: dict[bytes, Request] = {}  # those outstanding, by id, in the order of the sends
        self._done: tuple[int, ...] = ()  # what Received.numbers must list
        self._receipts: dict[bytes, Receipt] = {}
        self._reply: Reply | None = None
        self._kept_id = 0
        self._is_doubtful = False  # whether the last reply may still have to be processed

    def _state(self) -> ClerkState:
        if self._registrations is None:
            return "disconnected"
        if self._waiting:
            return "sent"
        return "received" if self._received.number else "connected"

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise StateError(f"another thread is in a call of the clerk {self.client!r}: use one clerk for each thread")
        try:
            yield
        finally:
            self._lock.release()

    def _wrong(self, text: str) -> NoReturn:
        raise StateError(f"clerk {self.client!r} is in the state {self._state()!r}: {text}", path=self.repository.path)

    def _connected(self) -> tuple[Registration, Registration]:
        """The registrations, when this is still the youngest connection."""
        if self._is_fenced:
            self._fence(0, 0)
        if self._registrations is None:
            self._wrong("connect() first")
        mine = self._registrations[0]
        state = _tagged.registration_state(mine.queue, self._encoded)
        if state is None or state[3] != mine.epoch:
            self._fence(mine.epoch, 0 if state is None else state[3])
        return self._registrations

    def _fence(self, mine: int, found: int) -> NoReturn:
        self._forget()
        self._is_fenced = True
        raise StaleClerk(
            f"a younger connection uses the client id {self.client!r}, nothing was changed: stop",
            path=self.repository.path,
            expected=mine or None,
            found=found or None,
        )

    @contextlib.contextmanager
    def _commit(self, durability: Durability | None = None, timeout: float | None = None) -> Iterator[Transaction]:
        """A transaction; when it is not known what became of its commit the clerk is disconnected."""
        transaction = self.repository.transaction(durability=durability, timeout=timeout)
        with transaction:
            yield transaction
            if not transaction.is_open:
                return
            try:
                transaction.commit()
            except StaleClerk:
                self._forget()
                self._is_fenced = True
                raise
            except BaseException as error:
                if not isinstance(error, RotaError) or isinstance(error, (OutcomeUnknown, LogFailed)):
                    self._forget()
                raise

    def _connect(self) -> None:
        """Find what is registered, under an epoch of its own."""
        self._forget()
        requests = self.repository.queue(self._names[0])
        replies, self._kept = self._reply_queue(self._names[1]), self._reply_queue(f"{self._names[1]}.kept")
        first, second = self.repository._renew([(requests, self.client), (replies, self.client)])
        self._is_fenced = False
        self._load(first, second)
        self._registrations = first, second

    def _reply_queue(self, name: str) -> Queue:
        """Made so that each clerk finds its own quickly, and that no reply moves away."""
        if name in self.repository.queues():
            return self.repository.queue(name)
        try:
            return self.repository.queue(name, max_attempts=None, indexes=("key",))
        except OptionMismatch:  # another one made it meanwhile
            return self.repository.queue(name)

    def _load(self, first: Registration, second: Registration) -> None:
        sent, received = first.last, second.last
        try:
            self._sent = _tags.decode_sent(sent.tag, sent.id or 0) if sent else Sent()
            self._received = _tags.decode_received(received.tag) if received else Received()
            wrong = _tags.contradiction(self._sent, self._received)
        except ValueError as error:
            wrong = str(error)
        if wrong:
            self._forget()
            raise Corrupt(f"the registrations of clerk {self.client!r} hold {wrong}", path=self.repository.path)
        lsn = first.lsn
        self._waiting = {request.rid: request for request in self._sent.requests if not self._received.has(request)}
        self._done = tuple(low(request.number) for request in self._sent.requests if self._received.has(request))
        for request in self._waiting.values():
            self._receipts[request.rid] = _request.receipt_of(first.queue, request.message, lsn)
        for message in self._kept.find(key=self._encoded):
            self._kept_id = message.id
        self._is_doubtful = self._received.number not in (0, self._sent.received_before)

    def _drop_kept(self, transaction: Transaction) -> None:
        if self._kept_id:
            with contextlib.suppress(NotFound):
                transaction.kill(self._kept, self._kept_id)


def _text(client: bytes) -> str:
    """A client id as a part of a queue's name."""
    found = decoded(client)
    return found if isinstance(found, str) else client.decode("utf-8", "surrogateescape")
