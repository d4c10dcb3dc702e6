"""The saga of the tests: an order that is reserved, paid and shipped, each noted in a ledger in the step's commit."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import rota

PATIENCE_S = 20.0
SMALL: dict[str, Any] = {"capacity": "4 MiB", "durability": "none"}
AT_ONCE = rota.Backoff(first=0.0, most=0.0)
STEPS = ("reserve", "pay", "ship")

hold = threading.Event()  # steps named in `held` wait for it
reached = threading.Event()
held: set[str] = set()
fails: dict[str, BaseException] = {}  # what a step raises, by name
dies: set[str] = set()  # steps whose process dies before it commits
seen: list[str] = []

plan = rota.SagaPlan("order", max_attempts=3)


def reset() -> None:
    """Forget what an earlier test asked for."""
    for event in (hold, reached):
        event.clear()
    for asked in (held, dies, fails, seen):
        asked.clear()


def work(step: rota.SagaStep, what: str) -> bytes:
    """Note it in the ledger, then do what the test asked for."""
    seen.append(what)
    step.transaction.put(step.repository.queue("ledger"), what.encode(), key=step.id)
    if what in held:
        reached.set()
        assert hold.wait(PATIENCE_S)
    if what in dies:
        os.kill(os.getpid(), signal.SIGKILL)
    if what in fails:
        raise fails[what]
    return step.body + b" " + what.encode()


def unreserve(step: rota.SagaStep) -> None:
    work(step, "unreserve")


def unpay(step: rota.SagaStep) -> None:
    assert step.body == b"money back"
    work(step, "unpay")


def unship(step: rota.SagaStep) -> None:
    raise AssertionError("the last step is never undone")


@plan.step("reserve", undo=unreserve)
def reserve(step: rota.SagaStep) -> bytes:
    step.lock("lamps")
    return work(step, "reserve")


@plan.step("pay", undo=unpay)
def pay(step: rota.SagaStep) -> bytes:
    step.undo_with(b"money back")
    return work(step, "pay")


@plan.step("ship", undo=unship)
def ship(step: rota.SagaStep) -> bytes:
    step.lock("lamps", 0.0)
    return work(step, "ship")


def ledger(repo: rota.Repository) -> list[str]:
    """What was done, in the order of the commits."""
    return [message.body.decode() for message in repo.queue("ledger").browse()]


def ask(repo: rota.Repository, body: bytes = b"a lamp") -> rota.Clerk:
    """A clerk that asked for an order; its saga is `identity(clerk)`."""
    clerk = repo.clerk("teller-7", requests="order")
    clerk.connect()
    clerk.send(body)
    return clerk


def identity(clerk: rota.Clerk) -> str:
    return rota.SagaPlan.id_of(clerk.client, clerk.outstanding[0] if clerk.outstanding else b"1")


def is_clean(repo: rota.Repository) -> bool:
    """Whether no message of any saga is left but results, and what was told; and no lock."""
    last = repo.queue("rota.locks", max_attempts=None).register("lamps").last
    if last is not None and last.tag:
        return False
    kept = {"ledger", "rota.sagas", "order.stuck", "teller-7.replies.kept"}
    return all(len(repo.queue(name)) == 0 for name in repo.queues() if name not in kept)
