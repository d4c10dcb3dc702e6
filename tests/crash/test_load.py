"""Many processes, killed at random: every message that was acknowledged is worked off, and none twice.

Each process writes what it did into a pipe before and after: a settlement that was announced and not confirmed may
or may not have happened, all others are certain.
"""

from __future__ import annotations

import collections
import pathlib
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import rota
from tests.crash.kit import Child, Died, Link, drain

OPTIONS: dict[str, Any] = {"capacity": "16 MiB", "durability": "none"}


def produce(link: Link, path: pathlib.Path, number: int, count: int, seed: int) -> None:
    """Put numbered messages one by one and in batches; tell which are in."""
    chance = random.Random(seed)
    with rota.open(path, capacity="16 MiB", durability="none") as repo:
        queue = repo.queue("q")
        done = 0
        while done < count:
            here = min(count - done, chance.choice([1, 1, 7, 40]))
            bodies = [b"%d-%d" % (number, done + i) for i in range(here)]
            link.send(("putting", done, here))
            if here == 1:
                queue.put(bodies[0], durability="sync" if chance.random() < 0.02 else None)
            else:
                queue.put_many(bodies)
            link.send(("put", done, here))
            done += here


def consume(link: Link, path: pathlib.Path, seed: int, until_empty: float) -> None:
    """Work off whatever comes, in every way there is; tell what is being settled and what is settled."""
    chance = random.Random(seed)
    with rota.open(path, capacity="16 MiB", durability="none") as repo:
        queue, results = repo.queue("q"), repo.queue("results", max_attempts=None)
        last = time.monotonic()
        while time.monotonic() - last < until_empty:
            kind = chance.randrange(4)
            try:
                if kind == 0:
                    message = queue.get(timeout=0.02)
                    link.send(("settling", [message.body]))
                    message.ack()
                    link.send(("settled", [message.body]))
                elif kind == 1:
                    batch = queue.get_many(chance.randrange(1, 60), timeout=0.02)
                    if not len(batch):
                        continue
                    bodies = batch.bodies
                    link.send(("settling", bodies))
                    batch.ack()
                    link.send(("settled", bodies))
                elif kind == 2:
                    with repo.transaction() as t:
                        message = t.get(queue, timeout=0.02)
                        t.put(results, message.body)
                        link.send(("settling", [message.body]))
                    link.send(("settled", [message.body]))
                else:
                    batch = queue.get_many(5, timeout=0.02)
                    for message in batch:
                        if chance.random() < 0.5:
                            message.release()
                        else:
                            link.send(("settling", [message.body]))
                            message.ack()
                            link.send(("settled", [message.body]))
                    if not len(batch):
                        continue
                last = time.monotonic()
            except rota.Empty:
                continue


