"""Killed at each place of a put with a dedup key: who puts again gets the old answer, and no key is there twice."""

from __future__ import annotations

import os
import pathlib
import signal
import threading
from collections.abc import Callable

import pytest

import rota
from rota._core import platform
from tests.crash.kit import Child, Died, Link
from tests.crash.workload import SMALL

POINTS = [
    *((f"append.{place}", nth) for place in ("admitted", "stamped", "copied", "published") for nth in (1, 30)),
    *((f"append.{place}", nth) for place in ("applying", "applied") for nth in (1, 30)),
    *((f"checkpoint.{place}", nth) for place in ("begin", "walked", "block", "manifest", "freed") for nth in (1, 2)),
]
ROOMY = {**SMALL, "capacity": "16 MiB"}  # where a checkpoint begins while there is room for puts
KEYS = 40
ROUNDS = 60


def prepared(path: pathlib.Path) -> None:
    with rota.open(path, create=True, **SMALL) as repo:
        repo.queue("q", dedup_count=2 * KEYS, max_attempts=None)


def key_of(round_: int, number: int) -> str:
    return f"{round_}-{number}"


def work(link: Link, path: pathlib.Path, failpoint: str) -> None:
    """Put, put again, put in transactions, forget and ack, told before and after, until it is killed."""
    repo = rota.open(path, **SMALL)
    queue = repo.queue("q")
    platform.arm_from(failpoint)
    for round_ in range(ROUNDS):
        for number in range(KEYS):
            key = key_of(round_, number)
            link.send(("put", key))
            if number % 4:
                receipt = queue.put(key.encode() + b"." * 900, dedup=key)
                link.send(("done", key, receipt.id))
            else:
                with repo.transaction() as t:
                    pending = t.put(queue, key.encode() + b"." * 900, dedup=key)
                link.send(("done", key, pending.id))
        queue.get_many(KEYS // 2).ack()
        queue.get_many(KEYS).ack()
        forgotten = key_of(round_, 1)
        link.send(("forget", forgotten))
        queue.forget(forgotten)
        link.send(("forgotten", forgotten))
    link.send(("end",))


def heard(child: Child) -> tuple[dict[str, int], set[str], set[str]]:
    """The ids that were told, and the keys whose put or forgetting may or may not have happened, or were forgotten."""
    ids: dict[str, int] = {}
    open_keys: set[str] = set()
    forgotten: set[str] = set()
    try:
        while True:
            kind, *rest = child.receive()
            assert kind != "end", "the place was not reached"
            if kind == "put":
                open_keys.add(rest[0])
            elif kind == "done":
                open_keys.discard(rest[0])
                ids[rest[0]] = rest[1]
            elif kind == "forget":
                ids.pop(rest[0])
                open_keys.add(rest[0])
            else:
                open_keys.discard(rest[0])
                forgotten.add(rest[0])
    except Died:
        return ids, open_keys, forgotten


def check(queue: rota.Queue, ids: dict[str, int], unknown: set[str], forgotten: set[str]) -> None:
    """What is in the window gets its old id; of what is unknown one more put makes one."""
    recent = list(ids)[-KEYS:]
    answers = {key: queue.put(b"again", dedup=key) for key in recent}
    assert {key: answer.id for key, answer in answers.items()} == {key: ids[key] for key in recent}
    assert all(answer.duplicate for answer in answers.values())
    for key in unknown:
        first, second = queue.put(key.encode(), dedup=key), queue.put(key.encode(), dedup=key)
        assert (second.duplicate, second.id) == (True, first.id)
    bodies = [message.body.split(b".")[0] for message in queue.browse()]
    assert b"again" not in bodies
    assert len(bodies) == len(set(bodies))
    for key in sorted(forgotten)[-1:]:
        assert not queue.put(b"", dedup=key).duplicate


@pytest.mark.parametrize(("point", "nth"), POINTS)
@pytest.mark.parametrize("alone", [False, True])
def test_killed_at(directory: pathlib.Path, point: str, nth: int, alone: bool) -> None:
    """Beside a survivor, who finishes what was begun, and alone, where the next open does."""
    prepared(directory / "r")
    survivor = None if alone else rota.open(directory / "r", **SMALL)
    with Child(work, directory / "r", f"{point}=kill@{nth}") as child:
        found = heard(child)
        assert child.wait() == -signal.SIGKILL
    repo = survivor or rota.open(directory / "r", **SMALL)
    with repo:
        check(repo.queue("q"), *found)
    with rota.open(directory / "r", **SMALL) as repo:
        check(repo.queue("q"), found[0], set(), set())


def checkpointing(link: Link, path: pathlib.Path) -> None:
    """Hold a checkpoint that has begun until told to go on, and die when it counts."""
    repo = rota.open(path, **ROOMY)
    churn = repo.queue("churn", max_attempts=None)
    platform.arm_from("checkpoint.begin=pause;checkpoint.freed=kill")
    threading.Thread(target=held, args=(link,), daemon=True).start()
    while repo.stats().tail_lsn < 13 << 20:  # a quarter is free no more, and puts are not yet refused
        churn.put(b"x" * 2000)
        churn.get(timeout=0).ack()
    signal.pause()


def held(link: Link) -> None:
    """Tell when the checkpoint is held."""
    while not platform.paused():
        os.sched_yield()
    link.send(("held",))
    link.receive()
    platform.disarm("checkpoint.begin")


def puts_between(queue: rota.Queue) -> None:
    """What came, and was forgotten, leaves its place to what was there before."""
    queue.put(b"", dedup="d")
    queue.forget("d")
    queue.put(b"", dedup="e")


def puts_again(queue: rota.Queue) -> None:
    """A key that was forgotten and came again."""
    queue.put(b"", dedup="d")
    queue.forget("d")
    queue.put(b"", dedup="d")


def takes_the_number(queue: rota.Queue) -> None:
    """Another queue gets the number."""
    queue.put(b"", dedup="d")
    queue.repository.destroy("q", force=True)
    other = queue.repository.queue("q", dedup_count=3, max_attempts=None)
    assert other.number_ == queue.number_


def meddling(link: Link, path: pathlib.Path, action: Callable[[rota.Queue], None]) -> None:
    """Do it and stay until killed."""
    repo = rota.open(path, **ROOMY)
    action(repo.queue("q"))
    link.send(("done",))
    link.receive()


@pytest.mark.parametrize(
    ("action", "known", "unknown"),
    [(puts_between, "bce", ""), (puts_again, "bcd", ""), (takes_the_number, "", "dab")],
)
def test_what_comes_between_the_begin_and_the_walk_of_a_checkpoint(
    directory: pathlib.Path, action: Callable[[rota.Queue], None], known: str, unknown: str
) -> None:
    """The image knows it already, and the replay does it again."""
    with rota.open(directory / "r", create=True, **ROOMY) as repo:
        queue = repo.queue("q", dedup_count=3, max_attempts=None)
        for key in "abc":
            queue.put(b"", dedup=key)
    with Child(checkpointing, directory / "r") as holder:
        assert holder.receive() == ("held",)
        with Child(meddling, directory / "r", action) as child:
            assert child.receive() == ("done",)
            holder.send(("go on",))
            assert holder.wait() == -signal.SIGKILL
    with rota.open(directory / "r", **ROOMY) as repo:
        assert repo.recovery.performed
        queue = repo.queue("q")
        assert [key for key in known if not queue.put(b"", dedup=key).duplicate] == []
        assert [key for key in unknown if queue.put(b"", dedup=key).duplicate] == []
