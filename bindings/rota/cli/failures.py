"""What an error means to the person who typed the command: an exit code and one sentence.

| code | name | when |
|---|---|---|
| 0 | DONE | |
| 1 | FAILED | the world did not allow it: full, disk full, a failed sync, an input that cannot be read |
| 2 | USAGE | wrong options or arguments; click finds them |
| 3 | NOTHING_THERE | no such repository, queue, file or message; nothing to hand out |
| 4 | REFUSED | damaged, foreign or changed data; held by another; options unlike the stored ones |
"""

from __future__ import annotations

import os

import rota
from rota.cli.text import printable

DONE = 0
FAILED = 1
USAGE = 2
NOTHING_THERE = 3
REFUSED = 4


class Failure(Exception):
    """A command cannot go on; it carries the exit code and the sentence."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class NothingThere(Failure):
    """What was asked for does not exist."""

    def __init__(self, message: str) -> None:
        super().__init__(NOTHING_THERE, message)


class Refused(Failure):
    """It could be done, and would do harm; or the data does not allow it."""

    def __init__(self, message: str) -> None:
        super().__init__(REFUSED, message)


# The first class that matches decides. Subclasses stand before their bases.
CODES: tuple[tuple[type[BaseException], int], ...] = (
    (rota.Empty, NOTHING_THERE),
    (rota.NotFound, NOTHING_THERE),
    (rota.OpenError, REFUSED),
    (rota.Corrupt, REFUSED),
    (rota.OptionMismatch, REFUSED),
    (rota.QueueStopped, REFUSED),
    (rota.Fenced, REFUSED),
    (rota.MessageTooLarge, REFUSED),
    (rota.TransactionTooLarge, REFUSED),
    (rota.Misuse, REFUSED),
    (rota.RotaError, FAILED),
    (FileNotFoundError, NOTHING_THERE),
    (OSError, FAILED),
)

HINTS: tuple[tuple[type[BaseException], str], ...] = (
    (rota.DiskFull, "free some space and run the command again; what was put is safe"),
    (rota.Full, "wait until messages are taken, or give it more room"),
    (rota.LogFailed, "stop all programs that use the repository, look at the disk, then open it again"),
)


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code of an error and what to print."""
    if isinstance(error, Failure):
        return error.code, error.message
    code = next((code for kind, code in CODES if isinstance(error, kind)), FAILED)
    hint = next((f"; {text}" for kind, text in HINTS if isinstance(error, kind)), "")
    return code, describe(error) + hint


def describe(error: BaseException) -> str:
    """Return the sentence an error carries, on one line, or its name when it carries none."""
    if isinstance(error, OSError) and error.strerror and not isinstance(error, rota.RotaError):
        name = f"{printable(os.fsencode(error.filename))}: " if isinstance(error.filename, str | bytes) else ""
        return f"{name}{error.strerror}"
    text = str(error).strip()
    if not isinstance(error, rota.RotaError | OSError):
        return f"{type(error).__name__}: {printable(text)}"
    return printable(text) if text else type(error).__name__