class Account:
    """What all processes said, taken in by a thread for each."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.put: set[bytes] = set()
        self.maybe_put: set[bytes] = set()
        self.settled: collections.Counter[bytes] = collections.Counter()
        self.maybe_settled: collections.Counter[bytes] = collections.Counter()
        self.failures: list[BaseException] = []

    def listen(self, child: Child, number: int) -> None:
        """Until the child is gone."""
        open_entry = None
        try:
            while True:
                entry = child.receive(60)
                with self.lock:
                    if entry[0] in ("putting", "settling"):
                        open_entry = entry
                    elif entry[0] == "put":
                        self.put |= {b"%d-%d" % (number, i) for i in range(entry[1], entry[1] + entry[2])}
                        open_entry = None
                    else:
                        self.settled.update(entry[1])
                        open_entry = None
        except Died:
            pass
        except BaseException as error:
            self.failures.append(error)
        with self.lock:
            if open_entry is not None and open_entry[0] == "putting":
                start, count = open_entry[1:]
                self.maybe_put |= {b"%d-%d" % (number, i) for i in range(start, start + count)}
            elif open_entry is not None:
                self.maybe_settled.update(open_entry[1])


@pytest.mark.parametrize("processes", [2, 8])
def test_nothing_is_lost_or_done_twice_under_kills(directory: pathlib.Path, seed: int, processes: int) -> None:
    """Consumers and producers die at random moments and are replaced; the account adds up."""
    chance = random.Random(seed)
    path = directory / "r"
    account = Account()
    count = 1500 if processes == 8 else 600
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q", max_attempts=None)
        repo.queue("results", max_attempts=None)
        running: list[tuple[Child, threading.Thread]] = []

        def start(function: Callable[..., Any], number: int, *arguments: object) -> None:
            child = Child(function, path, *arguments)
            thread = threading.Thread(target=account.listen, args=(child, number))
            thread.start()
            running.append((child, thread))

        try:
            for i in range(processes // 2):
                start(produce, i, i, count, chance.random())
                start(consume, -1, chance.random(), 1.5)
            kills = 0
            for _ in range(6 * processes):
                threading.Event().wait(chance.random() * 0.15)  # any moment is as good
                child, _ = chance.choice(running)
                if child.status is None:
                    child.signal(signal.SIGKILL)
                    kills += 1
                    start(consume, -1, chance.random(), 1.5)
            for child, thread in running:
                child.wait(60)
                thread.join()
        finally:
            for child, thread in running:
                child.__exit__()
                thread.join()
        assert not account.failures, account.failures
        assert kills > processes
        left = drain(repo.queue("q"))
        results = drain(repo.queue("results"))
        attempted = repo.queue("q").stats()
        assert (attempted.total, attempted.claimed) == (0, 0)
    known = account.put | account.maybe_put
    for body, times in (account.settled + collections.Counter(left)).items():
        assert times == 1, f"{body!r} was settled {times} times"
        assert body in known
    accounted = set(account.settled) | set(left) | set(account.maybe_settled)
    assert account.put <= accounted, f"lost {sorted(account.put - accounted)[:10]}"
    assert not set(left) & set(account.settled), "an acked message came back"
    assert len(results) == len(set(results))
    print(f"seed {seed}: {len(account.put)} put, {sum(account.settled.values())} settled, {kills} kills")


def test_one_consumer_sees_the_order_of_each_producer(directory: pathlib.Path, seed: int) -> None:
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q")
        children = [Child(produce, path, i, 400, seed + i) for i in range(3)]
        last = dict.fromkeys(range(3), -1)
        try:
            while sum(last.values()) < 3 * 399:
                for message in queue.get_many(50, timeout=5):
                    producer, number = map(int, message.body.split(b"-"))
                    assert number == last[producer] + 1
                    last[producer] = number
                    message.ack()
            for child in children:
                child.finish()
        finally:
            for child in children:
                child.__exit__()


def make_queues(link: Link, path: pathlib.Path, number: int) -> None:
    with rota.open(path, capacity="16 MiB", durability="none") as repo:
        link.send("ready")
        link.receive()
        for i in range(20):
            repo.queue(f"own-{number}-{i}").put(b"%d" % number)
            repo.queue(f"shared-{i}").put(b"%d" % number)


def test_queues_made_at_once_have_numbers_of_their_own(directory: pathlib.Path) -> None:
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        children = [Child(make_queues, path, i) for i in range(4)]
        try:
            for child in children:
                child.receive()
            for child in children:
                child.send("go")
            for child in children:
                child.finish()
        finally:
            for child in children:
                child.__exit__()
        names = repo.queues()
        assert len(names) == len(set(names)) == 2 * (4 * 20 + 20)
        for i in range(20):
            assert len(repo.queue(f"shared-{i}")) == 4
            for number in range(4):
                assert repo.queue(f"own-{number}-{i}").get(timeout=0).body == b"%d" % number


def destroyer(link: Link, path: pathlib.Path, rounds: int) -> None:
    with rota.open(path, capacity="16 MiB", durability="none") as repo:
        link.send("ready")
        for _ in range(rounds):
            try:
                repo.destroy("q")
            except (rota.InUse, rota.NotFound):
                continue


def test_a_queue_is_not_destroyed_under_a_put(directory: pathlib.Path) -> None:
    """Whatever was put is there, or the put said NotFound."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q", max_attempts=None)
        with Child(destroyer, path, 3000) as child:
            child.receive()
            for number in range(300):
                queue = repo.queue("q", max_attempts=None)
                try:
                    queue.put(b"%d" % number)
                except rota.NotFound:
                    continue
                with queue.get(timeout=0) as message:
                    assert message.body == b"%d" % number
            child.finish()
