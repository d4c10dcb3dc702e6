"""The index of a queue against lists in Python: whatever happens to messages, and whoever dies or reopens."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
import time
from collections import defaultdict
from typing import Any

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import rota
from rota._core import platform
from rota._core.index_check import index_lists
from tests.conftest import directory_base
from tests.crash.kit import Child, Link

OPTIONS: dict[str, Any] = {"capacity": "2 MiB", "durability": "none"}
FIELDS = ("key", "n")
QUEUES = ("plain", "group", "plain.errors")
KEYS = [None, "a", "b", b"a"]
NUMBERS = [None, 1, 1.0, True, "1", b"1", -5, 2**70, float(2**70), 0.5]
PAD = b"." * 200


class Hand:
    """A process that does what it is told to."""

    def __init__(self, path: pathlib.Path) -> None:
        self.repo = rota.open(path, **OPTIONS)
        self.repo.queue("plain", indexes=FIELDS, max_attempts=2, lease=1e6)
        self.repo.queue("group", indexes=FIELDS, order="group", max_attempts=2, error_queue="plain.errors", lease=1e6)
        self.held: dict[int, rota.Message] = {}

    def put(self, queue: str, key: Any, number: Any, ttl: float | None, delay: float) -> int:
        headers = None if number is None else {"other": 1, "n": number}
        return self.repo.queue(queue).put(PAD, key=key, headers=headers, ttl=ttl, delay=delay).id

    def put_many(self, queue: str, keys: list[Any]) -> list[int]:
        with self.repo.transaction() as t:
            receipt = t.put_many(self.repo.queue(queue), [PAD] * len(keys), keys=keys)
        assert receipt.ids is not None
        return list(receipt.ids)

    def claim(self, queue: str, count: int) -> list[int]:
        batch = self.repo.queue(queue).get_many(count)
        self.held.update({message.id: message for message in batch})
        return list(batch.ids)

    def choose(self, queue: str, key: Any) -> int | None:
        try:
            message = self.repo.queue(queue).get(timeout=0, where=rota.key == key)
        except rota.Empty:
            return None
        self.held[message.id] = message
        return message.id

    def ack_many(self, queue: str, count: int) -> list[int]:
        with self.repo.queue(queue).get_many(count) as batch:
            return list(batch.ids)

    def end(self, id: int, how: str) -> bool:
        try:
            getattr(self.held.pop(id), how)()
        except (rota.Killed, rota.LeaseLost):
            return False
        return True

    def kill(self, queue: str, id: int) -> None:
        self.repo.queue(queue).kill(id)

    def redrive(self, ids: list[int], target: str) -> None:
        self.repo.queue("plain.errors").redrive(ids, self.repo.queue(target))

    def seen(self) -> dict[str, list[tuple[int, int, list[int]]]]:
        return {name: index_lists(self.repo.queue(name)) for name in QUEUES}

    def live(self) -> dict[str, list[int]]:
        return {name: self.repo.queue(name).ids() for name in QUEUES}

    def figures(self) -> dict[str, dict[str, Any]]:
        return {name: self.repo.queue(name).figures() for name in QUEUES}

    def advance(self, shift_ns: int) -> None:
        platform.shift_clock(wall_ns=shift_ns)

    def close(self) -> None:
        self.held.clear()
        self.repo.close()


def serve(link: Link, path: pathlib.Path, shift_ns: int) -> None:
    platform.shift_clock(wall_ns=shift_ns)
    hand = Hand(path)
    link.send("open")
    while True:
        name, arguments = link.receive(3600)
        link.send(getattr(hand, name)(*arguments))
        if name == "close":
            return


def group(value: Any) -> Any:
    """What an index takes for one value: as Python compares, but text, bytes and numbers apart."""
    return (type(value).__name__ if isinstance(value, (str, bytes)) else "number", value)


class Machine(RuleBasedStateMachine):
    """Messages with what is indexed of them, by queue in the order of their arrival."""

    def __init__(self) -> None:
        super().__init__()
        directory_base().mkdir(parents=True, exist_ok=True)
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="rota-index-", dir=directory_base()))
        self.fields: dict[int, tuple[Any, Any]] = {}
        self.queues: dict[str, list[int]] = {name: [] for name in QUEUES}
        self.held: dict[int, str] = {}
        self.expiries: dict[int, int] = {}
        self.now_ns = 0
        self.child: Child | None = None

    def teardown(self) -> None:
        try:
            if self.child is not None:
                self.agree()
                self.call("close")
                self.child.finish()
        finally:
            if self.child is not None:
                self.child.__exit__()
            shutil.rmtree(self.path, ignore_errors=True)

    def call(self, name: str, *arguments: Any) -> Any:
        assert self.child is not None
        self.child.send((name, arguments))
        return self.child.receive()

    @initialize()
    def enter(self) -> None:
        self.child = Child(serve, self.path / "r", self.now_ns)
        assert self.child.receive() == "open"

    def settled(self) -> dict[str, list[int]]:
        """What lives, once everything that has expired and that nobody holds was swept."""
        deadline = time.monotonic() + 5
        while True:
            live: dict[str, list[int]] = self.call("live")
            over = [
                id
                for name in ("plain", "group")
                for id in live[name]
                if self.expiries.get(id, self.now_ns + 1) <= self.now_ns and id not in self.held
            ]
            if not over:
                break
            assert time.monotonic() < deadline, f"{over} do not expire"
        for id in live["plain.errors"]:
            self.expiries.pop(id, None)  # a message that was moved does not expire
        return live

    def agree(self) -> None:
        """The lists are what the messages say; what ended or moved by itself is taken from what lives."""
        live = self.settled()
        for name in QUEUES:
            come = [id for id in live[name] if id not in self.queues[name]]
            self.queues[name] = [id for id in self.queues[name] if id in live[name]] + come
        expected: dict[str, list[tuple[int, int, list[int]]]] = {}
        for name, ids in self.queues.items():
            lists: dict[Any, list[int]] = defaultdict(list)
            for id in ids:
                for ordinal, value in enumerate(self.fields[id]):
                    if value is not None:
                        lists[ordinal, group(value)].append(id)
            expected[name] = sorted((0, ordinal, found) for (ordinal, _), found in lists.items())
        seen = {name: sorted(found) for name, found in self.call("seen").items()}
        for shown in (seen, expected):  # several may have moved since
            shown["plain.errors"] = sorted((0, field, sorted(found)) for _, field, found in shown["plain.errors"])
        assert seen == expected
        for name, figures in self.call("figures").items():
            states = sum(figures[state] for state in ("ready", "delayed", "claimed", "parked", "waiting"))
            assert states == figures["total"] == len(self.queues[name])
        self.one_of_a_key()

    def one_of_a_key(self) -> None:
        """In the group queue nothing waits whose key is free, and nothing is ready whose key is not."""
        figures = self.call("figures")["group"]
        keys = [self.fields[id][0] for id in self.queues["group"]]
        busy = len({group(key) for key in keys if key is not None}) + sum(key is None for key in keys)
        assert figures["ready"] + figures["claimed"] + figures["parked"] <= busy
        assert figures["waiting"] <= len(keys) - busy

    def choose(self, data: st.DataObject, ids: list[int]) -> int | None:
        return data.draw(st.sampled_from(sorted(ids))) if ids else None

    queue = st.sampled_from(["plain", "group"])

    @rule(queue=queue, key=st.sampled_from(KEYS), number=st.sampled_from(NUMBERS), late=st.sampled_from("..td"))
    def put(self, queue: str, key: Any, number: Any, late: str) -> None:
        ttl, delay = 10.0 if late == "t" else None, 10.0 if late == "d" else 0.0
        id = self.call("put", queue, key, number, ttl, delay)
        self.fields[id] = key, number
        if ttl is not None:
            self.expiries[id] = self.now_ns + int(ttl * 1e9)
        self.queues[queue].append(id)

    @rule(queue=queue, keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8))
    def put_many(self, queue: str, keys: list[Any]) -> None:
        for id, key in zip(self.call("put_many", queue, keys), keys, strict=True):
            self.fields[id] = key, None
            self.queues[queue].append(id)

    @rule(queue=st.sampled_from(QUEUES), count=st.integers(1, 5))
    def claim(self, queue: str, count: int) -> None:
        self.settled()
        for id in self.call("claim", queue, count):
            if queue == "group" and (key := self.fields[id][0]) is not None:
                older = [other for other in self.queues[queue] if self.fields[other][0] == key]
                assert older[0] == id, f"{id} is not the oldest of {older}"
            self.held[id] = queue

    @rule(queue=queue, key=st.sampled_from(KEYS[1:]))
    def choose_key(self, queue: str, key: Any) -> None:
        live = self.settled()[queue]
        if (id := self.call("choose", queue, key)) is None:
            return
        of_key = [other for other in self.queues[queue] if other in live and group(self.fields[other][0]) == group(key)]
        assert id in of_key
        assert queue == "plain" or of_key[0] == id
        self.held[id] = queue

    @rule(queue=st.sampled_from(QUEUES), count=st.integers(1, 5))
    def ack_many(self, queue: str, count: int) -> None:
        self.settled()
        for id in self.call("ack_many", queue, count):
            self.queues[queue].remove(id)

    @rule(data=st.data(), how=st.sampled_from(["ack", "nack", "release"]))
    def end(self, data: st.DataObject, how: str) -> None:
        if (id := self.choose(data, list(self.held))) is not None:
            self.call("end", id, how)
            del self.held[id]
            self.agree()

    @rule(data=st.data(), queue=st.sampled_from(QUEUES))
    def kill(self, data: st.DataObject, queue: str) -> None:
        if (id := self.choose(data, self.settled()[queue])) is not None:
            self.call("kill", queue, id)
            self.agree()

    @rule(data=st.data(), to=queue)
    def redrive(self, data: st.DataObject, to: str) -> None:
        free = [id for id in self.settled()["plain.errors"] if id not in self.held]
        if (id := self.choose(data, free)) is not None:
            self.call("redrive", [id], to)
            self.agree()
            self.put("plain", None, None, ".")  # two that are moved without a put between come by id after a reopen

    @rule()
    def advance(self) -> None:
        self.now_ns += int(11e9)
        self.call("advance", self.now_ns)
        self.agree()

    @rule(how=st.sampled_from(["close", "kill"]))
    def reopen(self, how: str) -> None:
        assert self.child is not None
        if how == "close":
            self.call("close")
            self.child.finish()
        else:
            self.child.kill()
        self.child.__exit__()
        self.held.clear()
        self.enter()
        self.agree()


Machine.TestCase.settings = hypothesis.settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
TestIndexModel = Machine.TestCase
