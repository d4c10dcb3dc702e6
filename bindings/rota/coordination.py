"""The words of a coordinator: what is to be done with a key, and how a turn came.

From the deduplication state machine of the queue-programming article (Meituan): processing uniqueness, one works on a
key, and waiting uniqueness, one waits for it.
"""

from __future__ import annotations

import enum

__all__ = ["Action", "Turn"]


class Action(enum.IntEnum):
    """What an enqueue at a coordinator tells the caller to do; DECLINE is false."""

    DECLINE = 0
    """Nothing: another one waits already, and will see all that the caller could see."""
    ACCEPT = 1
    """Work, then dequeue."""
    BLOCK = 2
    """Wait for the turn, work, dequeue."""


class Turn(enum.IntEnum):
    """How the one that waited became the head; all are true."""

    ENDED = 1
    """The head before it called dequeue."""
    EVICTED = 2
    """The timeout was over; the head before it may still be at work, and its dequeue will be False."""
    DIED = 3
    """The process of the head before it died."""
