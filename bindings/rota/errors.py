"""The errors of rota, one tree, every one with fields and a stable code.

    RotaError
    ├── Empty (queue.Empty)           no message is ready
    ├── Full (queue.Full)             no room in the queue or the repository
    │   └── DiskFull                  no room on the file system
    ├── NotFound                      no such message, queue or registration
    ├── LeaseLost                     the claim ended before it was settled
    ├── Killed                        the message was killed while it was claimed
    ├── Fenced                        another one took over
    │   ├── StaleLeader
    │   └── StaleClerk
    ├── Conflict                      what the commit depends on was changed meanwhile
    ├── LogFailed                     a sync failed; close all users and reopen
    ├── OutcomeUnknown                visible, but whether durable is not known
    ├── Corrupt                       stored bytes contradict their checksum
    ├── MessageTooLarge
    ├── TransactionTooLarge
    ├── OptionMismatch                a stored option has another value
    ├── QueueStopped
    ├── LockHeld                      a stopped process holds a lock
    ├── OpenError                     the directory cannot be opened as a repository
    │   ├── NotARepository
    │   ├── VersionMismatch
    │   ├── ForeignFiles
    │   ├── FileSystemRefused
    │   └── InUse
    ├── SystemCallError (OSError)     the system refused a call
    └── Misuse
        ├── StateError
        ├── ForkedHandleError
        ├── ClosedError
        └── ReadOnlyError

A code is the name of the engine's status and keeps its meaning from version to version.  TypeError, ValueError and
OverflowError, for arguments that are wrong in themselves, come from outside this tree.
"""

from __future__ import annotations

import errno as _errno
import queue as _queue
from typing import Any, ClassVar

__all__ = [
    "ClosedError", "Conflict", "Corrupt", "DiskFull", "Empty", "Fenced", "FileSystemRefused", "ForeignFiles",
    "ForkedHandleError", "Full", "InUse", "Killed", "LeaseLost", "LockHeld", "LogFailed", "MessageTooLarge", "Misuse",
    "NotARepository", "NotFound", "OpenError", "OptionMismatch", "OutcomeUnknown", "QueueStopped", "ReadOnlyError",
    "RotaError", "StaleClerk", "StaleLeader", "StateError", "SystemCallError", "TransactionTooLarge",
    "VersionMismatch",
]  # fmt: skip


class RotaError(Exception):
    """Base of all errors of rota.

    Fields (None where they mean nothing): `code`, a stable name; `path`, the repository; `file` and `offset`, where;
    `expected` and `found`, what a check compared; `errno`, what the system said.
    """

    code: ClassVar[str] = "ERROR"

    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        file: str | None = None,
        offset: int | None = None,
        expected: int | None = None,
        found: int | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.file = file
        self.offset = offset
        self.expected = expected
        self.found = found
        self.errno = errno

    def __str__(self) -> str:
        text = super().__str__() or (self.__doc__ or "").split("\n", 1)[0]
        where = "/".join(part for part in (self.path, self.file) if part)
        if where and self.offset:
            where += f" at byte {self.offset}"
        if self.errno:
            import os

            text += f" ({os.strerror(self.errno)})"
        return f"{text} [{where}]" if where else text

    def __reduce__(self) -> tuple[Any, ...]:
        # Where OSError is a base, errno is a field of the C struct and stands in no __dict__.
        return _rebuild, (type(self), self.args, {**self.__dict__, "errno": self.errno})


