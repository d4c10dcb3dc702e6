"""The rows of recoverable requests: what a transaction costs beside the operations in it."""

from __future__ import annotations

import statistics

import rota
from bench.measure import Outcome, Row, Setting, bodies_of, interleave, lapped, rest


def put_each(queue: rota.Queue, bodies: list[bytes]) -> None:
    for body in bodies:
        queue.put(body)


def get_each(queue: rota.Queue, count: int) -> None:
    for _ in range(count):
        message = queue.get()
        message.ack()


def move_each(repo: rota.Repository, source: rota.Queue, target: rota.Queue, bodies: list[bytes]) -> None:
    for body in bodies:
        with repo.transaction() as t:
            t.get(source)
            t.put(target, body)


def transaction(setting: Setting) -> Outcome:
    """One dequeue and one enqueue in a transaction, less get, ack and put alone."""
    count = setting.pick(3000, 100)
    bodies = bodies_of(count)
    with lapped(setting) as (repo, queue, reused):
        source, alone, target = repo.queue("source"), repo.queue("alone"), repo.queue("target")

        def prepare() -> None:
            for each in (queue, source, alone, target):
                rest(repo, each)
            for each in (source, alone):
                for start in range(0, count, 50):
                    each.put_many(bodies[start : start + 50])

        prepare()
        seconds = interleave(
            setting.rounds,
            {
                "put": lambda: put_each(queue, bodies),
                "get_ack": lambda: get_each(alone, count),
                "transaction": lambda: move_each(repo, source, target, bodies),
            },
            prepare,
        )
    each = {f"{name}_ns": statistics.median(values) / count * 1e9 for name, values in seconds.items()}
    more = (
        whole - put - get
        for put, get, whole in zip(seconds["put"], seconds["get_ack"], seconds["transaction"], strict=True)
    )
    return Outcome(statistics.median(more) / count * 1e6, {**each, "after_first_lap": reused})


ROWS = (Row("transaction", "a get and a put in a transaction, beyond the two alone", 1.0, "µs", False, transaction),)
