"""Registrations: a registrant's last tagged operation on a queue, kept atomically with the operation.

Bernstein, Hsu and Mann, "Implementing Recoverable Requests Using Queues", SIGMOD 1990, section on registration.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from rota._core import tagged as _tagged
from rota.errors import Conflict, LeaseLost, NotFound, RotaError, StaleClerk, StateError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from rota._core.message import Message
    from rota._core.put import Receipt
    from rota._core.queue import Queue
    from rota._core.store import Store
    from rota._core.transaction import Transaction
    from rota.repository import Durability, Repository

__all__ = ["LastOperation", "Registration"]

_TAG = struct.Struct("<HHHH")
_KINDS = {1: "put", 2: "get"}
_REGISTER, _DEREGISTER = 10, 11
_STABLE, _RAISE = 1, 2
_TAG_BYTES_MAX = 4608


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

    What is tagged through it (`put(tag=)`, `get(tag=)`, `transaction.tag(registration, tag)`) sets what `last` tells.
    `queue` and `name` are what it was made with; `stable` says whether it survives the last process.  `epoch` is
    the one that this handle acts under: once a younger
    connection has raised it, this one's tags raise StaleClerk.
    """

    __slots__ = ("__weakref__", "_encoded", "_transactions", "epoch", "name", "queue", "stable")

    def __init__(self, queue: Queue, name: str | bytes, stable: bool, epoch: int) -> None:
        self.queue = queue
        self.name = name
        self.stable = stable
        self.epoch = epoch
        self._encoded = encoded(name)
        self._transactions: list[weakref.ref[Transaction]] = []

    @property
    def repository(self) -> Repository:
        """The repository of its queue."""
        return self.queue.repository

    @property
    def queue_name(self) -> str:
        """The name of its queue."""
        return self.queue.name

    @property
    def queue_number(self) -> int:
        """The number of its queue in the log: for the package itself."""
        return self.queue.number_

    @property
    def key(self) -> tuple[int, bytes]:
        """What it is found by: for the package itself."""
        return self.queue.number_, self._encoded

    def encode(self, tag: bytes = b"", home: int | None = None) -> bytes:
        """Name and tag as the log has them; `home` is the number of the message's queue, None: its own."""
        if len(tag) > _TAG_BYTES_MAX:
            raise ValueError(f"a tag has at most {_TAG_BYTES_MAX} bytes, not {len(tag)}")
        return _TAG.pack(len(self._encoded), len(tag), 0 if home is None else home + 1, 0) + self._encoded + tag

    def enter(self, transaction: Transaction) -> None:
        """Note a transaction that will change it: for the package itself."""
        self._transactions = [found for found in self._transactions if (other := found()) and other.is_open]
        if all(found() is not transaction for found in self._transactions):
            self._transactions.append(weakref.ref(transaction))

    def _state(self) -> tuple[int, int, bytes, int, bool, int]:
        found = _tagged.registration_state(self.queue, self._encoded)
        if found is None:
            raise NotFound(f"{self.name!r} is not registered at {self.queue.name!r}", path=self.repository.path)
        return found

    @property
    def last(self) -> LastOperation | None:
        """The last tagged operation, None when there was none.  Raises NotFound when it was deregistered."""
        kind, identity, tag, _, _, _ = self._state()
        if kind not in _KINDS:
            return None
        return LastOperation(_KINDS[kind], identity or None, tag)

    @property
    def lsn(self) -> int:
        """The position behind the commit that changed it last, as receipts have it; each change raises it.

        Read it before `last`: then `transaction.tag(..., expected_lsn=)` refuses what `last` did not show.  Raises
        NotFound when it was deregistered.
        """
        return self._state()[5]

    def put(
        self,
        body: Buffer,
        tag: bytes = b"",
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str | int | float | bool] | None = None,
        priority: int = 0,
        delay: float = 0.0,
        ttl: float | None = None,
        timeout: float | None = None,
        durability: Durability | None = None,
    ) -> Receipt:
        """Put a message and keep `tag` with it, in one commit.  The rest is as in Queue.put.

        Raises StaleClerk, NotFound when it was deregistered, and as Queue.put.
        """
        return _tagged.put_tagged(
            self.queue, self.encode(tag), self.epoch, 0, body, key, headers, priority, delay, ttl, timeout, durability
        )

    def get(self, tag: bytes = b"", timeout: float | None = None, durability: Durability | None = None) -> Message:
        """Take the next message for good and keep `tag` with it, in one commit: a settled Message that can be read.

        Waits as Queue.get.  Raises Empty; StaleClerk and NotFound, and then the message stays in the queue.
        """
        extra = self.encode(tag)
        message = self.queue.get(timeout)
        try:
            _tagged.settle_tagged(message, self.queue.number_, extra, self.epoch, 0, durability)
        except BaseException:
            if not message.settled:
                with suppress(LeaseLost, RotaError):
                    message.release()
            raise
        return message

    def deregister(self) -> None:
        """Forget it, its tag and its message too; registering afterwards is a first time.  A second call does nothing.

        Raises StateError while a transaction that is to change it is open, StaleClerk.
        """
        if any((other := found()) is not None and other.is_open for found in self._transactions):
            raise StateError(
                f"a transaction that changes {self.name!r} is open: commit it or roll it back first",
                path=self.repository.path,
            )
        with suppress(NotFound):
            entry = (_DEREGISTER, 0, self.queue.number_, self.epoch, 0, self.encode())
            _tagged.write_registrations(self.repository._store, [entry])

    def __reduce__(self) -> tuple[Any, ...]:
        return Registration, (self.queue, self.name, self.stable, self.epoch)

    def __repr__(self) -> str:
        return f"<rota.Registration {self.name!r} at {self.queue.name!r}>"


