"""Processes to be killed, and the ledger that says what must be left of their work.

What holds:

1. A Child is forked, talks over a socket that keeps the borders of messages, and is killed and reaped when
   its block ends.  What it sent before it died can still be received.
2. A Ledger knows the messages that must be in the queues.  Each operation is announced before it is called
   and confirmed after it returned; it removes some bodies and adds others, all or nothing.  A death leaves at
   most one operation unconfirmed, and what is found must be the state before it or the state after it.
3. Nothing here sleeps to wait for something: every wait is for a message, an end or a deadline that fails the
   test.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import rota

PATIENCE_S = 20.0
MESSAGE_BYTES_MAX = 1 << 17


class Died(Exception):
    """The child ended without another word."""


class Link:
    """One end of the line between parent and child."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def send(self, value: Any) -> None:
        """Send any value that pickles."""
        self.end.send(pickle.dumps(value))

    def receive(self, timeout: float = PATIENCE_S) -> Any:
        """Return what the other side sent.  Raises Died, TimeoutError; what the child raised fails here."""
        self.end.settimeout(timeout)
        try:
            data = self.end.recv(MESSAGE_BYTES_MAX)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Died
        value = pickle.loads(data)
        if isinstance(value, Failure):
            raise AssertionError(f"in the child:\n{value.text}")
        return value


class Failure:
    """What went wrong in a child."""

    def __init__(self, text: str) -> None:
        self.text = text


class Child(Link):
    """A forked process that runs `function(link, *arguments)`; a context manager, which kills."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads: on purpose
            self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _run(Link(theirs), function, arguments)
        theirs.close()
        super().__init__(ours)
        self.handle = os.pidfd_open(self.pid)
        self.status: int | None = None

    def signal(self, number: int) -> None:
        """Send it a signal, unless it was waited for."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.handle, number)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Return the exit code, or minus the signal that ended it.  Raises TimeoutError."""
        if self.status is None:
            poll = select.poll()
            poll.register(self.handle, select.POLLIN)
            if not poll.poll(timeout * 1000):
                raise TimeoutError(f"process {self.pid} did not end")
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def kill(self) -> int:
        """SIGKILL, and wait for the end."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def finish(self) -> None:
        """Wait for an orderly end."""
        with contextlib.suppress(Died):
            while True:
                self.receive()
        assert self.wait() == 0

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self.handle)
        self.end.close()


def _run(link: Link, function: Callable[..., Any], arguments: tuple[Any, ...]) -> NoReturn:
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0)
        warnings.simplefilter("ignore", ResourceWarning)
        function(link, *arguments)
        code = 0
    except BaseException:
        with contextlib.suppress(OSError):
            link.send(Failure(traceback.format_exc()[-4000:]))
    finally:
        os._exit(code)


class Ledger:
    """The parent's view: what must be there, and the one operation that may or may not have happened."""

    def __init__(self) -> None:
        self.certain: set[bytes] = set()
        self.removes: set[bytes] = set()
        self.adds: set[bytes] = set()
        self.confirmed = 0

    def follow(self, child: Child) -> None:
        """Take in everything that a child said until it died."""
        with contextlib.suppress(Died):
            while True:
                self.take(child.receive())

    def take(self, entry: Any) -> None:
        if entry[0] == "begin":
            self.removes, self.adds = set(entry[1]), set(entry[2])
        elif entry[0] == "end":
            self.certain = (self.certain - self.removes) | self.adds
            self.removes, self.adds = set(), set()
            self.confirmed += 1

    def check(self, found: list[bytes]) -> None:
        """Compare with what was found: all or nothing of the open operation, nothing lost, nothing twice."""
        assert len(found) == len(set(found)), "a message came twice"
        after = (self.certain - self.removes) | self.adds
        if set(found) not in (self.certain, after):
            lost = sorted((self.certain & after) - set(found))
            alien = sorted(set(found) - (self.certain | after))
            raise AssertionError(f"lost {lost}, alien {alien}, in question -{self.removes} +{self.adds}")


@contextlib.contextmanager
def announced(link: Link, removes: Iterable[bytes] = (), adds: Iterable[bytes] = ()) -> Iterator[None]:
    """An operation in the child, for the ledger in the parent."""
    link.send(("begin", list(removes), list(adds)))
    yield
    link.send(("end",))


def drain(queue: rota.Queue, patience: float = 5.0) -> list[bytes]:
    """Claim and ack everything that is or comes back; fails when the queue does not run empty in time."""
    bodies: list[bytes] = []
    deadline = time.monotonic() + patience
    while len(queue):
        for message in queue.get_many(1000, timeout=0.2):
            bodies.append(message.body)
            message.ack(durability="none")
        assert time.monotonic() < deadline, f"{queue!r} does not run empty"
    return bodies
