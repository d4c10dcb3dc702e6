"""The rows with several processes: throughput of two and two, and the round trip against a pipe."""

from __future__ import annotations

import statistics
import time

import rota
from bench.measure import BODY_BYTES, Outcome, Row, Setting, bodies_of, lapped
from bench.processes import CONTEXT, run_together

BATCH = 100


def produce(path: str, batches: int) -> float:
    """Put so many batches; the moment of the start."""
    bodies = bodies_of(BATCH)
    with rota.open(path, create=False, durability="none") as repo:
        queue = repo.queue("bench")
        begun = time.monotonic()
        for _ in range(batches):
            queue.put_many(bodies)
        return begun


def consume(path: str, total: int) -> float:
    """Take batches until all messages of the run are settled; the moment of the end."""
    with rota.open(path, create=False, durability="none") as repo:
        queue, ended = repo.queue("bench"), 0.0
        while True:
            batch = queue.get_many(BATCH, timeout=0.05)
            if not len(batch):
                if queue.stats().acks >= total:
                    return ended
                continue
            _ = batch.bodies
            batch.ack()
            ended = time.monotonic()


def both(path: str, batches: int) -> float:
    """One process that puts a batch and takes it; seconds."""
    bodies = bodies_of(BATCH)
    with rota.open(path, create=False, durability="none") as repo:
        queue = repo.queue("bench")
        begun = time.monotonic()
        for _ in range(batches):
            queue.put_many(bodies)
            batch = queue.get_many(BATCH)
            _ = batch.bodies
            batch.ack()
        return time.monotonic() - begun


def two_and_two(setting: Setting) -> Outcome:
    """Messages through, two producers and two consumers, against one process that does both."""
    batches = setting.pick(4000, 20)
    rates, alone, together = [], [], []
    with lapped(setting) as (repo, queue, reused):
        for _ in range(setting.pick(5, 1)):
            [seconds] = run_together([(both, (repo.path, batches))])
            total = queue.stats().acks + batches * BATCH
            work = [(produce, (repo.path, batches // 2))] * 2 + [(consume, (repo.path, total))] * 2
            moments = run_together(work)
            spent = max(moments[2:]) - min(moments[:2])
            alone.append(batches * BATCH / seconds)
            together.append(batches * BATCH / spent)
            rates.append(seconds / spent)
    return Outcome(
        statistics.median(rates),
        {
            "alone_per_second": statistics.median(alone),
            "together_per_second": statistics.median(together),
            "after_first_lap": reused,
        },
    )


def echo_queue(path: str, times: int) -> None:
    """The other side of the queues."""
    with rota.open(path, create=False, durability="none") as repo:
        there, back = repo.queue("there"), repo.queue("back")
        for _ in range(times):
            message = there.get()
            body = message.body
            message.ack()
            back.put(body)


def echo_pipe(pipe: object, times: int) -> None:
    """The other side of the pipe."""
    for _ in range(times):
        pipe.send_bytes(pipe.recv_bytes())  # type: ignore[attr-defined]


def queue_trips(there: rota.Queue, back: rota.Queue, times: int) -> float:
    body = b"x" * BODY_BYTES
    begun = time.perf_counter()
    for _ in range(times):
        there.put(body)
        back.get().ack()
    return (time.perf_counter() - begun) / times


def round_trip(setting: Setting) -> Outcome:
    """Put, get and ack there, put, get and ack here, against the same bytes through multiprocessing.Pipe."""
    rounds, times = setting.pick(11, 1), setting.pick(1000, 20)
    queue_seconds, pipe_seconds = [], []
    with lapped(setting) as (repo, _, reused):
        there, back = repo.queue("there"), repo.queue("back")
        ours, theirs = CONTEXT.Pipe()
        echoes = [
            CONTEXT.Process(target=echo_queue, args=(repo.path, (rounds + 1) * times)),
            CONTEXT.Process(target=echo_pipe, args=(theirs, (rounds + 1) * times)),
        ]
        for echo in echoes:
            echo.start()
        theirs.close()
        for number in range(rounds + 1):
            of_queue = queue_trips(there, back, times)
            begun = time.perf_counter()
            for _ in range(times):
                ours.send_bytes(b"x" * BODY_BYTES)
                ours.recv_bytes()
            of_pipe = (time.perf_counter() - begun) / times
            if number:
                queue_seconds.append(of_queue)
                pipe_seconds.append(of_pipe)
        for echo in echoes:
            echo.join()
    return Outcome(
        statistics.median(q / p for q, p in zip(queue_seconds, pipe_seconds, strict=True)),
        {
            "queue_us": statistics.median(queue_seconds) * 1e6,
            "pipe_us": statistics.median(pipe_seconds) * 1e6,
            "after_first_lap": reused,
        },
    )


ROWS = (
    Row(
        "two_and_two",
        "2 producers and 2 consumers, batches of 100, against one process doing both",
        1.0,
        "x",
        True,
        two_and_two,
    ),
    Row("round_trip", "round trip of two processes, against multiprocessing.Pipe", 1.0, "x", False, round_trip),
)