def encoded(name: str | bytes) -> bytes:
    """The name of a registrant as the log has it.  Raises ValueError when it has not 1 to 255 bytes."""
    found = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else bytes(name)
    if not 0 < len(found) <= 255:
        raise ValueError(f"the name of a registrant has 1 to 255 bytes, not {len(found)}")
    return found


def decoded(name: bytes) -> str | bytes:
    """A name as people wrote it: text where it is text."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


def prepare(queue: Queue, name: str | bytes, stable: bool) -> tuple[Registration, bool]:
    """The registration of that name, and whether the log has it, as stable as it is wanted."""
    state = _tagged.registration_state(queue, encoded(name))
    if state is None:
        return Registration(queue, name, stable, 1), False
    return Registration(queue, name, stable or state[4], state[3]), state[4] or not stable


def register(queue: Queue, name: str | bytes, stable: bool) -> Registration:
    """Register, or find what is registered."""
    while True:
        found, is_there = prepare(queue, name, stable)
        if is_there:
            queue.repository.sync_seen()
            return found
        entry = (_REGISTER, int(found.stable), queue.number_, found.epoch, 0, found.encode())
        with suppress(StaleClerk):  # another one connected meanwhile: look again
            _tagged.write_registrations(queue.repository._store, [entry])
            return found


def renew(store: Store, wanted: Sequence[tuple[Queue, str | bytes]]) -> list[Registration]:
    """Register each, stable, with the next epoch, in one durable commit; whoever holds an older one is refused."""
    while True:
        found = [prepare(queue, name, True) for queue, name in wanted]
        renewed = [
            Registration(each.queue, each.name, True, each.epoch + 1 if is_there else each.epoch)
            for each, is_there in found
        ]
        flags = _STABLE | _RAISE
        with suppress(Conflict):  # another one was faster: take the epoch after that
            _tagged.write_registrations(
                store,
                [(_REGISTER, flags, each.queue.number_, each.epoch, 0, each.encode()) for each in renewed],
                "sync",
            )
            return renewed


def drop_volatile(store: Store, opened_lsn: int) -> None:
    """Forget the volatile registrations that the last process left; those that came since stay."""
    for number, name, _, stable, lsn in _tagged.list_registrations(store, -1):
        if not stable and lsn <= opened_lsn:
            extra = _TAG.pack(len(name), 0, 0, 0) + name
            with suppress(NotFound, Conflict):
                _tagged.write_registrations(store, [(_DEREGISTER, 0, number, 0, lsn, extra)], "none")


def listed(store: Store, queues: Mapping[int, Queue], number: int) -> Iterable[Registration]:
    """The registrations of one queue, or (-1) of all of these."""
    return _listed(queues, sorted(_tagged.list_registrations(store, number)))


def _listed(queues: Mapping[int, Queue], entries: list[tuple[int, bytes, int, bool, int]]) -> Iterator[Registration]:
    for number, name, epoch, stable, _ in entries:
        if number in queues:
            yield Registration(queues[number], decoded(name), stable, epoch)
