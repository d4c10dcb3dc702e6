"""Registrations: a registrant's last tagged operation on a queue, kept atomically with the operation.

Bernstein, Hsu and Mann, "Implementing Recoverable Requests Using Queues", SIGMOD 1990, section on registration.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from rota._core import transaction as _native
from rota.errors import NotFound

if TYPE_CHECKING:
    from rota.repository import Repository

__all__ = ["LastOperation", "Registration"]

_TAG = struct.Struct("<HHI")
_KINDS = {1: "put", 2: "get"}


class LastOperation(NamedTuple):
    """The last tagged operation: "put" or "get", the id of its message (None: it had none), its tag.

    `message` is reserved and None.
    """

    kind: str
    id: int | None
    tag: bytes
    message: None = None


class Registration:
    """A registrant of a queue; from `queue.register(name)`.  Registering again does not reset it.

    `transaction.tag(registration, tag)` sets what `last` tells; `stable` is kept with it.
    """

    def __init__(self, repository: Repository, queue_name: str, queue_number: int, name: str, stable: bool) -> None:
        self.repository = repository
        self.queue_name = queue_name
        self.queue_number = queue_number
        self.name = name
        self.stable = stable

    def encode(self, tag: bytes = b"") -> bytes:
        """Name and tag as the log has them.  Raises ValueError when the name has not 1 to 255 bytes."""
        name = self.name.encode("utf-8", "surrogateescape")
        if not 0 < len(name) <= 255:
            raise ValueError(f"the name of a registrant has 1 to 255 bytes, not {len(name)}")
        return _TAG.pack(len(name), len(tag), 0) + name + tag

    @property
    def last(self) -> LastOperation | None:
        """The last tagged operation, None when there was none.  Raises NotFound when it was deregistered."""
        name = self.name.encode("utf-8", "surrogateescape")
        found = _native.registration_of(self.repository._store, self.queue_number, name)
        if found is None:
            raise NotFound(f"{self.name!r} is not registered at {self.queue_name!r}")
        kind, identity, tag, _, _ = found
        if kind not in _KINDS:
            return None
        return LastOperation(_KINDS[kind], identity or None, tag)

    def deregister(self) -> None:
        """Forget it, its tag too; registering afterwards is a first time.  A second call does nothing."""
        _native.write_registration(self.repository._store, self.queue_number, self.encode(), self.stable, True)

    def __repr__(self) -> str:
        return f"<rota.Registration {self.name!r} at {self.queue_name!r}>"
