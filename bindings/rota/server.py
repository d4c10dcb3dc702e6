"""Servers: the side that processes requests, each exactly once.

What holds:

1. A request is taken, what its handler put is added, and its reply is put in one commit; whatever dies before that
   commit, the request comes back; whatever dies after it, the reply is there.
2. A server stops between requests: what is in hand is finished and committed, nothing new is taken.
3. Each queue is a server class of its own, with its own handler and threads.

                          ┌ returns ────────────> commit: request settled, reply "ok"
    request ──> handler ──┤ raises Refused ─────> commit: request settled, reply "failed"
                          ├ raises NotNow ──────> back after its delay, the attempt does not count
                          └ raises otherwise ───> back after the back-off, or to the error queue

Bernstein, Hsu and Mann, "Implementing Recoverable Requests Using Queues", SIGMOD 1990.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rota.errors import StateError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from rota._core.message import Message
    from rota._core.queue import Queue
    from rota._core.transaction import Transaction
    from rota._serving import Crew
    from rota._supervising import Supervisor
    from rota.repository import Durability, Repository

__all__ = ["Backoff", "NotNow", "Refused", "Server"]

Handler: TypeAlias = "Callable[[Message], Buffer | None] | Callable[[Message, Transaction], Buffer | None]"
_F = TypeVar("_F", bound=Callable[..., Any])
_log = logging.getLogger("rota")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SLICE_S = 0.05  # after which run() sees what its signal handler noted


class Refused(Exception):
    """Raised by a handler: this request will never be processed; its client gets the reply *failed* at once.

    The text is the reply's `error`.  A message whose sender waits for no reply is given back as with any exception, and
    so ends in the error queue.
    """


class NotNow(Exception):
    """Raised by a handler: not its fault, try the request again after `delay` seconds; the attempt does not count."""

    def __init__(self, delay: float = 1.0) -> None:
        super().__init__(delay)
        self.delay = delay


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failed request waits: `first` seconds, each time `factor` times as long, `most` at most.

    `jitter`, 0 to 1, is the part of it that is drawn by chance, so that what failed together does not return together:
    Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    first: float = 0.1
    factor: float = 2.0
    most: float = 60.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not (0 <= self.first <= self.most < 3e9 and self.factor >= 1 and 0 <= self.jitter <= 1):
            raise ValueError(f"0 <= first <= most, factor >= 1 and 0 <= jitter <= 1, not {self!r}")

    def delay(self, attempts: int) -> float:
        """Seconds to wait after so many attempts, 1 for the first."""
        import random

        whole = self.first
        for _ in range(attempts - 1):
            if whole >= self.most:
                break
            whole *= self.factor
        return min(whole, self.most) * (1 - self.jitter * random.random())


@dataclass(frozen=True, slots=True)
class ServerClass:
    """A queue, who handles its requests, by how many threads, and what they are decoded from and encoded to."""

    queue: Queue
    handler: Handler
    threads: int
    decode: Callable[[bytes], Any] | None = None
    encode: Callable[[Any], Buffer] | None = None


class Server:
    """Serves queues with handlers, from `repo.server()`; a context manager, which starts and stops it.

    `repository` is where its queues are; `running` tells whether it was started and not stopped.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        threads: int = 1,
        processes: int = 0,
        backoff: Backoff | None = None,
        keep: float = 3600.0,
        grace: float = 30.0,
        durability: Durability | None = None,
    ) -> None:
        _counted("threads", threads, 1)
        _counted("processes", processes, 0)
        for option, value in (("keep", keep), ("grace", grace)):
            if not 0 <= value < 3e9:
                raise ValueError(f"{option} is 0 or more seconds, not {value!r}")
        self.repository = repository
        self._threads = threads
        self._processes = processes
        self._backoff = Backoff() if backoff is None else backoff
        self._keep = keep
        self._grace = grace
        self._durability = durability
        self._classes: list[ServerClass] = []
        self._workers: Crew | Supervisor | None = None
        self._ended = threading.Event()  # set when it is to end or failed

    def handle(
        self,
        queue: str | Queue,
        *,
        threads: int | None = None,
        decode: Callable[[bytes], Any] | None = None,
        encode: Callable[[Any], Buffer] | None = None,
    ) -> Callable[[_F], _F]:
        """A decorator: the function handles the requests of that queue, one server class more.

        `decode` makes of a body what the function is called with in the place of the message; when it raises
        ValueError (TypeError, KeyError), the request is refused.  `encode` makes the body of the reply of what the
        function returns.  `threads` (None: those of the server) serve this queue.  The function itself is returned.
        Raises StateError while the server runs, ValueError when the queue has a handler.
        """

        def add(function: _F) -> _F:
            self._add(queue, function, threads, decode, encode)
            return function

        return add

    def _add(self, queue: str | Queue, handler: Handler, threads: int | None, decode: Any, encode: Any) -> None:
        if self.running:
            raise StateError("the server runs: stop it, then give it handlers", path=self.repository.path)
        found = self.repository.queue(queue) if isinstance(queue, str) else queue
        if any(each.queue.name == found.name for each in self._classes):
            raise ValueError(f"the queue {found.name!r} has a handler")
        if not callable(handler):
            raise TypeError(f"a handler is called with a message: {handler!r} cannot be")
        count = self._threads if threads is None else threads
        _counted("threads", count, 1)
        self._classes.append(ServerClass(found, handler, count, decode, encode))

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._workers is not None

    def start(self) -> None:
        """Begin to serve, in threads or processes of its own, and return.

        With processes the handlers are sent there by pickle, so they are functions of a module, and the main program is
        guarded by `if __name__ == "__main__":`.  Raises StateError when it runs or has no handler.
        """
        if self.running:
            raise StateError("the server runs already", path=self.repository.path)
        if not self._classes:
            raise StateError("the server has no handler: give it one by handle()", path=self.repository.path)
        self._ended = threading.Event()  # workers that did not end in time keep theirs
        if self._processes:
            from rota._supervising import Supervisor

            self._workers = Supervisor(self._plan(), self._processes, self._grace, self._ended)
        else:
            from rota._serving import Crew

            self._workers = Crew(self._classes, self._backoff, self._keep, self._durability, self._ended)

    def _plan(self) -> tuple[Any, ...]:
        """What a process needs to make the same server."""
        options = {
            "threads": self._threads,
            "backoff": self._backoff,
            "keep": self._keep,
            "grace": self._grace,
            "durability": self._durability,
        }
        classes = [(each.queue.name, each.handler, each.threads, each.decode, each.encode) for each in self._classes]
        return self.repository, options, classes

    def stop(self, grace: float | None = None) -> bool:
        """Take nothing new, finish and commit what is in hand, and return whether all of it ended.

        False: after `grace` seconds (None: those of the server) a handler still ran.  A thread goes on and ends after
        its request; a process is killed, and its request comes back.  A server that was stopped may be started again.
        A second call does nothing and is True.  Raises what ended the server, such as LogFailed.
        """
        workers, self._workers = self._workers, None
        self._ended.set()
        if workers is None:
            return True
        return workers.stop(time.monotonic() + (self._grace if grace is None else grace))

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT or stop() from another thread, then stop as stop() does.

        In the main thread those signals ask it to stop, a second one acts as before the call; afterwards they do what
        they did before.  Raises as start() and stop().
        """
        self._serve_until(_SIGNALS)

    def _serve_until(self, signals: tuple[signal.Signals, ...]) -> None:
        former: dict[signal.Signals, Any] = {}
        asked = False

        def ask(number: int, frame: FrameType | None) -> None:
            nonlocal asked
            restore()
            asked = True  # no event: this thread may be holding its lock

        def restore() -> None:
            while former:
                signal.signal(*former.popitem())

        if threading.current_thread() is threading.main_thread():
            former = {number: signal.signal(number, ask) for number in signals}
        try:
            if not self.running:
                self.start()
            while not asked and not self._ended.wait(_SLICE_S):
                pass  # a signal that came just before the wait does not interrupt it
            self.stop()
        finally:
            restore()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        names = ", ".join(repr(each.queue.name) for each in self._classes)
        return f"<rota.Server of {names or 'nothing'} {'running' if self.running else 'stopped'}>"


def _counted(option: str, value: int, least: int) -> None:
    if not least <= value <= 4096:
        raise ValueError(f"{option} is {least} to 4096, not {value!r}")
