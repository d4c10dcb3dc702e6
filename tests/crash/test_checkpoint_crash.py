"""A process is killed at each step of a checkpoint and of cleaning, then the next one at another.

The program at the end of this file notes each put and each ack before and after the call; whatever it was doing when it
was killed, what was acknowledged holds, and nothing is there twice.
"""

from __future__ import annotations

import collections
import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest

import rota

CAPACITY = "1 MiB"
STEPS = [
    "checkpoint.begin",
    "checkpoint.walked",
    "checkpoint.block",
    "checkpoint.synced",
    "manifest.written",
    "manifest.synced",
    "checkpoint.manifest",
    "segment.freed",
    "checkpoint.freed",
    "clean.copied",
]


def killed_at(directory: pathlib.Path, point: str, nth: int, seed: int) -> None:
    """Work until the failpoint is hit."""
    environment = {**os.environ, "ROTA_FAILPOINTS": f"{point}=kill@{nth}"}
    command = [sys.executable, __file__, str(directory), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, f"{point} was not hit {nth} times:\n{done.stderr}"


def compare(directory: pathlib.Path) -> None:
    """What lives is what was put and not acked, in the order of the puts; calls that were cut may count or not."""
    noted = collections.defaultdict(set)
    for line in (directory / "journal").read_text().splitlines():
        noted[line[0]].add(line[2:])
    with rota.open(directory / "repository", capacity=CAPACITY) as repo:
        messages = list(repo.queue("q").browse())
    bodies = [message.body.decode().split()[0] for message in messages]
    assert len(bodies) == len(set(bodies)), "a message is there twice"
    assert bodies == sorted(bodies), "the order changed"
    assert noted["p"] - noted["A"] <= set(bodies), "an acknowledged message is lost"
    assert set(bodies) <= noted["P"] - noted["a"], "a settled message is back"


@pytest.mark.parametrize("nth", [1, 4])
@pytest.mark.parametrize("point", STEPS)
def test_a_crash_at_a_step_loses_nothing(directory: pathlib.Path, seed: int, point: str, nth: int) -> None:
    killed_at(directory, point, nth, seed)
    compare(directory)


@pytest.mark.parametrize("point", STEPS)
def test_a_second_crash_loses_nothing(directory: pathlib.Path, seed: int, point: str) -> None:
    rng = random.Random(f"{seed} {point}")
    for second in (point, "recovery.epoch", rng.choice(STEPS), "recovery.rebuilt", rng.choice(STEPS)):
        killed_at(directory, second, 1, rng.randrange(2**32))
    compare(directory)


def main(directory: str, seed: str) -> None:
    """Work until killed; of some twenty messages one stays, so that segments are never empty."""
    rng = random.Random(int(seed))
    journal = os.open(pathlib.Path(directory, "journal"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    repo = rota.open(pathlib.Path(directory, "repository"), capacity=CAPACITY, durability="none")
    queue = repo.queue("q", max_attempts=None)

    def note(kind: str, bodies: list[bytes]) -> None:
        os.write(journal, b"".join(b"%s %s\n" % (kind.encode(), body.split()[0]) for body in bodies))

    number = repo.stats().next_id * 1000  # above all that was put before
    for _ in range(20000):
        if len(queue) < 400:
            bodies = [b"%012d %s" % (number + i, b"x" * rng.randrange(600)) for i in range(rng.randrange(1, 20))]
            number += len(bodies)
            note("P", bodies)
            queue.put_many(bodies)
            note("p", bodies)
        batch = list(queue.get_many(rng.randrange(1, 20)))
        for message in batch:
            if rng.random() < 0.05:
                message.release(delay=3600.0)
                continue
            note("A", [message.body])
            message.ack()
            note("a", [message.body])
        kept = queue.ids(0, 1000)
        for identity in kept[: len(kept) - 300]:
            body = queue.read(identity).body
            note("A", [body])
            queue.kill(identity)
            note("a", [body])


if __name__ == "__main__":
    main(*sys.argv[1:])
