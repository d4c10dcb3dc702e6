"""Messages move between queues while checkpoints are taken, then every process is killed: none is lost or doubled.

Nothing is ever settled in the queues of the moves, so whatever the moment, each message is there once.
"""

from __future__ import annotations

import pathlib
import random
import signal
import subprocess
import sys

import pytest

import rota
from rota._core.index_check import index_lists

CAPACITY = "1 MiB"
COUNT = 300
QUEUES = ["a", "b", "c"]


@pytest.mark.parametrize("lap", range(3))
def test_moves_beside_checkpoints_lose_nothing(directory: pathlib.Path, seed: int, lap: int) -> None:
    path = directory / "repository"
    with rota.open(path, capacity=CAPACITY, durability="none") as repo:
        repo.queue("a", max_attempts=1, indexes=("key",))
        repo.queue("b", max_attempts=1, order="group")
        repo.queue("c", max_attempts=1)
        for number in range(COUNT):
            repo.queue("a").put(b"%04d" % number, key=f"k{number % 20}" if number % 3 else None)
    for step in range(3):
        run_and_kill(path, seed * 100 + lap * 10 + step)
        with rota.open(path, capacity=CAPACITY, durability="none") as repo:
            bodies = [message.body for name in repo.queues() for message in repo.queue(name).browse()]
            for name in ("a", "a.errors", "b"):
                lists_are_whole(repo.queue(name))
        assert sorted(bodies) == [b"%04d" % number for number in range(COUNT)]


def lists_are_whole(queue: rota.Queue) -> None:
    """Every message with a key is in the list of its key, and of each key one at most is ready."""
    keys: dict[object, list[int]] = {}
    for message in queue.browse():
        if message.key is not None:
            keys.setdefault(message.key, []).append(message.id)
    assert sorted(sorted(ids) for _, _, ids in index_lists(queue)) == sorted(sorted(ids) for ids in keys.values())
    figures = queue.figures()
    if figures["order"] == "group":
        behind = sum(len(ids) - 1 for ids in keys.values())
        assert behind - figures["delayed"] <= figures["waiting"] <= behind


def run_and_kill(path: pathlib.Path, seed: int) -> None:
    """Two processes move, one takes checkpoint after checkpoint; it says when there were enough."""
    roles = ["move", "move", "churn"]
    command = [sys.executable, __file__, str(path)]
    children = [
        subprocess.Popen([*command, role, str(seed + i)], stdout=subprocess.PIPE) for i, role in enumerate(roles)
    ]
    try:
        assert children[-1].stdout is not None
        assert children[-1].stdout.readline() == b"enough\n"
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.communicate()
    assert [child.returncode for child in children] == [-signal.SIGKILL] * 3


def move(repo: rota.Repository, rng: random.Random) -> None:
    """Send messages to the error queues and from there anywhere, for ever."""
    while True:
        queue = repo.queue(rng.choice(QUEUES))
        for message in queue.get_many(rng.randrange(1, 30)):
            try:
                if rng.random() < 0.7:
                    message.nack()  # its only attempt: to the error queue
                else:
                    message.release(delay=rng.choice((0.0, 0.001)))
            except rota.LeaseLost:
                continue
        errors = repo.queue(f"{rng.choice(QUEUES)}.errors")
        for identity in errors.ids(0, 30):
            try:
                errors.redrive([identity], repo.queue(rng.choice(QUEUES)))
            except rota.NotFound:
                continue


def churn(repo: rota.Repository, rng: random.Random) -> None:
    """Fill segments with what ends at once."""
    queue = repo.queue("churn", max_attempts=None)
    before = repo.stats().checkpoints
    while repo.stats().checkpoints < before + 12:
        for _ in range(50):
            queue.put(b"x" * rng.randrange(2000))
            queue.get().ack()
    print("enough", flush=True)
    signal.pause()


def main(path: str, role: str, seed: str) -> None:
    repo = rota.open(path, capacity=CAPACITY, durability="none")
    {"move": move, "churn": churn}[role](repo, random.Random(int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
