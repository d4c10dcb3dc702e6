"""Processes that serve, started again when they die.

What holds:

1. Each process holds one end of a pipe whose other end only the supervisor's process has: when that dies, however, the
   pipe says so, and the process finishes what it has in hand and ends.  There are no orphans.
2. A process that was killed is replaced, after a back-off when it lived shortly.  One that cannot even start, several
   times in a row, ends the server with an error: it would be the same for ever.
3. What a dead process had in hand comes back by itself, and its attempt counts.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from rota.errors import StateError
from rota.server import Backoff, Server

_log = logging.getLogger("rota")
_READY = b"ready"
_SHORT_S = 5.0  # who lived for less than that waits before the next life
_LOOK_S = 1.0  # how often a process looks whose child it is
_STARTS_MOST = 5  # in vain, one after the other
_PAUSE = Backoff(first=0.05, most=5.0)


class Life:
    """One process and our ends of its pipes."""

    def __init__(self, context: Any, plan: tuple[Any, ...]) -> None:
        theirs, self.leash = context.Pipe(duplex=False)
        self.word, spoken = context.Pipe(duplex=False)
        self.begun = time.monotonic()
        self.ready = False
        self.process = context.Process(target=_live, args=(plan, theirs, spoken), name="rota-server")
        try:
            self.process.start()
        finally:
            theirs.close()
            spoken.close()

    def hear(self) -> None:
        """Note that it serves."""
        with contextlib.suppress(EOFError, OSError):
            self.ready = self.ready or (self.word.poll() and self.word.recv_bytes() == _READY)

    def close(self) -> None:
        """Let go of the leash: it finishes what it has."""
        self.leash.close()

    def bury(self) -> int:
        """Wait for its end, which is near: its exit code."""
        self.hear()
        self.process.join()
        code = self.process.exitcode
        self.process.close()
        self.close()
        self.word.close()
        return int(code)


class Supervisor:
    """Starts the processes of a server and replaces those that die."""

    def __init__(self, plan: tuple[Any, ...], count: int, grace: float, ended: threading.Event) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._plan = plan
        self._grace = grace
        self._ended = ended
        self._failure: BaseException | None = None
        self._woken, self._waker = os.pipe()
        self._stopping = False
        self._deadline = 0.0
        self._killed = False
        self._lives: list[Life | None] = [None] * count
        self._due = [0.0] * count
        self._short = [0] * count
        self._vain = 0
        self._thread = threading.Thread(target=self._run, name="rota-supervisor", daemon=True)
        for place in range(count):
            self._lives[place] = Life(self._context, plan)
        self._thread.start()

    def stop(self, deadline: float) -> bool:
        """Let the processes finish, kill those that do not: whether all of them finished.  Raises what failed."""
        self._deadline = deadline
        self._stopping = True
        os.write(self._waker, b"s")
        self._thread.join()
        os.close(self._waker)
        os.close(self._woken)
        if self._failure is not None:
            raise self._failure
        return not self._killed

    @property
    def pids(self) -> list[int]:
        """Process ids of those that live now."""
        return [life.process.pid for life in self._lives if life is not None]

    def _run(self) -> None:
        try:
            while not self._stopping and self._failure is None:
                self._look()
        except BaseException as failure:
            self._failure = failure
        finally:
            self._ended.set()
            self._finish()

    def _look(self) -> None:
        """Wait until one dies, speaks, is due, or somebody calls; then do what is to be done."""
        now = time.monotonic()
        waits = [due - now for life, due in zip(self._lives, self._due, strict=True) if life is None]
        handles: list[Any] = [self._woken]
        for life in self._lives:
            if life is not None:
                handles += [life.process.sentinel] if life.ready else [life.process.sentinel, life.word]
        multiprocessing.connection.wait(handles, max(0.0, min(waits)) if waits else None)
        for place, life in enumerate(self._lives):
            if life is None:
                if not self._stopping and time.monotonic() >= self._due[place]:
                    self._lives[place] = Life(self._context, self._plan)
                continue
            life.hear()
            if life.ready:
                self._vain = 0
            if not life.process.is_alive():
                self._replace(place, life)

    def _replace(self, place: int, life: Life) -> None:
        pid, lived = life.process.pid, time.monotonic() - life.begun
        self._lives[place] = None
        code = life.bury()
        self._short[place] = self._short[place] + 1 if lived < _SHORT_S else 0
        pause = _PAUSE.delay(self._short[place]) if self._short[place] else 0.0
        self._due[place] = time.monotonic() + pause
        _log.warning("process %d of the server ended with %d and is replaced in %.2f s", pid, code, pause)
        if not life.ready:
            self._vain += 1
            if self._vain >= _STARTS_MOST:
                self._failure = StateError(
                    f"{self._vain} processes of the server ended before they served, the last one with {code}: their "
                    "standard error tells why"
                )

    def _finish(self) -> None:
        """Stop those that live, and wait for them; at the deadline they are killed."""
        if not self._stopping:
            self._deadline = time.monotonic() + self._grace
        lives = [life for life in self._lives if life is not None]
        for life in lives:
            life.close()
        for life in lives:
            life.process.join(max(0.0, self._deadline - time.monotonic()))
            if life.process.is_alive():
                life.process.kill()
                self._killed = True
            life.bury()


def _live(plan: tuple[Any, ...], leash: Connection, spoken: Connection) -> None:
    """A process of the server: serve until the leash is let go, SIGTERM, or a failure."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all of the terminal; who started us decides
    parent = os.getppid()
    repository, options, classes = plan
    server = Server(repository, **options)
    for queue, handler, threads, decode, encode in classes:
        server._add(queue, handler, threads, decode, encode)
    server.start()
    threading.Thread(target=_watch, args=(leash, parent, server), name="rota-leash", daemon=True).start()
    with contextlib.suppress(OSError):  # nobody listens any more: the leash says so too
        spoken.send_bytes(_READY)
    server._serve_until((signal.SIGTERM,))
    repository.close()


def _watch(leash: Connection, parent: int, server: Server) -> None:
    """Nobody writes into the leash: its end is the end of who started us, or of its patience.

    A fork of that process may hold the other end too, so whose child we are is looked at as well.
    """
    while not leash.poll(_LOOK_S) and os.getppid() == parent:
        pass
    server._ended.set()
    # A handler that does not end must not outlive for ever who started it.
    late = threading.Timer(server._grace + 1.0, os._exit, (1,))
    late.daemon = True
    late.start()
