"""A repository that is far smaller than what passes through it: what lives stays, what ended stays ended.

The program at the end of this file works on a repository with a seed and then ends as it is told; the tests compare
what the next one finds with what it left.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import zlib

import pytest

import rota

CAPACITY = "1 MiB"
KILLED = -signal.SIGKILL


def snapshot(repo: rota.Repository) -> dict[str, dict[str, list[int]]]:
    """Return queue -> id -> checksum of the body, priority, attempts."""
    return {
        name: {
            str(message.id): [zlib.crc32(message.body), message.priority, message.attempts]
            for message in repo.queue(name).browse()
        }
        for name in repo.queues()
    }


def work(repo: rota.Repository, seed: int, steps: int) -> None:
    """Put, ack, return, delay, kill, move: with what was there before."""
    rng = random.Random(seed)
    queues = [repo.queue("a", max_attempts=2), repo.queue("b", max_attempts=None), repo.queue("a.errors")]
    for _ in range(steps):
        queue = rng.choice(queues)
        action = rng.random()
        if len(queue) < 60 and action < 0.5:
            put_some(rng, queue)
        elif action < 0.9:
            for _ in range(rng.randrange(1, 12)):
                settle_one(rng, queue)
        elif action < 0.94 and queue.ids(0, 1):
            queue.kill(rng.choice(queue.ids(0, 100)))
        elif queue.name == "a.errors":
            ids = queue.ids(0, 5)
            queue.redrive(ids, rng.choice(queues[:2]))


def put_some(rng: random.Random, queue: rota.Queue) -> None:
    size = rng.choice((8, 100, 700, 6000))
    shape = rng.random()
    if shape < 0.4:
        queue.put_many([rng.randbytes(rng.randrange(min(size, 700))) for _ in range(rng.randrange(1, 20))])
    elif shape < 0.5:
        bodies = [b"%d times the same " % i * rng.randrange(1, 50) for i in range(rng.randrange(1, 30))]
        queue.put_many(bodies, compression="lz4")
    elif shape < 0.6:
        queue.put(rng.randbytes(8), delay=rng.choice((0.001, 3600.0)))
    elif shape < 0.7:
        queue.put(rng.randbytes(8), ttl=3600.0, priority=rng.randrange(10), key=b"k", headers={"h": 1})
    else:
        queue.put(rng.randbytes(rng.randrange(size)), priority=rng.choice((0, 0, 0, 5)))


def settle_one(rng: random.Random, queue: rota.Queue) -> None:
    try:
        message = queue.get(timeout=0)
    except rota.Empty:
        return
    fate = rng.random()
    if fate < 0.7:
        message.ack()
    elif fate < 0.8:
        message.nack()
    elif fate < 0.9:
        message.nack(delay=rng.choice((0.001, 3600.0)))
    else:
        message.release()


def run(path: pathlib.Path, *arguments: object, failpoints: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program at the end of this file."""
    environment = {**os.environ, "ROTA_FAILPOINTS": failpoints}
    command = [sys.executable, __file__, str(path), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("ending", ["kill", "close"])
def test_every_lap_leaves_what_lives(directory: pathlib.Path, seed: int, ending: str) -> None:
    rng = random.Random(seed)
    left = directory / "left.json"
    for _ in range(4):
        done = run(directory / "repository", left, rng.randrange(2**32), 2000, ending)
        assert done.returncode == (KILLED if ending == "kill" else 0), done.stderr


def test_an_ack_whose_segment_is_used_again_does_not_bring_its_message_back(directory: pathlib.Path) -> None:
    """F1."""
    with rota.open(directory / "r", capacity=CAPACITY, durability="none") as repo:
        queue = repo.queue("q")
        for number in range(200):
            queue.put(b"early %d" % number)
        held = queue.get(timeout=0)
        for _ in range(199):
            queue.get(timeout=0).ack()
        lap(queue, 20000)
        held.release()
    with rota.open(directory / "r", capacity=CAPACITY) as repo:
        assert [message.body for message in repo.queue("q").browse()] == [b"early 0"]


def lap(queue: rota.Queue, count: int, size: int = 40) -> None:
    """So many messages come and go."""
    for number in range(count):
        queue.put(b"%*d" % (size, number))
        queue.get(timeout=0).ack()


@pytest.mark.parametrize("size", [10, 12000])
def test_one_old_message_holds_nothing_up(directory: pathlib.Path, size: int) -> None:
    """C31, C32, C33: claimed, delayed, in an error queue; many times the capacity passes."""
    with rota.open(directory / "r", capacity=CAPACITY, durability="none") as repo:
        queue = repo.queue("q", max_attempts=1)
        for _ in range(3):
            queue.put(b"o" * size)
        queue.get(timeout=0).nack()
        delayed, held = queue.get(timeout=0), queue.get(timeout=0)
        delayed.release(delay=3600.0)
        lap(queue, 60000, 40)
        assert held.body == b"o" * size
        held.ack()
        assert len(queue) == 1
        assert [message.body for message in repo.queue("q.errors").browse()] == [b"o" * size]
        assert repo.stats().checkpoints > 20


@pytest.mark.parametrize("size", [0, 300, 9000])
@pytest.mark.parametrize("order", ["oldest", "scattered"])
def test_a_full_repository_can_always_be_drained(directory: pathlib.Path, size: int, order: str) -> None:
    """F12: puts stop, acks go on, to the last message, twice."""
    with rota.open(directory / "r", capacity=CAPACITY, durability="none") as repo:
        queue = repo.queue("q")
        for _ in range(2):
            count = fill(queue, size)
            batch = queue.get_many(count, timeout=0)
            assert len(batch) == count
            messages = list(batch)
            if order == "scattered":
                messages = [message for first in range(17) for message in messages[first::17]]
            for message in messages:
                message.ack()
            assert len(queue) == 0


def fill(queue: rota.Queue, size: int) -> int:
    count = 0
    while True:
        try:
            queue.put(b"f" * size, timeout=0)
        except rota.Full:
            return count
        count += 1


def test_a_reopen_keeps_order_counts_and_registrations(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity=CAPACITY) as repo:
        queue = repo.queue("q", max_attempts=None)
        registration = queue.register("clerk")
        with repo.transaction() as transaction:
            transaction.put(queue, b"tagged")
            transaction.tag(registration, b"tag")
        for number in range(300):
            queue.put(b"%d" % number, durability="none")
        queue.get(timeout=0).nack()
        lap(repo.queue("other"), 2000)
        repo.queue("stopped").stop()
    with rota.open(directory / "r", capacity=CAPACITY) as repo:
        assert repo.recovery.clean
        queue = repo.queue("q")
        last = queue.register("clerk").last
        assert last is not None
        assert last.tag == b"tag"
        bodies = [b"tagged", *(b"%d" % number for number in range(300))]
        for body in bodies:
            message = queue.get(timeout=0)
            assert message.body == body
            assert message.attempts == (2 if body == b"tagged" else 1)
            message.ack(durability="none")
        with pytest.raises(rota.QueueStopped):
            repo.queue("stopped").get(timeout=0)


def main(path: str, left: str, seed: str, steps: str, ending: str) -> None:
    """Compare with what the last one left, work, leave."""
    repo = rota.open(path, capacity=CAPACITY, durability="none")
    before = pathlib.Path(left)
    if before.exists():
        expected, found = json.loads(before.read_text()), snapshot(repo)
        assert found == expected, differences(expected, found)
    work(repo, int(seed), int(steps))
    before.write_text(json.dumps(snapshot(repo)))
    assert repo.stats().checkpoints > 0
    if ending == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    repo.close()


def differences(expected: dict[str, dict[str, list[int]]], found: dict[str, dict[str, list[int]]]) -> str:
    lines = []
    for name in sorted({*expected, *found}):
        was, is_now = expected.get(name, {}), found.get(name, {})
        lines += [
            f"{name} {key}: {was.get(key)} -> {is_now.get(key)}"
            for key in sorted({*was, *is_now}, key=int)
            if was.get(key) != is_now.get(key)
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
