"""Repositories: a directory with one log and the queues in it."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from rota import limiter as _limiter
from rota import producer as _producer
from rota import registration as _registration
from rota import saga as _saga
from rota._core import directory as _directory
from rota._core import queue as _queue
from rota._core import transaction as _transaction
from rota._core.store import Store
from rota._options import DEFAULTS, ChangeableOptions, QueueOptions, check_options
from rota.errors import Corrupt, InUse, NotFound, OptionMismatch
from rota.registration import Registration
from rota.sizes import block_size, parse_size, segment_size_for
from rota.statistics import QueueStatistics, Recovery, RepositoryStatistics

if TYPE_CHECKING:
    from rota.clerk import Clerk
    from rota.server import Backoff, Handler, Server

__all__ = ["ChangeableOptions", "Durability", "QueueOptions", "Repository", "open"]

Durability: TypeAlias = Literal["sync", "interval", "none"]


_log = logging.getLogger("rota")
_NO_QUEUE = 0xFFFF
_CAPACITY = 4 << 30


def open(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    capacity: int | str | None = None,
    durability: Durability = "sync",
    sync_interval: float = 0.05,
    sync_bytes: int | str = "8 MiB",
    sync_count: int = 100_000,
    compression: Literal["lz4"] | None = None,
    insist: bool = False,
) -> Repository:
    """Open the repository in a directory, making it when there is none and `create` is true.

    `capacity` bounds the log (at least 768 KiB): None means 4 GiB for a new repository and leaves an existing one as it
    is; a larger one lets it grow.  `durability` is the default
    level of every call: "sync" returns when the commit survives power loss, "interval" when it is visible and a sync
    follows within `sync_interval` seconds, `sync_bytes` or `sync_count` commits, "none" when it is visible.
    `read_only` refuses every change through this handle (the files must still be writable, since an open may recover).
    `compression` "lz4" packs put_many() by default.  `insist` accepts a file system that rota does not trust.

    Raises the OpenError family (NotARepository, VersionMismatch, ForeignFiles, FileSystemRefused, InUse), LogFailed,
    Corrupt, DiskFull, LockHeld.
    """
    return Repository(
        os.fspath(path),
        create=create,
        read_only=read_only,
        capacity=None if capacity is None else parse_size(capacity),
        durability=durability,
        sync_interval=sync_interval,
        sync_bytes=parse_size(sync_bytes),
        sync_count=sync_count,
        compression=compression,
        insist=insist,
    )


class Repository:
    """An open repository; from `rota.open()`.  A context manager; pickles as its path and reopens where unpickled."""

    def __init__(self, path: str, **options: Any) -> None:
        if options["durability"] not in ("sync", "interval", "none"):
            raise ValueError(f"durability is 'sync', 'interval' or 'none', not {options['durability']!r}")
        if options["compression"] not in (None, "lz4"):
            raise ValueError(f"compression is 'lz4' or None, not {options['compression']!r}")
        if not 0.001 <= options["sync_interval"] <= 3600:
            raise ValueError(f"sync_interval is 0.001 to 3600 seconds, not {options['sync_interval']!r}")
        self.path = os.path.abspath(path)
        self._options = options
        wanted = _CAPACITY if options["capacity"] is None else options["capacity"]
        segment_size = segment_size_for(wanted)
        native = dict(options, segment_size=segment_size, sync_unit=block_size(self.path))
        native["new_capacity"] = wanted // segment_size * segment_size
        native["capacity"] = 0 if options["capacity"] is None else native["new_capacity"]
        self._store = Store(self.path, native)
        self.recovery = Recovery(**self._store.recovery())
        if self.recovery.performed and not self.recovery.clean and self.recovery.torn_bytes:
            _log.info("%s: %d bytes behind the end of the log were cut", self.path, self.recovery.torn_bytes)
        if self.recovery.performed and not options["read_only"]:
            self._drop_volatile()
            _registration.drop_volatile(self._store, self.recovery.cut_lsn)

    def _drop_volatile(self) -> None:
        """What a volatile queue held does not survive the last process."""
        for name in self.queues():
            queue = _directory.queue_named(self._store, self, name)
            if queue is None or not queue.figures()["volatile"]:
                continue
            after = 0
            while ids := queue.ids(after, 1000):
                queue.drop(ids)
                after = ids[-1]

    def queue(self, name: str, **options: Unpack[QueueOptions]) -> _queue.Queue:
        """The queue of that name, made when there is none.

        Options left out take the stored values, and for a new queue the defaults: no bound, 5 attempts, an error queue
        "<name>.errors", 30 seconds, "skip".  A different one raises OptionMismatch; `configure()` changes some.
        `max_messages` is how many are held before a put waits, `lease` seconds for which a message belongs to who took
        it; without `max_attempts` (None) there is no error queue.  For `dedup_window` seconds, and of the last
        `dedup_count` puts, the `dedup` keys are remembered; without both puts with one are refused.

        `indexes` names headers, at most 14, and "key": what find() and get(where=) look up there costs the same
        however much waits.  `order` is "skip" (by priority and arrival, passing over what others hold), "strict" (one
        message in flight), "group" (of each key one message in flight, in order of arrival; without a key free) or
        "highest": by the number in the header `by`, the highest first, where a message gains `age_rate` for each
        second that it waits; so with a rate above 0 none waits for ever.  Those two take priority 0 only.

        Raises OptionMismatch; TypeError for an unknown option, ValueError for an impossible one; Full when there are
        too many queues; ClosedError, ReadOnlyError.
        """
        unknown = set(options) - set(DEFAULTS)
        if unknown:
            raise TypeError(f"unknown options of a queue: {', '.join(sorted(unknown))}")
        while True:
            found = _directory.queue_named(self._store, self, name)
            if found is not None:
                self._compare(found, options)
                return found
            self._create(name, {**DEFAULTS, **options})

    def _create(self, name: str, options: dict[str, Any]) -> None:
        """Make a queue, and its error queue; another process may be faster."""
        check_options(name, options)
        entries = []
        number = _directory.free_number(self._store)
        errors_number = _NO_QUEUE
        if options["max_attempts"] is not None:
            errors_name = options["error_queue"] or f"{name}.errors"
            if len(errors_name.encode("utf-8", "surrogateescape")) > 255:
                raise ValueError("the name leaves no room for '.errors' behind it: name the error queue")
            target = _directory.queue_named(self._store, self, errors_name)
            if target is not None:
                errors_number = target.number_
            else:
                errors_number = _directory.free_number(self._store, (number,))
                chosen = {**DEFAULTS, "max_attempts": None, "error_queue_number": _NO_QUEUE, "is_error_queue": True}
                chosen["indexes"] = options["indexes"]
                entries.append((errors_number, errors_name, chosen))
        entries.append((number, name, {**options, "error_queue_number": errors_number, "is_error_queue": False}))
        _directory.write_queue(self._store, 0, entries)

    def _compare(self, queue: _queue.Queue, options: Mapping[str, Any]) -> None:
        stored = queue.figures()
        stored["error_queue"] = self._error_name(stored)
        for option, value in options.items():
            if stored[option] != (tuple(value) if option == "indexes" else value):
                raise OptionMismatch(
                    f"the queue {queue.name!r} has {option}={stored[option]!r}, not {value!r}: use configure()",
                    path=self.path,
                )

    def configure(self, queue: _queue.Queue, **options: Unpack[ChangeableOptions]) -> None:
        """Change options of a queue (max_messages, max_attempts, lease in seconds, order) for all its users at once.

        The order changes to or from "group" only while the queue is empty, and never to or from "highest".  Raises
        InUse, ValueError for an option that is fixed, NotFound when the queue was destroyed.
        """
        fixed = set(options) - {"max_messages", "max_attempts", "lease", "order"}
        if fixed:
            raise ValueError(f"these options cannot change: {', '.join(sorted(fixed))}")
        stored = queue.figures()
        entry = {**stored, **options}
        if (entry["order"] == "highest") != (stored["order"] == "highest"):
            raise ValueError("the order 'highest' is chosen when the queue is made")
        check_options(queue.name, {**entry, "error_queue": None})
        _directory.write_queue(self._store, 1, [(queue.number_, queue.name, entry)])

    def _error_name(self, figures: dict[str, Any]) -> str | None:
        if figures["error_queue_number"] == _NO_QUEUE:
            return None
        found = _directory.queue_numbered(self._store, self, figures["error_queue_number"])
        return found.name if found is not None else None

    def queues(self) -> list[str]:
        """Names of all queues, error queues included, in the order in which their numbers were given out."""
        return _directory.queue_names(self._store)

    def destroy(self, name: str, force: bool = False) -> None:
        """Remove a queue; `force` kills the messages in it first, also those that somebody holds.

        Raises NotFound; InUse while it holds messages, unless forced, or is the error queue of another.
        """
        queue = _directory.queue_named(self._store, self, name)
        if queue is None:
            raise NotFound(f"there is no queue {name!r}", path=self.path)
        for other in self.queues():
            candidate = _directory.queue_named(self._store, self, other)
            if candidate is not None and candidate.figures()["error_queue_number"] == queue.number_:
                raise InUse(f"the queue {name!r} takes the errors of {other!r}", path=self.path)
        if force:
            for identities in iter(lambda: queue.ids(0, 1000), []):
                for identity in identities:
                    with contextlib.suppress(NotFound):
                        queue.kill(identity)
        if len(queue):
            raise InUse(f"the queue {name!r} holds {len(queue)} messages: purge it or use force=True", path=self.path)
        _directory.destroy_queue(self._store, queue)

    def home_of(self, queue: _queue.Queue, identity: int) -> _queue.Queue:
        """The queue where a message of an error queue came from: the one that names it as its error queue.

        Raises NotFound when there is none.
        """
        for name in self.queues():
            candidate = _directory.queue_named(self._store, self, name)
            if candidate is not None and candidate.figures()["error_queue_number"] == queue.number_:
                return candidate
        raise NotFound(f"no queue has {queue.name!r} as its error queue: name the target", path=self.path)

    def register(self, queue: _queue.Queue, name: str | bytes, stable: bool = True) -> Registration:
        """Register at a queue; again is the recovery call and resets nothing.

        Raises ValueError when the name has not 1 to 255 bytes.
        """
        return _registration.register(queue, name, stable)

    def prepare(
        self, target: _queue.Queue | Registration, name: str | bytes | None, stable: bool = True
    ) -> Registration:
        """What a transaction is to register: for the package itself."""
        if isinstance(target, Registration):
            return _registration.prepare(target.queue, target.name, target.stable)[0]
        if name is None:
            raise TypeError("a registrant of a queue has a name")
        return _registration.prepare(target, name, stable)[0]

    def registrations(self, queue: _queue.Queue | str | None = None) -> list[Registration]:
        """All registrations, or those at one queue, by queue and name.  None of them is ever forgotten by itself.

        Raises NotFound when there is no such queue.
        """
        number = -1
        if queue is not None:
            name = queue if isinstance(queue, str) else queue.name
            found = _directory.queue_named(self._store, self, name)
            if found is None:
                raise NotFound(f"there is no queue {name!r}", path=self.path)
            number = found.number_
            return list(_registration.listed(self._store, {number: found}, number))
        named = (_directory.queue_named(self._store, self, name) for name in self.queues())
        return list(_registration.listed(self._store, {each.number_: each for each in named if each}, number))

    def _renew(self, registrations: Sequence[tuple[_queue.Queue, str | bytes]]) -> list[Registration]:
        """Register each of (queue, name), stable, and raise its epoch, all in one durable commit.

        What is tagged through older handles raises StaleClerk from then on.
        """
        return _registration.renew(self._store, registrations)

    def sync_seen(self) -> None:
        """At level "sync" wait until what is visible is durable: for the package itself."""
        if self._options["durability"] == "sync":
            self._store.sync()

    def transaction(
        self, token: int | None = None, durability: Durability | None = None, timeout: float | None = None
    ) -> _transaction.Transaction:
        """Operations of any queues that are committed together: `with repo.transaction() as t: ...`.

        `token` is the fencing token under which it acts; `durability` the level of its commit (None: the
        repository's); `timeout` how many seconds the commit may wait for room (None: for ever).  Raises ClosedError,
        ReadOnlyError.
        """
        return _transaction.Transaction(self._store, self, token, durability, timeout)

    def clerk(self, client: str | bytes, requests: str, replies: str | None = None, window: int = 1) -> Clerk:
        """A Clerk, the client's side of requests: sends to the queue `requests`, receives from `replies`.

        `client` is its id, 1 to 255 bytes, one for each clerk.  `replies` (None: "<client>.replies") may be shared by
        several; `window`, 1 to 64, is how many requests may be outstanding.  Raises ValueError.
        """
        from rota.clerk import Clerk

        return Clerk(self, client, requests, replies, window)

    def server(
        self,
        queue: str | _queue.Queue | None = None,
        handler: Handler | None = None,
        *,
        threads: int = 1,
        processes: int = 0,
        backoff: Backoff | None = None,
        keep: float = 3600.0,
        grace: float = 30.0,
        durability: Durability | None = None,
    ) -> Server:
        """A Server: `handler(message)` returns the body of the reply; other queues get theirs by `server.handle()`.

        The request is settled, what `handler(message, transaction)` put is added, and the reply, when one is waited
        for, is put in one commit.  `threads` serve each queue; with `processes` above 0 each of so many has those
        threads, and is replaced when it dies.  `backoff` says how long a request waits whose handler raised.
        A handler keeps the lease of its request for `keep` seconds; who stops waits `grace` seconds for it.  Raises
        ValueError.
        """
        from rota.server import Server

        options: Any = {"keep": keep, "grace": grace, "durability": durability}
        server = Server(self, threads=threads, processes=processes, backoff=backoff, **options)
        if (queue is None) != (handler is None):
            raise TypeError("a server is given a queue and its handler, or neither and handlers by handle()")
        if queue is not None and handler is not None:
            server.handle(queue)(handler)
        return server

    producer = _producer.producer
    saga, sagas = _saga.saga, _saga.sagas
    limiter = _limiter.limiter

    def sync(self) -> None:
        """Return when everything that is visible now is durable.  Raises OutcomeUnknown, LogFailed."""
        self._store.sync()

    def queue_stats(self, queue: _queue.Queue) -> QueueStatistics:
        """Figures of one queue.  Raises NotFound when it was destroyed."""
        figures = queue.figures()
        oldest = None
        for identity in queue.ids(0, 1):
            try:
                oldest = queue.read(identity).enqueued_at
            except (NotFound, Corrupt):
                break  # settled meanwhile, or it cannot be read
        kept = {field: figures[field] for field in QueueStatistics.__slots__ if field in figures}
        return QueueStatistics(**kept, oldest_at=oldest, error_queue=self._error_name(figures))

    def stats(self) -> RepositoryStatistics:
        """Figures of the repository and of its queues; each is right for itself, and all are not of one moment."""
        queues = []
        for name in self.queues():
            queue = _directory.queue_named(self._store, self, name)
            if queue is not None:
                queues.append(self.queue_stats(queue))
        return RepositoryStatistics(**self._store.statistics(), queues=tuple(queues))

    @property
    def closed(self) -> bool:
        """Whether this handle was closed; others of the same repository may be open."""
        return self._store.closed

    def close(self) -> None:
        """Detach, giving back what this handle holds; the last one out leaves a checkpoint.

        Closes producers.  A second call does nothing.  Raises what the last sync raised: OutcomeUnknown, LogFailed.
        """
        _producer.close_all_of(self)
        self._store.close()

    def __enter__(self) -> Repository:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self.queues())

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, self._options)

    def __del__(self) -> None:
        store = getattr(self, "_store", None)
        if store is not None and not store.closed and not store.forked:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=1)
            store.close()

    def __repr__(self) -> str:
        state = "closed" if self._store.closed else self._options["durability"]
        return f"<rota.Repository {self.path!r} {state}>"


def _reopen(path: str, options: dict[str, Any]) -> Repository:
    return Repository(path, **{**options, "create": False})
