"""Clerks: the client's side of recoverable requests, and the state machine that a crash cannot confuse.

    disconnected --connect--> connected --send--> sent --receive--> received --send--> sent …
                  nothing sent            ^                          |  rereceive, any number of times
                  or all forgotten        '------ disconnect <-------'

What holds:

1. What a client needs after a crash is in two tags: the id it sent last, the id and checkpoint it received last.  Each
   is written in the commit of the operation that it tells of; connect() reads them and changes nothing but the epoch.
2. A request is sent once: its id is compared with what the tags tell, and an id that is outstanding is not sent again.
3. A reply is received at least once: the commit that takes it keeps a copy, which rereceive() reads.  With a device
   that can be tested it is processed exactly once: the device's state before the reply is in the same commit.
4. Of two processes with one client id the younger wins: whatever the older one calls raises StaleClerk.
5. After an error that leaves it open whether a commit was written the clerk is disconnected: connect() tells.

Bernstein, Hsu and Mann, "Implementing Recoverable Requests Using Queues", SIGMOD 1990; the epoch is that of a Kafka
transactional id; windows above one are an addition.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from rota import _tags
from rota._connection import Connection
from rota._core import request as _request
from rota._core.codec import moments
from rota._sessions import ClerkState, Device, Reply, ReplyStatus, Session, reply_in
from rota._tags import Received, Request, Sent, low
from rota.errors import Conflict, Empty, NotFound
from rota.expressions import key as _key

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from rota._core.message import Message
    from rota._core.put import Receipt
    from rota._core.queue import Queue
    from rota._core.transaction import Transaction
    from rota.registration import Registration
    from rota.repository import Repository

__all__ = ["Clerk", "ClerkState", "Device", "Reply", "ReplyStatus", "Session"]

_FENCE_SECONDS = 1.0  # who waits for a reply learns within this that a younger clerk took over
_FRAME_DUE, _FRAME_EXPIRES = 4, 8
_log = logging.getLogger("rota")


class Clerk(Connection):
    """The client's side of requests, from repo.clerk(): for one thread at a time, and one client id for each clerk.

    `client` is the client id, `repository` where it is, `window` how many requests may be outstanding.  A context
    manager; leaving it keeps everything that connect() needs, only disconnect() forgets.
    """

    def __init__(
        self, repository: Repository, client: str | bytes, requests: str, replies: str | None, window: int
    ) -> None:
        if not 1 <= window <= _tags.WINDOW_MAX:
            raise ValueError(f"a window is 1 to {_tags.WINDOW_MAX} requests, not {window!r}")
        super().__init__(repository, client, requests, replies)
        self.window = window
        self._mine = _key == self._encoded

    # --- states ------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ClerkState:
        """Where it is in the state machine: with several requests outstanding "sent" until all are answered."""
        return self._state()

    @property
    def outstanding(self) -> tuple[bytes, ...]:
        """Ids of the requests whose replies were not received, in the order in which they were sent."""
        return tuple(self._waiting)

    # --- connecting --------------------------------------------------------------------------------------------------

    def connect(self) -> Session:
        """Register, or find what was registered, and tell what was sent and received last: the recovery call.

        It may be repeated after any failure and changes nothing but the epoch, by which an older connection of the same
        client id is refused from now on.  Durable when it returns.  Raises Corrupt when the two tags contradict each
        other: then do not go on.
        """
        with self._alone():
            self._connect()
            return Session(
                self._sent.last.rid if self._sent.last else None,
                self._received.rid,
                self._received.checkpoint,
                self.outstanding,
                self,
            )

    def disconnect(self) -> None:
        """Forget both registrations and the kept reply, in one commit: a connect() after that is a first one.

        Raises StateError while a request is outstanding, StaleClerk.
        """
        with self._alone():
            first, second = self._connected()
            if self._waiting:
                self._wrong("receive the reply, or cancel(), before disconnect()")
            with self._commit() as transaction:
                transaction.deregister(first)
                transaction.deregister(second)
                self._drop_kept(transaction)
            self._forget()

    def close(self) -> None:
        """End this connection, forgetting nothing; a second call does nothing."""
        self._forget()

    def __enter__(self) -> Clerk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- sending -----------------------------------------------------------------------------------------------------

    def send(
        self,
        body: Buffer,
        rid: bytes | None = None,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str | int | float | bool] | None = None,
        priority: int = 0,
        delay: float = 0.0,
        ttl: float | None = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Receipt:
        """Send a request: its message and the id `rid`, 1 to 200 bytes, become stable together.

        Without `rid` it is the integer after the last one, in decimal digits.  An id that is outstanding is not sent
        again: the old Receipt is returned, whatever the body.  `wait=False` returns as soon as it is visible, before it
        is durable: the reply is then the acknowledgement.  The rest is as in Queue.put().

        Raises StateError, and nothing was sent: the window is full, or the id was answered already.  Raises Full,
        QueueStopped, TransactionTooLarge, StaleClerk.
        """
        with self._alone():
            first, second = self._connected()
            integer = self._sent.integer + 1
            if rid is None:
                rid = b"%d" % integer
            elif old := self._sent_before(bytes(rid)):
                if wait:
                    self.repository.sync_seen()
                return old
            outstanding = self._waiting.values()
            if len(outstanding) >= self.window:
                self._wrong(f"{len(outstanding)} requests are outstanding, receive() before the next send()")
            request = Request(self._sent.number + 1, 0, bytes(rid))
            sent = Sent((*outstanding, request), _tags.integer_of(rid, self._sent.integer), self._received.number)
            due, expiry = moments(time.time_ns(), delay, ttl)
            attributes = _request.encode_request(self._encoded, rid, second.queue, key, headers, due, expiry)
            flags = (_FRAME_DUE if due else 0) | (_FRAME_EXPIRES if expiry else 0)
            with self._commit(None if wait else self._soon(), timeout) as transaction:
                put = transaction.put_encoded(first.queue, body, attributes, priority, flags)
                transaction.tag(first, sent.encode(), of=put)
            receipt = _receipt(transaction)
            request = request._replace(message=receipt.id)
            self._sent = sent._replace(requests=(*outstanding, request))
            self._waiting[request.rid], self._receipts[request.rid], self._done = request, receipt, ()
            self._is_doubtful = False
            return receipt

    def _soon(self) -> Literal["interval"] | None:
        """The level of what need not be durable when it returns."""
        return "interval" if self.repository._options["durability"] == "sync" else None

    def _sent_before(self, rid: bytes) -> Receipt | None:
        """The receipt of an outstanding request of that id, None: the id is new."""
        if not 0 < len(rid) <= _tags.RID_BYTES_MAX:
            raise ValueError(f"the id of a request has 1 to {_tags.RID_BYTES_MAX} bytes, not {len(rid)}")
        if rid in self._receipts:
            return self._receipts[rid]
        if rid == self._received.rid or any(request.rid == rid for request in self._sent.requests):
            self._wrong(f"the request {rid!r} was answered already: a new one needs a new id")
        return None

    def cancel(self, rid: bytes | None = None) -> bool:
        """Kill a request that is outstanding, the last one without `rid`: whether that succeeded.

        True: it will have no effect, and its reply has the status "cancelled".  When nothing else was outstanding that
        reply is received as well, and the state is "received".  False: it is too late, and the reply comes.  Durable
        when it returns.  Raises StateError when there is no such request, StaleClerk.
        """
        with self._alone():
            first, second = self._connected()
            outstanding = list(self._waiting.values())
            found = [request for request in outstanding if rid is None or request.rid == bytes(rid)]
            if not found:
                self._wrong("there is nothing to cancel" if rid is None else f"{rid!r} is not outstanding")
            while True:
                with contextlib.suppress(Conflict):  # it ended or moved meanwhile: look again
                    if not self._kill(first, second.queue, found[-1]):
                        return False
                    break
            if len(outstanding) == 1:
                self._receive(None, None)
            return True

    def _kill(self, first: Registration, replies: Queue, request: Request) -> bool:
        """Kill, which answers, and write the tag again, which a younger connection refuses: in one commit."""
        answers = map(_request.reply_of, replies.find(key=self._encoded))
        if any(found is not None and found[1] == request.rid for found in answers):
            return False
        with self._commit("sync") as transaction:
            try:
                lives = transaction.kill(first.queue, request.message)
            except NotFound:
                lives = False
            if not lives:
                transaction.rollback()
                return False
            transaction.tag(first, self._sent.encode(), of=False)
        return True

    # --- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, checkpoint: bytes | None = None, timeout: float | None = None) -> Reply:
        """The next reply, taken out of its queue and kept for rereceive(), with `checkpoint` (at most 4096 bytes).

        The checkpoint describes the client before this reply is processed; without one, none is stored.  Waits up to
        `timeout` seconds, None: for ever.  Raises Empty, StateError when nothing is outstanding, StaleClerk.
        """
        with self._alone():
            return self._receive(checkpoint, timeout)

    def _receive(self, checkpoint: bytes | None, timeout: float | None) -> Reply:
        until = None if timeout is None else time.monotonic() + timeout
        checkpoint = None if checkpoint is None else bytes(checkpoint)
        if checkpoint is not None and len(checkpoint) > _tags.CHECKPOINT_BYTES_MAX:
            raise ValueError(f"a checkpoint has at most {_tags.CHECKPOINT_BYTES_MAX} bytes, not {len(checkpoint)}")
        while True:
            _, second = self._connected()
            if not self._waiting:
                self._wrong("no request is outstanding, send() one first")
            with self._commit() as transaction:
                message = self._next(transaction, second.queue, until)
                reply = reply_in(message)
                request = None if reply is None else self._waiting.get(reply.rid)
                if reply is None or request is None:
                    _log.warning("clerk %r drops message %d, no reply that it waits for", self.client, message.id)
                    continue
                received = Received(request.number, request.rid, checkpoint, (*self._done, low(request.number)))
                transaction.tag(second, received.encode(), of=message)
                copy = _request.encode_reply(self._encoded, reply.rid, reply.status, reply.error, reply.headers)
                transaction.put_encoded(self._kept, reply.body, copy, answer=True)
                self._drop_kept(transaction)
            self._received, self._reply, self._kept_id = received, reply, _receipt(transaction).id
            self._done = received.numbers
            del self._waiting[request.rid], self._receipts[request.rid]
            self._is_doubtful = True
            return reply

    def _next(self, transaction: Transaction, replies: Queue, until: float | None) -> Message:
        while True:
            left = _FENCE_SECONDS if until is None else min(_FENCE_SECONDS, max(0.0, until - time.monotonic()))
            try:
                return transaction.get(replies, left, where=self._mine)
            except Empty:
                if until is not None and time.monotonic() >= until:
                    raise
                self._connected()

    def rereceive(self) -> Reply:
        """The last reply again, any number of times.  Raises StateError when none was received, StaleClerk.

        Raises NotFound when somebody emptied the queue of kept replies.
        """
        with self._alone():
            return self._rereceive()

    def _rereceive(self) -> Reply:
        self._connected()
        if not self._received.number:
            self._wrong("no reply was received")
        if self._reply is None:
            replies = map(reply_in, self._kept.find(key=self._encoded))
            self._reply = next((reply for reply in replies if reply and reply.rid == self._received.rid), None)
        if self._reply is None:
            raise NotFound(
                f"the queue {self._kept.name!r} has no reply of clerk {self.client!r}", path=self.repository.path
            )
        return self._reply

    @contextlib.contextmanager
    def _processing(self, device: Device | None, timeout: float | None) -> Iterator[Reply | None]:
        with self._alone():
            self._connected()
            reply = self._to_process(device, timeout)
        yield reply
        self._is_doubtful = False

    def _to_process(self, device: Device | None, timeout: float | None) -> Reply | None:
        if self._is_doubtful:
            checkpoint = self._received.checkpoint
            if device is None or checkpoint is None or device.state() == checkpoint:
                return self._rereceive()
            self._is_doubtful = False
            if not self._waiting:
                return None
        return self._receive(None if device is None else device.state(), timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a clerk belongs to its process and is not pickled: make one with repo.clerk()")

    def __repr__(self) -> str:
        return f"<rota.Clerk {self.client!r} {self.state}>"


def _receipt(transaction: Transaction) -> Receipt:
    found = transaction.receipt
    assert found is not None  # it was committed
    return found
