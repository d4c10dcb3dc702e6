"""Killed at each place of a put with a dedup key: who puts again gets the old answer, and no key is there twice."""

from __future__ import annotations

import pathlib
import signal

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