def _rebuild(cls: type[RotaError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> RotaError:
    error = cls(*arguments)
    for name, value in fields.items():
        setattr(error, name, value)
    return error


class Empty(RotaError, _queue.Empty):
    """No message is ready."""

    code = "EMPTY"


class Full(RotaError, _queue.Full):
    """The queue or the repository has no room."""

    code = "FULL"


class DiskFull(Full):
    """The file system has no room; nothing was lost, and it works again when there is space."""

    code = "DISK_FULL"


class NotFound(RotaError, LookupError):
    """There is no such message, queue or registration."""

    code = "NOT_FOUND"


class LeaseLost(RotaError):
    """The claim ended before it was settled; nothing was changed."""

    code = "LEASE_LOST"

    @property
    def id(self) -> int | None:
        """The message in question."""
        return self.expected


class Killed(RotaError):
    """The message was killed while it was claimed; nothing was changed."""

    code = "KILLED"

    @property
    def id(self) -> int | None:
        """The message in question."""
        return self.expected


class Fenced(RotaError):
    """Another one took over; nothing was changed."""

    code = "FENCED"


class StaleLeader(Fenced):
    """The fence of the queue is newer than the token."""

    code = "STALE_LEADER"


class StaleClerk(Fenced):
    """A younger connection uses this client id."""

    code = "STALE_CLERK"


class Conflict(RotaError):
    """Somebody changed what this commit depends on; nothing was changed: look at it again."""

    code = "CONFLICT"

    @property
    def id(self) -> int | None:
        """The message in question; None when it is not about one."""
        return self.expected


class LogFailed(RotaError):
    """A sync failed: close all users of the repository and reopen it; the reopening reads the disk."""

    code = "LOG_FAILED"


class OutcomeUnknown(RotaError):
    """The commit is visible, but a sync failed: whether it is durable is not known until the repository is reopened."""

    code = "OUTCOME_UNKNOWN"


class Corrupt(RotaError):
    """Stored bytes do not match their checksum or contradict each other; `rota verify` tells more."""

    code = "CORRUPT"

    def __str__(self) -> str:
        text = super().__str__()
        if self.path is None or "rota verify" in text:
            return text
        return f"{text}; `rota verify {self.path}` tells what is damaged, `rota repair` saves the rest"


class MessageTooLarge(RotaError, ValueError):
    """The message is larger than a commit may be; nothing was written."""

    code = "TOO_LARGE"


class TransactionTooLarge(RotaError, ValueError):
    """The operations do not fit into one commit; nothing was written."""

    code = "TRANSACTION_TOO_LARGE"


class OptionMismatch(RotaError, ValueError):
    """The stored option of the queue has another value; use configure() to change it."""

    code = "OPTION_MISMATCH"


class QueueStopped(RotaError):
    """The queue is stopped; start() lets it go on."""

    code = "STOPPED"


class LockHeld(RotaError, TimeoutError):
    """A process that is stopped holds a lock; continue it or kill it."""

    code = "LOCK_HELD"


class OpenError(RotaError):
    """The directory cannot be opened as a repository."""

    code = "OPEN"


class NotARepository(OpenError, FileNotFoundError):
    """The directory holds no repository; create=True makes one."""

    code = "NOT_A_REPOSITORY"


class VersionMismatch(OpenError):
    """The files were written by a newer version of rota, or on a machine of another byte order."""

    code = "VERSION"


class ForeignFiles(OpenError):
    """A process with another C library, or in another namespace, has the repository open."""

    code = "FOREIGN_ABI"


class FileSystemRefused(OpenError):
    """The file system cannot hold a repository safely."""

    code = "NETWORK_FILE_SYSTEM"


class InUse(OpenError):
    """Others still use it."""

    code = "IN_USE"


class SystemCallError(RotaError, OSError):
    """The system refused a call."""

    code = "OS"


class Misuse(RotaError):
    """The call is wrong, whatever the state of the world."""

    code = "MISUSE"


class StateError(Misuse):
    """The call does not fit the state of the object; nothing was changed."""

    code = "STATE"


class ForkedHandleError(Misuse):
    """The handle was inherited through fork: open the repository in the child."""

    code = "FORKED"


class ClosedError(Misuse, ValueError):
    """The repository is closed."""

    code = "CLOSED"


class ReadOnlyError(Misuse):
    """The repository was opened for reading only."""

    code = "READ_ONLY"


def _tree(cls: type[RotaError]) -> dict[str, type[RotaError]]:
    found = {cls.code: cls}
    for child in cls.__subclasses__():
        found.update(_tree(child))
    return found


_BY_CODE = _tree(RotaError)
# Statuses that a program cannot treat otherwise: a control file is rebuilt by reopening, as after a failed sync; a
# mapped page that cannot be read or written is what EIO is for a call.
_SEEN_AS = {"DAMAGED_CONTROL": "LOG_FAILED", "BUS": "OS", "TIMEOUT": "OS"}
for _class in _BY_CODE.values():
    _class.__module__ = "rota"


def error_for(code: str, message: str, **fields: Any) -> BaseException:
    """The error of that status name, with its fields; MemoryError for NO_MEMORY."""
    if code == "NO_MEMORY":
        return MemoryError(message)
    if code == "BUS":
        fields["errno"] = fields.get("errno") or _errno.EIO
    code = _SEEN_AS.get(code, code)
    return _BY_CODE.get(code, RotaError)(message, **fields)
