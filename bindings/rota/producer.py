"""Producers: puts return at once, and a writer of their own brings the messages to the log in batches.

    put() --------------------------> cache ----> writer ----> log
      \\-> lane -> process() threads -/

What holds:

1. A producer has one writer and `workers` threads, made with it; nothing that arrives makes more.
2. What is accepted is counted once, until it is in the log, failed or dropped, and the count is bounded.
3. What cannot be written now (Full, DiskFull, QueueStopped) is tried again until close() runs out of time; any other
   error ends the batch: its receipts tell, and the log of the library.
4. close(), the end of the interpreter and the close of the repository write what is there; a fork writes it before.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack

from rota._core.cache import Cache, deadline_from
from rota._staging import SLICE_S, Stages
from rota.errors import ClosedError, DiskFull, Full, QueueStopped
from rota.sizes import parse_size
from rota.statistics import ProducerStatistics

if TYPE_CHECKING:
    from rota._core.lot import CachedReceipt, Lot
    from rota._core.put import Receipt
    from rota._core.queue import Queue
    from rota.repository import Durability, Repository

__all__ = ["Overflow", "Producer", "ProducerOptions"]

Overflow: TypeAlias = Literal["block", "reject", "drop-oldest", "drop-newest", "spill"]

_log = logging.getLogger("rota")
_OVERFLOWS = ("block", "reject", "drop-oldest", "drop-newest", "spill")
_PAUSE_S = 1.0  # at most, between attempts on a full disk
_FORK_S = 5.0  # how long a fork waits for what is in memory; it stays with the parent, so nothing is lost after that
_live: weakref.WeakSet[Producer] = weakref.WeakSet()


class ProducerOptions(TypedDict, total=False):
    """What repo.producer() takes: counts of messages, sizes in bytes, durations in seconds."""

    cache_size: int
    cache_bytes: int | str
    batch_size: int
    flush_interval: float
    flush_bytes: int | str
    overflow: Overflow
    timeout: float | None
    process: Callable[[bytes], Any] | None
    workers: int
    order: Literal["key", "none"]
    durability: Durability | None
    close_timeout: float


class Producer(Cache):
    """Puts into one queue through a bounded memory; from `repo.producer(queue)`; a context manager.

    `queue` is where the messages go.
    """

    def __init__(
        self,
        queue: Queue,
        *,
        cache_size: int = 10_000,
        cache_bytes: int | str = "64 MiB",
        batch_size: int = 512,
        flush_interval: float = 0.005,
        flush_bytes: int | str = 65536,
        overflow: Overflow = "block",
        timeout: float | None = None,
        process: Callable[[bytes], Any] | None = None,
        workers: int = 4,
        order: Literal["key", "none"] = "key",
        durability: Durability | None = None,
        close_timeout: float = 10.0,
    ) -> None:
        if cache_size < 1 or batch_size < 1 or workers < 1:
            raise ValueError("cache_size, batch_size and workers are at least 1")
        if not 0 <= flush_interval <= 3600:
            raise ValueError(f"flush_interval is 0 to 3600 seconds, not {flush_interval!r}")
        if overflow not in _OVERFLOWS:
            raise ValueError(f"overflow is one of {', '.join(_OVERFLOWS)}, not {overflow!r}")
        if overflow == "spill" and process is None:
            raise ValueError("overflow='spill' keeps messages unprocessed: it needs process=")
        if order not in ("key", "none"):
            raise ValueError(f"order is 'key' or 'none', not {order!r}")
        deadline_from(timeout), deadline_from(close_timeout)
        super().__init__(
            queue,
            cache_size,
            parse_size(cache_bytes),
            batch_size,
            parse_size(flush_bytes),
            flush_interval,
            overflow,
            timeout,
        )
        self.queue = queue
        self._durability = durability
        self._close_timeout = close_timeout
        self._stop = threading.Event()  # the time of close() is over
        self._ended = False
        self._ending = threading.Lock()
        self._stages = None if process is None else Stages(self, process, workers, order, overflow == "spill")
        self.staged = process is not None
        self._writer = threading.Thread(target=self._write, name=f"rota producer of {queue.name}", daemon=True)
        self._writer.start()
        _live.add(self)

    put = Cache.put

    def _write(self) -> None:
        """Be the writer."""
        while (lot := self.next_lot()) is not None:
            try:
                receipt = self._commit(lot)
            except BaseException as error:
                _log.error("%s: a batch for %r was not written: %s", self.queue.repository.path, self.queue.name, error)
                self.lot_failed(lot, error.with_traceback(None))
            else:
                self.lot_written(lot, *receipt)

    def _commit(self, lot: Lot) -> tuple[int, int]:
        """Commit a lot, however long it takes to find room, and return its first id and its place in the log."""
        messages = lot.messages
        pause = 0.01
        while messages:
            last = self._stop.is_set()
            try:
                receipt = self._append(messages, lot.is_rich, 0.0 if last else SLICE_S)
                return receipt.id, receipt.lsn
            except (Full, DiskFull, QueueStopped):
                if last:
                    raise
            self._stop.wait(pause)
            pause = min(pause * 2, _PAUSE_S)
        return 0, 0

    def _append(self, messages: list[Any], is_rich: bool, timeout: float) -> Receipt:
        if not is_rich:
            return self.queue.put_many(messages, timeout=timeout, durability=self._durability)
        with self.queue.repository.transaction(durability=self._durability, timeout=timeout) as transaction:
            for body, key, headers, priority, delay, ttl in messages:
                transaction.put(self.queue, body, key, headers, priority, delay, ttl)
        assert transaction.receipt is not None
        return transaction.receipt

    def _stage(self, receipt: CachedReceipt, entry: tuple[Any, ...], size: int) -> None:
        assert self._stages is not None
        self._stages.add(receipt, entry, size)

    def _unstage(self) -> bool:
        return self._stages is not None and self._stages.drop_oldest()

    def _spill(self, entry: tuple[Any, ...]) -> Receipt:
        assert self._stages is not None and self._stages.spilled is not None
        body, key, headers, priority, delay, ttl = entry
        return self._stages.spilled.put(body, key, headers, priority, delay, ttl, durability=self._durability)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until what was put before is in the log, or failed: True; False when `timeout` seconds passed first."""
        deadline = deadline_from(timeout)
        if self._stages is not None and not self._stages.wait_processed(timeout):
            return False
        return self.wait_settled(deadline)

    def close(self, timeout: float | None = None) -> int:
        """Refuse puts, write what is there, end the threads, and return how many messages could not be written.

        `timeout` in seconds (None: `close_timeout` of the producer) bounds it, but for a call of the system that hangs;
        receipts of what was not written then tell ClosedError, or what stood in the way.  A second call returns 0.
        """
        seconds = self._close_timeout if timeout is None else timeout
        deadline = deadline_from(seconds)
        with self._ending:
            if self._ended:
                return 0
            before = self.counts()["failed"]
            self.stop_taking()
            over = ClosedError("the producer was closed before this was written", path=self.queue.repository.path)
            if self._stages is not None:
                self._stages.end(deadline, over)
            self.finish()
            self._writer.join(max(0.0, deadline - deadline_from(0)))
            if self._writer.is_alive():
                self._stop.set()
                self._writer.join(SLICE_S * 20)
            if not self._writer.is_alive():
                self.fail_rest(over)
            self._ended = True
        _live.discard(self)
        lost = self.counts()["failed"] - before
        if lost:
            _log.error("%s: %d messages for %r were not written", self.queue.repository.path, lost, self.queue.name)
        return lost

    @property
    def closed(self) -> bool:
        """Whether close() was called and is over."""
        return self._ended

    def stats(self) -> ProducerStatistics:
        """Figures of what was put through this producer, by this process."""
        return ProducerStatistics(**self.counts())

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a producer belongs to its process: make one there by repo.producer()")

    def __repr__(self) -> str:
        figures = self.counts()
        state = "closed" if self._ended else f"{figures['cached']} cached"
        return f"<rota.Producer of {self.queue.name!r}, {state}, {figures['written']} written>"

    def _is_own(self, thread: threading.Thread) -> bool:
        return thread is self._writer or (self._stages is not None and thread in self._stages.threads)


