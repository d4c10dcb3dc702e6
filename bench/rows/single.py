"""The memory-speed rows: put, put_many, get_many, get and ack, each against queue.SimpleQueue in this process."""

from __future__ import annotations

import queue as standard

import rota
from bench.measure import Outcome, Row, Setting, bodies_of, compare, interleave, lapped, rest


def fill(queue: standard.SimpleQueue[bytes], bodies: list[bytes]) -> None:
    """The comparison of all puts."""
    put = queue.put
    for body in bodies:
        put(body)


def empty(queue: standard.SimpleQueue[bytes], count: int) -> None:
    """The comparison of all gets."""
    get = queue.get
    for _ in range(count):
        get()


def discard(memory: standard.SimpleQueue[bytes], repo: rota.Repository, queue: rota.Queue) -> None:
    """What a round put is taken out again, uncounted."""
    empty(memory, memory.qsize())
    rest(repo, queue)


def put_each(queue: rota.Queue, bodies: list[bytes]) -> None:
    put = queue.put
    for body in bodies:
        put(body)


def put_batches(queue: rota.Queue, batches: list[list[bytes]]) -> None:
    for batch in batches:
        queue.put_many(batch)


def get_batches(queue: rota.Queue, count: int, size: int) -> None:
    for _ in range(count):
        batch = queue.get_many(size)
        _ = batch.bodies
        batch.ack()


def get_each(queue: rota.Queue, count: int) -> None:
    get = queue.get
    for _ in range(count):
        get().ack()


def sizes(setting: Setting) -> tuple[int, int]:
    """Return messages a round and messages a batch: a round is over before its time slice is."""
    return setting.pick(5000, 200), setting.pick(1000, 50)


def put(setting: Setting) -> Outcome:
    """Put singly, against SimpleQueue.put."""
    count, _ = sizes(setting)
    bodies = bodies_of(count)
    with lapped(setting) as (repo, queue, reused):
        memory: standard.SimpleQueue[bytes] = standard.SimpleQueue()
        seconds = interleave(
            setting.rounds,
            {"simple_queue": lambda: fill(memory, bodies), "put": lambda: put_each(queue, bodies)},
            lambda: discard(memory, repo, queue),
        )
    return compare(seconds, "simple_queue", "put", count, reused)


def put_many(setting: Setting) -> Outcome:
    """Put in batches, per message, against SimpleQueue.put."""
    count, size = sizes(setting)
    bodies = bodies_of(count)
    batches = [bodies[i : i + size] for i in range(0, count, size)]
    with lapped(setting) as (repo, queue, reused):
        memory: standard.SimpleQueue[bytes] = standard.SimpleQueue()
        seconds = interleave(
            setting.rounds,
            {"simple_queue": lambda: fill(memory, bodies), "put_many": lambda: put_batches(queue, batches)},
            lambda: discard(memory, repo, queue),
        )
    return compare(seconds, "simple_queue", "put_many", count, reused)


def get_many(setting: Setting) -> Outcome:
    """Get in batches, look at the bodies, ack; per message, against SimpleQueue.get."""
    count, size = sizes(setting)
    bodies = bodies_of(count)
    batches = [bodies[i : i + size] for i in range(0, count, size)]
    with lapped(setting) as (repo, queue, reused):
        memory: standard.SimpleQueue[bytes] = standard.SimpleQueue()

        def prepare() -> None:
            rest(repo, queue)
            fill(memory, bodies)
            put_batches(queue, batches)

        prepare()
        seconds = interleave(
            setting.rounds,
            {"simple_queue": lambda: empty(memory, count), "get_many": lambda: get_batches(queue, len(batches), size)},
            prepare,
        )
    return compare(seconds, "simple_queue", "get_many", count, reused)


def get_ack(setting: Setting) -> Outcome:
    """Get and ack one at a time, against SimpleQueue.get."""
    count, size = sizes(setting)
    bodies = bodies_of(count)
    batches = [bodies[i : i + size] for i in range(0, count, size)]
    with lapped(setting) as (repo, queue, reused):
        memory: standard.SimpleQueue[bytes] = standard.SimpleQueue()

        def prepare() -> None:
            rest(repo, queue)
            fill(memory, bodies)
            put_batches(queue, batches)

        prepare()
        seconds = interleave(
            setting.rounds,
            {"simple_queue": lambda: empty(memory, count), "get_ack": lambda: get_each(queue, count)},
            prepare,
        )
    return compare(seconds, "simple_queue", "get_ack", count, reused)


ROWS = (
    Row("put", "put, against SimpleQueue.put", 0.45, "x", True, put),
    Row("put_many", "put_many(1000) per message, against SimpleQueue.put", 1.5, "x", True, put_many),
    Row("get_many", "get_many(1000), bodies, ack, per message, against SimpleQueue.get", 0.75, "x", True, get_many),
    Row("get_ack", "get and ack one at a time, against SimpleQueue.get", 0.12, "x", True, get_ack),
)
