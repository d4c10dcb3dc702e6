"""A repository, two processes that use it and die, against the oracle: any order of operations."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import rota
from rota._core import platform
from tests.conftest import directory_base
from tests.crash.kit import Child, Died, Link
from tests.oracle import Handed, Oracle

OPTIONS: dict[str, Any] = {"capacity": "2 MiB", "durability": "none"}
ATTEMPTS: dict[str, int | None] = {"a": 3, "a.errors": None, "b": None}
ERRORS = {"a": "a.errors"}
QUEUES = list(ATTEMPTS)
BOOK_S = 1000.0


# --- the child -------------------------------------------------------------------------------------------------------


class Hand:
    """What a child does when it is told to."""

    def __init__(self, path: pathlib.Path, shift_ns: int) -> None:
        platform.shift_clock(wall_ns=shift_ns)
        self.repo = rota.open(path, **OPTIONS)
        for name in ("a", "b"):
            self.repo.queue(name, max_attempts=ATTEMPTS[name], lease=1e6)
        self.held: dict[int, rota.Message] = {}

    def shift(self, shift_ns: int) -> None:
        platform.shift_clock(wall_ns=shift_ns)

    def put(self, queue: str, bodies: list[bytes], priority: int, delay: float) -> list[int]:
        q = self.repo.queue(queue)
        if len(bodies) == 1:
            return [q.put(bodies[0], priority=priority, delay=delay).id]
        return list(q.put_many(bodies, priority=priority).ids)

    def claim(self, queue: str, count: int, shown: int) -> list[Handed]:
        q = self.repo.queue(queue)
        if count == 1:
            try:
                messages = [q.get(timeout=0)]
            except rota.Empty:
                messages = []
            shown = 1
        else:
            messages = list(q.get_many(count))
        handed = []
        for i, message in enumerate(messages):
            self.held[message.id] = message
            body = message.body if i < shown else None
            handed.append(Handed(message.id, body, message.attempts, message.priority))
        return handed

    def show(self, id: int) -> bytes:
        return self.held[id].body

    def ack(self, ids: list[int]) -> None:
        if len(ids) == 1:
            self.held[ids[0]].ack()
        else:
            self.repo.queue("a").ack([self.held[id] for id in ids])
        for id in ids:
            del self.held[id]

    def give_back(self, id: int, delay: float, excused: bool) -> None:
        message = self.held.pop(id)
        message.release(delay) if excused else message.nack(delay)

    def transact(self, queue: str, target: str, bodies: list[bytes], how: str) -> tuple[Handed | None, list[int]]:
        t = self.repo.transaction()
        try:
            message = t.get(self.repo.queue(queue))
        except rota.Empty:
            t.rollback()
            return None, []
        handed = Handed(message.id, message.body, message.attempts, message.priority)
        receipts = [t.put(self.repo.queue(target), body) for body in bodies]
        if how == "rollback":
            t.rollback()
        elif how == "fail":
            try:
                with t:
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass
        else:
            t.commit()
            return handed, [receipt.id for receipt in receipts if receipt.id is not None]
        return handed, []

    def kill_message(self, queue: str, id: int) -> None:
        self.repo.queue(queue).kill(id)

    def redrive(self, queue: str, target: str, ids: list[int]) -> None:
        self.repo.queue(queue).redrive(ids, self.repo.queue(target))

    def sizes(self) -> dict[str, tuple[int, int]]:
        found = {}
        for name in QUEUES:
            figures = self.repo.queue(name).figures()
            found[name] = (figures["total"], figures["claimed"])
        return found

    def ids(self) -> dict[str, list[int]]:
        return {name: self.repo.queue(name).ids() for name in QUEUES}

    def bodies(self) -> dict[int, bytes]:
        return {m.id: m.body for name in QUEUES for m in self.repo.queue(name).browse()}

    def arm(self, point: str) -> None:
        platform.arm(point, "kill")

    def close(self) -> None:
        self.held.clear()
        self.repo.close()


def serve(link: Link, path: pathlib.Path, shift_ns: int) -> None:
    hand = Hand(path, shift_ns)
    link.send("open")
    while True:
        name, arguments = link.receive(3600)
        link.send(getattr(hand, name)(*arguments))
        if name == "close":
            return


# --- the machine -----------------------------------------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    """Two processes, one directory, one oracle."""

    def __init__(self) -> None:
        super().__init__()
        directory_base().mkdir(parents=True, exist_ok=True)
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="rota-oracle-", dir=directory_base()))
        self.oracle = Oracle(ATTEMPTS, ERRORS)
        self.children: dict[int, Child] = {}
        self.bodies = 0

    def teardown(self) -> None:
        try:
            for who in list(self.children):
                self.leave(who)
            if self.bodies:
                self.enter(0)
                self.agree()
        finally:
            for child in self.children.values():
                child.__exit__()
            shutil.rmtree(self.path, ignore_errors=True)

    # Plumbing

    def enter(self, who: int) -> None:
        child = Child(serve, self.path / "r", int(self.oracle.now * 1e9))
        self.children[who] = child
        assert child.receive() == "open"

    def call(self, who: int, name: str, *arguments: Any) -> Any:
        self.children[who].send((name, arguments))
        return self.children[who].receive()

    def gone(self, who: int) -> None:
        self.children.pop(who).__exit__()

    def new_bodies(self, count: int) -> list[bytes]:
        self.bodies += count
        return [b"%d" % (self.bodies - i) for i in range(count)]

    def agree(self) -> None:
        """Sizes, ids and bodies as the oracle has them; what a dead one held comes back first."""
        who = next(iter(self.children))
        deadline = time.monotonic() + 3
        while (sizes := self.call(who, "sizes")) != self.oracle.sizes():
            assert time.monotonic() < deadline, f"{sizes} is not {self.oracle.sizes()}"
        ids = {name: sorted(m.id for m in self.oracle.live.values() if m.queue == name) for name in QUEUES}
        assert self.call(who, "ids") == ids
        assert self.call(who, "bodies") == {m.id: m.body for m in self.oracle.live.values()}

    # Rules

    @initialize()
    def begin(self) -> None:
        self.enter(0)

    who = st.integers(0, 1)
    queue = st.sampled_from(["a", "b"])

    def choose(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.children)))

    @rule(
        data=st.data(), queue=queue, count=st.integers(1, 5), priority=st.sampled_from([0, 0, 0, 5]), late=st.booleans()
    )
    def put(self, data: st.DataObject, queue: str, count: int, priority: int, late: bool) -> None:
        bodies = self.new_bodies(count)
        delay = BOOK_S if late and count == 1 else 0.0
        ids = self.call(self.choose(data), "put", queue, bodies, priority, delay)
        self.oracle.put(queue, ids, bodies, priority, delay)

    @rule(data=st.data(), queue=st.sampled_from(QUEUES), count=st.sampled_from([1, 1, 2, 5]), shown=st.integers(0, 5))
    def claim(self, data: st.DataObject, queue: str, count: int, shown: int) -> None:
        if any(m.suspect for m in self.oracle.ready(queue)):
            count = 1
        who = self.choose(data)
        self.oracle.claim(who, queue, count, self.call(who, "claim", queue, count, shown))

    def holder(self, data: st.DataObject) -> tuple[int, int] | None:
        held = sorted((m.owner, m.id) for m in self.oracle.live.values() if m.owner is not None)
        return data.draw(st.sampled_from(held)) if held else None

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        if (chosen := self.holder(data)) is not None:
            self.call(chosen[0], "ack", [chosen[1]])
            self.oracle.ack(chosen[0], [chosen[1]])

    @rule(data=st.data())
    def ack_all(self, data: st.DataObject) -> None:
        who = self.choose(data)
        ids = [m.id for m in self.oracle.held(who)]
        if ids:
            self.call(who, "ack", ids)
            self.oracle.ack(who, ids)

    @rule(data=st.data(), late=st.booleans(), excused=st.booleans())
    def give_back(self, data: st.DataObject, late: bool, excused: bool) -> None:
        if (chosen := self.holder(data)) is not None:
            delay = BOOK_S if late else 0.0
            self.call(chosen[0], "give_back", chosen[1], delay, excused)
            self.oracle.give_back(chosen[0], chosen[1], delay, excused)

    @rule(data=st.data(), queue=queue, to=queue, how=st.sampled_from(["commit", "commit", "rollback", "fail"]))
    def transact(self, data: st.DataObject, queue: str, to: str, how: str) -> None:
        who = self.choose(data)
        bodies = self.new_bodies(2)
        handed, ids = self.call(who, "transact", queue, to, bodies, how)
        self.oracle.claim(who, queue, 1, [handed] if handed else [])
        if handed is None:
            return
        if how == "commit":
            self.oracle.ack(who, [handed.id])
            self.oracle.put(to, ids, bodies, 0, 0.0)
        else:
            self.oracle.give_back(who, handed.id, 0.0, how == "rollback")

    @rule(data=st.data())
    def kill_message(self, data: st.DataObject) -> None:
        free = sorted(m.id for m in self.oracle.live.values() if m.owner is None)
        if free:
            message = self.oracle.live[data.draw(st.sampled_from(free))]
            who = self.choose(data)
            self.call(who, "kill_message", message.queue, message.id)
            self.oracle.kill_message(who, message.queue, message.id)

    @rule(data=st.data(), to=queue)
    def redrive(self, data: st.DataObject, to: str) -> None:
        ids = [m.id for m in self.oracle.ready("a.errors")]
        if ids:
            who = self.choose(data)
            self.call(who, "redrive", "a.errors", to, ids)
            self.oracle.redrive(who, "a.errors", to, ids)

    @rule(seconds=st.sampled_from([1.0, BOOK_S + 1]))
    def advance(self, seconds: float) -> None:
        self.oracle.advance(seconds)
        for who in self.children:
            self.call(who, "shift", int(self.oracle.now * 1e9))

    @precondition(lambda self: len(self.children) < 2)
    @rule()
    def join(self) -> None:
        self.enter(1 if 0 in self.children else 0)

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """SIGKILL; beside a survivor, or of the last one, and then the next open takes over."""
        who = self.choose(data)
        self.children[who].kill()
        self.gone(who)
        self.oracle.die(who)
        if not self.children:
            self.enter(who)
        self.agree()

    def leave(self, who: int) -> None:
        self.call(who, "close")
        self.children[who].finish()
        self.gone(who)
        self.oracle.leave(who)

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        who = self.choose(data)
        self.leave(who)
        if not self.children:
            self.enter(who)
        self.agree()

    @rule(
        data=st.data(),
        point=st.sampled_from(
            ["append.stamped", "append.copied", "append.published", "append.applying", "append.applied"]
        ),
        action=st.sampled_from(["put", "ack", "give_back"]),
    )
    def die_inside(self, data: st.DataObject, point: str, action: str) -> None:
        """Killed in the middle of a commit: it happened or it did not."""
        who = self.choose(data)
        held = self.oracle.held(who)
        if action != "put" and not held:
            return
        bodies = self.new_bodies(3)
        arguments: Sequence[Any] = ("a", bodies, 0, 0.0)
        if action == "ack":
            arguments = ([m.id for m in held],)
        elif action == "give_back":
            arguments = (held[0].id, 0.0, False)
        self.call(who, "arm", point)
        with pytest.raises(Died):
            self.call(who, action, *arguments)
        self.gone(who)
        alone = not self.children
        if alone:
            self.enter(who)
        witness = next(iter(self.children))
        seen = self.call(witness, "bodies")
        happened = point not in ("append.stamped", "append.copied")
        if action == "put":
            ids = sorted(set(seen) - set(self.oracle.live))
            assert bool(ids) or not happened
            assert not ids or happened or (alone and point == "append.copied")
            if ids:
                self.oracle.put("a", ids, bodies, 0, 0.0)
        elif action == "ack":
            left = {m.id for m in held} & set(seen)
            assert left in (set(), {m.id for m in held})
            assert not (happened and left)
            if not left:
                self.oracle.ack(who, [m.id for m in held])
        elif happened:
            self.oracle.give_back(who, held[0].id, 0.0, False)
        elif alone and point == "append.copied":
            # Whether the return counts shows in nothing but the attempts: take the log's word.
            self.oracle.give_back(who, held[0].id, 0.0, False)
        self.oracle.die(who)
        self.agree()
        if not alone:
            # What was copied and never published still follows the log, and an open would accept it: the
            # outcome stays unknown until somebody appends.
            bodies = self.new_bodies(1)
            self.oracle.put("b", self.call(witness, "put", "b", bodies, 0, 0.0), bodies, 0, 0.0)

    @invariant()
    def same_sizes(self) -> None:
        for who in self.children:
            assert self.call(who, "sizes") == self.oracle.sizes()


Machine.TestCase.settings = hypothesis.settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
TestOracle = Machine.TestCase
