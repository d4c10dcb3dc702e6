"""Threads that serve, and the one that keeps their leases.

What holds:

1. A worker has one request in hand.  While the handler runs the keeper extends its lease, and it stops before the
   worker settles: both hold the worker's lock for that.
2. An exception of a handler is the request's, whatever it is; one of a commit, or of giving the request back, that says
   that the repository cannot be used any more ends the whole crew, and `stop()` raises it.
3. Nothing of a failed attempt is committed: the transaction is rolled back before the request is given back.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rota._core.request import encode_reply, waiting_for
from rota.errors import (
    ClosedError,
    Conflict,
    Corrupt,
    Empty,
    Full,
    Killed,
    LeaseLost,
    LockHeld,
    LogFailed,
    OutcomeUnknown,
    QueueStopped,
    RotaError,
    StateError,
)
from rota.server import NotNow, Refused

if TYPE_CHECKING:
    from rota._core.message import Message
    from rota._core.transaction import Transaction
    from rota.repository import Durability
    from rota.server import Backoff, ServerClass

_log = logging.getLogger("rota")
_LOOK_S = 0.1  # how often an idle worker looks whether it is to stop
_KEEP_S = 1.0  # how often leases are looked at, at least
_COMMIT_S = 5.0  # how long a commit waits for room; a reply needs none in its queue
# The repository cannot be used any more, or not by this process.
_FATAL = (LogFailed, OutcomeUnknown, ClosedError)
# The commit was refused, and the handler is not to blame.
_NOT_ITS_FAULT = (Conflict, Full, QueueStopped, LeaseLost, Killed)


class Crew:
    """The threads of a server in this process."""

    def __init__(
        self,
        classes: Sequence[ServerClass],
        backoff: Backoff,
        keep: float,
        durability: Durability | None,
        ended: threading.Event,
    ) -> None:
        self.backoff = backoff
        self.keep = keep
        self.durability = durability
        self.ended = ended
        self._failure: BaseException | None = None
        self.workers = [Worker(self, each) for each in classes for _ in range(each.threads)]
        self._keeper = threading.Thread(target=self._keep_leases, name="rota-keeper", daemon=True)
        self._keeper_stopping = threading.Event()
        for worker in self.workers:
            worker.thread.start()
        self._keeper.start()

    def fail(self, failure: BaseException) -> None:
        """Something ended a worker: end all of them."""
        if self._failure is None:
            self._failure = failure
        self.ended.set()

    def stop(self, deadline: float) -> bool:
        """Let the workers finish what they have: whether they did.  Raises what ended one of them."""
        self.ended.set()
        for worker in self.workers:
            worker.thread.join(max(0.0, deadline - time.monotonic()))
        done = not any(worker.thread.is_alive() for worker in self.workers)
        if done:
            self._keeper_stopping.set()
            self._keeper.join()
        if self._failure is not None:
            raise self._failure
        return done

    def _keep_leases(self) -> None:
        """Until all workers have ended: a handler that is waited for in vain keeps its lease too."""
        pause = 0.0
        while not self._keeper_stopping.wait(pause):
            leases = [worker.lease() for worker in self.workers]
            now = time.monotonic()
            for worker, lease in zip(self.workers, leases, strict=True):
                worker.keep(now, lease)
            pause = min(_KEEP_S, *(lease / 4 for lease in leases))
            if self.ended.is_set() and not any(worker.thread.is_alive() for worker in self.workers):
                return


class Worker:
    """A thread that serves one queue."""

    def __init__(self, crew: Crew, served: ServerClass) -> None:
        self.crew = crew
        self.served = served
        self.queue = served.queue
        self.repository = served.queue.repository
        self._takes_transaction = _takes_two(served.handler)
        self._answers_itself = bool(getattr(served.handler, "answers_itself", False))  # a saga, when it ends
        self._lock = threading.Lock()
        self._message: Message | None = None  # what the keeper keeps, under the lock
        self._begun = 0.0
        self.thread = threading.Thread(target=self._run, name=f"rota-server-{self.queue.name}", daemon=True)

    def lease(self) -> float:
        """Seconds of a lease of its queue; of a queue that was destroyed what does no harm."""
        try:
            return float(self.queue.figures()["lease"])
        except RotaError:
            return _KEEP_S

    def keep(self, now: float, lease: float) -> None:
        """Extend the lease of what is in hand, unless it is kept for too long already."""
        with self._lock:
            if self._message is None or not lease / 8 < now - self._begun < self.crew.keep:
                return
            try:
                self._message.extend(lease)
            except (Killed, LeaseLost):
                self._message = None  # the commit will say so
            except RotaError as failure:
                self.crew.fail(failure)

    def _run(self) -> None:
        try:
            while not self.crew.ended.is_set():
                message = self._take()
                if message is not None:
                    self._serve(message)
        except BaseException as failure:
            self.crew.fail(failure)

    def _take(self) -> Message | None:
        try:
            return self.queue.get(timeout=_LOOK_S)
        except Empty:
            return None
        except QueueStopped:
            self.crew.ended.wait(_LOOK_S)
        except LockHeld as held:
            _log.warning("the server of %r waits: %s", self.queue.name, held)
        except Corrupt as damage:
            _log.error("a message of %r cannot be read and was put aside: %s", self.queue.name, damage)
        return None

    def _serve(self, message: Message) -> None:
        """Process one request, or give it back."""
        transaction = self.repository.transaction(durability=self.crew.durability, timeout=_COMMIT_S)
        try:
            with self._kept(message):
                answer = self._call(message, transaction)
            if not transaction.is_open:
                raise StateError("the handler ended the transaction of its server", path=self.repository.path)
        except NotNow as plea:
            self._back(message, transaction, plea.delay, excused=True)
        except Refused as refusal:
            self._refuse(message, transaction, refusal)
        except Exception as error:
            self._blame(message, transaction, error)
        except BaseException:  # the handler asks the program to end
            self._back(message, transaction, 0.0, excused=True)
            raise
        else:
            self._commit(message, transaction, answer)

    @contextlib.contextmanager
    def _kept(self, message: Message) -> Iterator[None]:
        self._begun = time.monotonic()
        self._message = message
        try:
            yield
        finally:
            with self._lock:
                self._message = None

    def _call(self, message: Message, transaction: Transaction) -> Any:
        argument: Any = message
        if self.served.decode is not None:
            try:
                argument = self.served.decode(message.body)
            except (ValueError, TypeError, KeyError) as error:
                raise Refused(f"the request cannot be read: {error}") from error
        handler: Any = self.served.handler
        answer = handler(argument, transaction) if self._takes_transaction else handler(argument)
        if self.served.encode is not None:
            answer = self.served.encode(answer)
        if answer is None:
            return b""
        memoryview(answer)  # a handler that returns something else is told so, before the commit
        return answer

    def _commit(self, message: Message, transaction: Transaction, answer: Any, error: str | None = None) -> None:
        """Settle the request and put its reply, all or nothing."""
        try:
            transaction.ack(message)
            waiting = waiting_for(message, self.repository)
            if waiting is not None and not (error is None and self._answers_itself):
                queue, client, rid = waiting
                attributes = encode_reply(client, rid, "ok" if error is None else "failed", error)
                transaction.put_encoded(queue, answer, attributes, answer=True)
            transaction.commit()
        except _FATAL:
            raise
        except _NOT_ITS_FAULT as reason:
            _log.info("message %d of %r is tried again: %s", message.id, self.queue.name, reason)
            self._back(message, transaction, self.crew.backoff.delay(1), excused=True)
        except Exception as failure:  # too large, for instance
            self._blame(message, transaction, failure)

    def _refuse(self, message: Message, transaction: Transaction, refusal: Refused) -> None:
        """Drop what the handler did, and answer that it failed."""
        if transaction.is_open:
            transaction.rollback(excused=False)
        if waiting_for(message, self.repository) is None:
            self._blame(message, transaction, refusal)
            return
        fresh = self.repository.transaction(durability=self.crew.durability, timeout=_COMMIT_S)
        self._commit(message, fresh, b"", str(refusal))

    def _blame(self, message: Message, transaction: Transaction, error: Exception) -> None:
        """The attempt counts: back after a while, or to the error queue."""
        delay = self.crew.backoff.delay(message.attempts)
        _log.warning(
            "attempt %d at message %d of %r failed", message.attempts, message.id, self.queue.name, exc_info=error
        )
        self._back(message, transaction, delay, excused=False, reason=f"{type(error).__name__}: {error}")

    def _back(
        self, message: Message, transaction: Transaction, delay: float, *, excused: bool, reason: str | None = None
    ) -> None:
        if transaction.is_open:
            with contextlib.suppress(Killed):
                transaction.rollback(excused)
        if message.settled:
            return
        with contextlib.suppress(LeaseLost, Killed):  # then it is not ours to give
            if excused:
                message.release(delay)
            else:
                message.nack(delay, reason)


def _takes_two(handler: Any) -> bool:
    """Whether a handler wants the transaction too: it has two positional parameters without a default."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # of a compiled function nothing is known
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = [each for each in parameters if each.kind in positional and each.default is inspect.Parameter.empty]
    return len(wanted) == 2
