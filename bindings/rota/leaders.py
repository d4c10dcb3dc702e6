"""Leaders: one of several instances acts, the others stand by; the log refuses who was replaced and does not know it.

    waits --elected--> inaugurates --> executes, again and again --> hands over --> resigned
      ^                    | refuses, or raises      | False, stop, lost, or raises     |
      |                    +------------------------>+--------------------------------->|
      +---------------------------------- stand_again ----------------------------------+

What holds:

1. `leadership.valid` turns False before any other instance can be elected, as far as clocks and a process that is not
   frozen allow; what makes it safe is the fence (`Queue.fence`), which asks no clock.
2. Whatever happens after the election, an exception too, the node is given up last, after `hand_over`.
3. A token is for one leadership, and higher than every one before it.

The phases are those of distributed queue programming (Meituan's technical team); the token is the sequencer of Burrows,
"The Chubby lock service", OSDI 2006.
"""

from __future__ import annotations

import abc
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from rota._core.queue import Queue

__all__ = ["Elector", "LeaderCareer", "Leadership", "lead"]

_REST = 1.0  # seconds before who refused stands again
_LOOK = 0.02


class Leadership:
    """That an instance leads, or, as learners are given it, that another one does.

    `token` is the fencing token, `identity` the name of the leader, `stop` an event that asks it to end, `lost` whether
    it was taken away, so that nothing more may be written under it.
    """

    def __init__(self, token: int, identity: str, is_valid: Callable[[], bool] | None = None) -> None:
        self.token = token
        self.identity = identity
        self.stop = threading.Event()
        self.lost = False
        self._is_valid = is_valid

    @property
    def valid(self) -> bool:
        """Whether this instance leads at this moment, as far as it can know without asking anybody."""
        return not self.lost and self._is_valid is not None and self._is_valid()

    def fence(self, queue: Queue) -> Queue:
        """Fence the queue by the token; the handle that acts under it.  Raises StaleLeader, and then another leads."""
        queue.fence(self.token)
        return queue.under(self.token)

    def __repr__(self) -> str:
        state = "lost" if self.lost else "valid" if self.valid else "not valid"
        return f"<rota.Leadership {self.token} of {self.identity!r}, {state}>"


class LeaderCareer(abc.ABC):
    """What an instance does as a leader, and before and after.  `execute` must be written, the others may be."""

    def prepare(self) -> None:
        """Get ready while another one still leads; called when this instance has begun to stand."""
        return None

    def inaugurate(self, leadership: Leadership) -> bool | None:
        """Begin: fence, load what is needed.  False refuses the office: nothing is executed, and it resigns."""
        return None

    @abc.abstractmethod
    def execute(self, leadership: Leadership) -> bool:
        """One piece of work; True to be called again.  Long ones look at `leadership.valid` and `leadership.stop`."""

    def hand_over(self, leadership: Leadership) -> None:
        """Finish what is in flight, as far as it is still allowed; after `lost` nothing can be written."""
        return None

    def learn(self, leadership: Leadership) -> None:
        """Somebody else leads: its token and identity."""
        return None


class _Called(LeaderCareer):
    """A career of which only `execute` was given."""

    def __init__(self, execute: Callable[[Leadership], bool]) -> None:
        self._execute = execute

    def execute(self, leadership: Leadership) -> bool:
        return self._execute(leadership)


class Elector(abc.ABC):
    """Who decides which instance leads.  An elector is of one instance and the thread that stands; any may `cancel`.

    `identity` is how the instance is called.
    """

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self._cancelled = threading.Event()
        self._leadership: Leadership | None = None

    @abc.abstractmethod
    def stand(self, prepare: Callable[[], None], learn: Callable[[Leadership], None]) -> Leadership | None:
        """Wait until elected; None when it was cancelled.

        Calls `prepare` once, when it stands, and `learn` for each other leader.
        """

    @abc.abstractmethod
    def resign(self, leadership: Leadership) -> None:
        """Give the office up, so that the next one is elected at once."""

    def regain(self, leadership: Leadership) -> bool:
        """Wait until a leadership that is in doubt is valid again; False when it is lost."""
        return leadership.valid

    def cancel(self) -> None:
        """Let `lead` end within a second, whatever it does, as far as `execute` returns; the office is given up."""
        self._cancelled.set()
        leadership = self._leadership
        if leadership is not None:
            leadership.stop.set()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()


def lead(career: LeaderCareer | Callable[[Leadership], bool], elector: Elector, *, stand_again: bool = False) -> bool:
    """Stand for election and follow a career, to its end; whether this instance led.

    `career` is a LeaderCareer, or its `execute` alone.  It ends when `execute` returns False, when the office is lost
    or refused, or by `elector.cancel()`; with `stand_again` only by the last.  What any phase raises is raised here,
    after `hand_over` and after the office was given up.
    """
    follow = career if isinstance(career, LeaderCareer) else _Called(career)
    led = False
    while not elector.cancelled:
        leadership = elector.stand(follow.prepare, follow.learn)
        if leadership is None:
            break
        elector._leadership = leadership
        if elector.cancelled:
            leadership.stop.set()
        try:
            inaugurated = _hold(follow, elector, leadership)
        finally:
            elector._leadership = None
            elector.resign(leadership)
        led = led or inaugurated
        if not stand_again:
            break
        if not inaugurated:
            elector._cancelled.wait(_REST)
    return led


def _hold(career: LeaderCareer, elector: Elector, leadership: Leadership) -> bool:
    """The office itself; False when it was refused."""
    with contextlib.ExitStack() as stack:
        stack.callback(career.hand_over, leadership)
        if career.inaugurate(leadership) is False:
            stack.pop_all()
            return False
        while not leadership.stop.is_set():
            if not leadership.valid:
                if elector.regain(leadership):
                    continue
                leadership.lost = True
                break
            if not career.execute(leadership):
                break
    return True


def boot_time() -> float:
    """Seconds of a clock that goes on while the machine sleeps, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def default_identity() -> str:
    """Host and process, for people; nothing relies on its being unique."""
    import os
    import socket

    return f"{socket.gethostname()}:{os.getpid()}"


def read_only_view(token: int, identity: Any) -> Leadership:
    """What learners are given: the identity is another's word, so it is cut and printable."""
    text = "".join(c if c.isprintable() else "?" for c in str(identity)[:255])
    return Leadership(token, text)
