"""The threads of a producer that run a process callable, and the lanes before them.

What holds:

1. There is a lane for each thread when the order of a key is kept, else one for all; threads are made once.
2. A message has a ticket from its put until it was processed; tickets are in the order of puts, so the oldest that is
   open is the first.
3. What process() raises ends that message and no other: its receipt tells, and the error queue gets what was put.
4. What was spilled stays in its queue until the commit that brings the processed message to the other.
"""

from __future__ import annotations

import itertools
import logging
import queue as _queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rota._core.cache import deadline_from
from rota.errors import ClosedError

if TYPE_CHECKING:
    from rota._core.lot import CachedReceipt
    from rota._core.queue import Queue
    from rota.producer import Producer

_log = logging.getLogger("rota")
_ERROR_S = 1.0  # how long a put into the error queue waits for room
SLICE_S = 0.1  # of a wait: how late a close() is noticed


class Stages:
    """The threads that run a process callable, and the lanes before them: one for each, or one for all.

    A message has a ticket until it was processed; tickets are in the order of puts, so the oldest is the first.
    """

    def __init__(self, producer: Producer, process: Callable[[bytes], Any], workers: int, order: str, spill: bool):
        self._producer = producer
        self._process = process
        self._tickets = itertools.count()
        self._open: dict[int, None] = {}
        self._condition = threading.Condition()
        self._ended = False
        self._over: BaseException | None = None
        repository, target = producer.queue.repository, producer.queue
        name = repository.queue_stats(target).error_queue
        self._errors = None if name is None else repository.queue(name)
        self.spilled = repository.queue(f"{target.name}.spill", max_attempts=None) if spill else None
        self._lanes: list[_queue.SimpleQueue[Any]] = [
            _queue.SimpleQueue() for _ in range(workers if order == "key" else 1)
        ]
        self.threads = [
            threading.Thread(target=self._work, args=(self._lanes[number % len(self._lanes)],), daemon=True)
            for number in range(workers)
        ]
        if self.spilled is not None:
            self.threads.append(threading.Thread(target=self._take_spilled, args=(self.spilled,), daemon=True))
        for number, thread in enumerate(self.threads):
            thread.name = f"rota process {number} of {target.name}"
            thread.start()

    def add(self, receipt: CachedReceipt, entry: tuple[Any, ...], size: int) -> None:
        """Give a message to the thread of its key."""
        with self._condition:
            if self._ended:
                self._producer.process_failed(receipt, size, self._closed())
                return
            ticket = next(self._tickets)
            self._open[ticket] = None
            key = entry[1]
            number = ticket if key is None else hash(key.encode() if isinstance(key, str) else key)
            self._lanes[number % len(self._lanes)].put((ticket, receipt, entry, size))

    def _closed(self) -> ClosedError:
        return ClosedError(
            "the producer was closed before this was processed", path=self._producer.queue.repository.path
        )

    def _done(self, ticket: int) -> None:
        with self._condition:
            del self._open[ticket]
            self._condition.notify_all()

    def _work(self, lane: _queue.SimpleQueue[Any]) -> None:
        while (item := lane.get()) is not None:
            ticket, receipt, entry, size = item
            try:
                self._run(receipt, entry, size)
            finally:
                self._done(ticket)

    def _run(self, receipt: CachedReceipt, entry: tuple[Any, ...], size: int) -> None:
        """Process one message; its receipt tells what went wrong, and the error queue gets what was put."""
        if self._over is not None:
            self._producer.process_failed(receipt, size, self._over)
            return
        try:
            body = _body(self._process(entry[0]))
            made = None if body is None else (body, *entry[1:])
            if self._over is not None:
                raise self._over
            self._producer.process_done(receipt, made, size, size + len(body or b"") - len(entry[0]))
        except BaseException as error:
            _log.error("process for %r raised %r", self._producer.queue.name, error, exc_info=True)
            self._to_error_queue(entry, error)
            self._producer.process_failed(receipt, size, error.with_traceback(None))

    def _to_error_queue(self, entry: tuple[Any, ...], error: BaseException) -> None:
        if self._errors is None or error is self._over:
            return
        headers = {**(entry[2] or {}), "error": f"{type(error).__name__}: {error}"[:1000]}
        try:
            self._errors.put(entry[0], entry[1], headers, timeout=_ERROR_S)
        except Exception as refusal:
            _log.error("a message that could not be processed did not go to %r: %s", self._errors.name, refusal)

    def _take_spilled(self, spilled: Queue) -> None:
        """Bring what was spilled, here or by a process that died, through process() to its queue."""
        target = self._producer.queue
        while not self._ended:
            batch = spilled.get_many(1, timeout=SLICE_S)
            for message in batch:
                key, headers, priority = message.key, message.headers, message.priority
                try:
                    body = _body(self._process(message.body))
                except BaseException as error:
                    _log.error("process for %r raised %r", target.name, error, exc_info=True)
                    self._to_error_queue((message.body, key, headers), error)
                    message.ack()
                    continue
                with target.repository.transaction() as transaction:
                    transaction.ack(message)
                    if body is not None:
                        transaction.put(target, body, key, headers, priority)

    def drop_oldest(self) -> bool:
        """Drop a message that no thread has taken, the oldest of the first lane that has one."""
        for lane in self._lanes:
            try:
                ticket, receipt, _, size = lane.get_nowait()
            except _queue.Empty:
                continue
            self._producer.drop_staged(receipt, size)
            self._done(ticket)
            return True
        return False

    def wait_processed(self, timeout: float | None) -> bool:
        """Wait until nothing is left of what was put before."""
        with self._condition:
            last = next(reversed(self._open), -1)
            return self._condition.wait_for(lambda: next(iter(self._open), last + 1) > last, timeout)

    def end(self, deadline: float, over: BaseException) -> None:
        """Take no more, process what is there until the deadline, then fail the rest; a call that hangs is left."""
        with self._condition:
            self._ended = True
            for number in range(len(self.threads)):
                self._lanes[number % len(self._lanes)].put(None)
        for thread in self.threads:
            thread.join(max(0.0, deadline - deadline_from(0)))
        if any(thread.is_alive() for thread in self.threads):
            self._over = over
            for thread in self.threads:
                thread.join(SLICE_S)


def _body(made: Any) -> bytes | None:
    return made if made is None or type(made) is bytes else bytes(memoryview(made))