def producer(self: Repository, queue: Queue | str, **options: Unpack[ProducerOptions]) -> Producer:
    """Make a producer for a queue (or a name, made when there is none): its put() returns at once.

    Messages go through a memory of at most `cache_size` messages and `cache_bytes` bytes to the log in batches, which
    leave with `batch_size` messages, `flush_bytes` bytes, or `flush_interval` seconds after the one before, whichever
    is first: under light load at once, under heavy load in large ones.  `overflow` says what a put does when the
    memory is full: "block" (at most `timeout` seconds, then Full), "reject" (Full), "drop-oldest", "drop-newest" (the
    receipt tells), "spill" (with `process`: into the queue "<name>.spill", from where it is processed later).

    `process(body)` returns the body to put, or None for no message; `workers` threads run it, in the order of puts for
    each key (`order` "key"), or as it comes ("none").  What it raises reaches the receipt, and the message the error
    queue of the queue, with the header "error".  `durability` is that of the commits; `close_timeout` in seconds how
    long close() takes at most.

    Raises ValueError for an impossible option; ClosedError, ReadOnlyError.
    """
    return Producer(self.queue(queue) if isinstance(queue, str) else queue, **options)


def close_all_of(repository: Repository) -> None:
    """Close the producers of a repository that is about to be closed."""
    for each in list(_live):
        if each.queue.repository is repository:
            each.close()


def _before_fork() -> None:
    """What was put before a fork is in the log after it."""
    for producer in list(_live):
        if not producer._is_own(threading.current_thread()):
            producer.flush(_FORK_S)


def _after_fork() -> None:
    _live.clear()  # they are the parent's


def _at_exit() -> None:
    for producer in list(_live):
        producer.close()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
atexit.register(_at_exit)
