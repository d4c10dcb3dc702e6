"""Kills beside holders, commits and deaths: the holder's next call, races, kills of the killer."""

from __future__ import annotations

import pathlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota._core import platform
from tests.crash.kit import Child, Died, Link
from tests.crash.test_kill import OPTIONS, World

# --- the holder ------------------------------------------------------------------------------------------------------

NEXT_CALLS: dict[str, Callable[[World, rota.Transaction], Any]] = {
    "get": lambda w, t: t.get(w.queue),
    "get_many": lambda w, t: t.get_many(w.queue, 1),
    "put": lambda w, t: t.put(w.queue, b"x"),
    "put_many": lambda w, t: t.put_many(w.queue, [b"x"]),
    "savepoint": lambda w, t: t.savepoint(),
    "rollback": lambda w, t: t.rollback(),
    "commit": lambda w, t: t.commit(),
    "leaving the block": lambda w, t: t.__exit__(None, None, None),
}


def kill_from_outside(link: Link, path: pathlib.Path) -> None:
    with rota.open(path, **OPTIONS) as repo:
        while (identity := link.receive()) is not None:
            link.send(repo.queue("q").kill(identity))


@pytest.mark.parametrize("how", ["get", "get_many", "ack"])
@pytest.mark.parametrize("call", NEXT_CALLS)
def test_the_next_call_of_a_transaction_raises_killed(directory: pathlib.Path, call: str, how: str) -> None:
    """Row 3: T aborted, the element deleted; its other messages are back, their attempts unchanged."""
    world = World(directory / "r")
    with world.repo as repo, Child(kill_from_outside, directory / "r") as killer:
        victim = world.put()
        t = repo.transaction()
        if how == "get":
            assert t.get(world.queue).id == victim
            assert t.get(world.queue).body == b"before"
        elif how == "get_many":
            assert len(t.get_many(world.queue, 2)) == 2
        else:
            t.ack(world.get())
            t.get(world.queue)
        t.put(repo.queue("answers"), b"answer")
        killer.send(victim)
        assert killer.receive() is True
        with pytest.raises(rota.Killed) as caught:
            NEXT_CALLS[call](world, t)
        assert caught.value.id == victim
        with pytest.raises(rota.StateError):
            t.put(world.queue, b"too late")
        assert {message.body: message.attempts for message in world.queue.get_many(9)} == {b"before": 1, b"after": 1}
        assert len(repo.queue("answers")) == 0
        assert world.queue.stats().claimed == 2
        killer.send(None)
        killer.finish()


HOLDERS_CALLS: dict[str, Callable[[rota.Message], Any]] = {
    "ack": lambda m: m.ack(),
    "nack": lambda m: m.nack(),
    "release": lambda m: m.release(),
    "extend": lambda m: m.extend(5),
    "queue.ack": lambda m: m.queue.ack([m]),
}


@pytest.mark.parametrize("call", HOLDERS_CALLS)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "in a batch"])
def test_the_next_call_of_a_holder_raises_killed(directory: pathlib.Path, call: str, beside: bool) -> None:
    world = World(directory / "r")
    with world.repo:
        batch = world.queue.get_many(2) if beside else None
        message = batch[1] if batch is not None else world.queue.get()
        _ = message.body
        assert world.queue.kill(message.id)
        assert world.queue.stats().claimed == (1 if beside else 0)
        with pytest.raises(rota.Killed) as caught:
            HOLDERS_CALLS[call](message)
        assert caught.value.id == message.id
        if batch is not None:
            batch[0].ack()
        assert world.queue.stats().claimed == 0


def test_a_body_that_was_not_looked_at_is_killed_too(directory: pathlib.Path) -> None:
    world = World(directory / "r")
    with world.repo:
        batch = world.queue.get_many(2)
        first, second = batch
        assert world.queue.kill(first.id)
        with pytest.raises(rota.Killed):
            _ = first.body
        assert second.body == b"after"
        second.ack()
        assert (len(world.queue), world.queue.stats().claimed) == (0, 0)


def test_a_batch_settles_the_rest(directory: pathlib.Path) -> None:
    world = World(directory / "r")
    with world.repo:
        batch = world.queue.get_many(2)
        assert world.queue.kill(world.others[0])
        batch.ack()
        assert (len(world.queue), world.queue.stats().claimed) == (0, 0)


# --- a kill and a commit at one time ---------------------------------------------------------------------------------


def commit_slowly(link: Link, path: pathlib.Path) -> None:
    """Take a message in a transaction; its commit record is there before its sync is."""
    with rota.open(path, **{**OPTIONS, "durability": "sync"}) as repo:
        t = repo.transaction()
        identity = t.get(repo.queue("q")).id
        platform.arm("sync.before", "pause")
        thread = threading.Thread(target=t.commit)
        thread.start()
        while repo.stats().commits == link_commits(repo):
            pass
        link.send(identity)
        link.receive()
        platform.arm("sync.before", "off")
        thread.join()
        link.send("committed")


def link_commits(repo: rota.Repository) -> int:
    """Commits while the message of the transaction still lives."""
    return repo.stats().commits if len(repo.queue("q")) == 2 else -1


def test_past_its_commit_record_the_kill_waits_and_says_false(directory: pathlib.Path) -> None:
    world = World(directory / "r")
    with world.repo as repo, Child(commit_slowly, directory / "r") as child:
        repo.sync()
        identity = child.receive()
        said: list[bool] = []
        killer = threading.Thread(target=lambda: said.append(world.queue.kill(identity)))
        killer.start()
        child.send("go on")
        killer.join(20)
        assert said == [False]
        assert repo.stats().durable_lsn > 0
        assert child.receive() == "committed"
        child.finish()


def race(link: Link, path: pathlib.Path, what: str) -> None:
    """Get or kill every message, and tell which."""
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q")
        link.send("ready")
        link.receive()
        for identity in range(1, 401):
            if what == "kill":
                try:
                    if queue.kill(identity):
                        link.send(("killed", identity))
                except rota.NotFound:
                    continue
            else:
                try:
                    with repo.transaction() as t:
                        message = t.get(queue)
                        t.put(repo.queue("done"), b"%d" % message.id)
                    link.send(("done", message.id))
                except (rota.Killed, rota.Empty):
                    continue


def test_each_message_is_processed_or_killed_and_never_both(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **OPTIONS) as repo:
        queue = repo.queue("q")
        assert list(queue.put_many([b"x"] * 400).ids) == list(range(1, 401))
        with Child(race, directory / "r", "kill") as killer, Child(race, directory / "r", "get") as getter:
            for child in (killer, getter):
                assert child.receive() == "ready"
            killer.send("go")
            getter.send("go")
            told: dict[str, set[int]] = {"killed": set(), "done": set()}
            for child in (killer, getter):
                try:
                    while True:
                        kind, identity = child.receive()
                        told[kind].add(identity)
                except Died:
                    assert child.wait() == 0
        assert told["killed"] & told["done"] == set()
        assert {int(body) for body in repo.queue("done").get_many(1000).bodies} == told["done"]
        assert told["killed"] | told["done"] | set(queue.ids(0, 1000)) == set(range(1, 401))


# --- in a transaction ------------------------------------------------------------------------------------------------


def test_a_pending_put_is_undone(directory: pathlib.Path) -> None:
    """Row 2: enqueued by the caller's own open transaction."""
    world = World(directory / "r")
    with world.repo as repo:
        with repo.transaction() as t:
            gone, kept = t.put_many(world.queue, [b"1", b"2"]), t.put(world.queue, b"3")
            assert t.kill(gone) is True
            with t.savepoint() as point:
                assert t.kill(kept) is True
                point.rollback()
        assert gone.id is None and kept.id is not None
        assert [message.body for message in world.queue.browse()] == [b"before", b"after", b"3"]
        with repo.transaction() as u, pytest.raises(rota.StateError):
            u.kill(kept)


def test_a_kill_and_its_answer_are_one_commit(directory: pathlib.Path) -> None:
    """The trap of SEMANTICS 3.10: the cancelled reply is put with the kill, or neither happens."""
    world = World(directory / "r")
    with world.repo as repo:
        replies = repo.queue("replies")
        victim = world.put()
        holder = repo.transaction()
        holder.get(world.queue)
        with repo.transaction() as t:
            assert t.kill(world.queue, victim) is True
            t.put(replies, b"cancelled")
        with pytest.raises(rota.Killed):
            holder.commit()
        assert (len(replies), victim in world.queue.ids()) == (1, False)
        with repo.transaction() as t:
            assert t.kill(world.queue, victim) is False  # this commit kills nothing
            with pytest.raises(rota.NotFound):
                t.kill(world.queue, 1 << 50)
        assert world.queue.kill(victim) is True
        assert world.queue.stats().killed == 1


def test_a_kill_that_comes_too_late_refuses_the_commit(directory: pathlib.Path) -> None:
    world = World(directory / "r")
    with world.repo as repo:
        replies = repo.queue("replies")
        victim = world.put()
        t = repo.transaction()
        assert t.kill(world.queue, victim)
        t.put(replies, b"cancelled")
        world.get().ack()
        with pytest.raises(rota.Conflict) as caught:
            t.commit()
        assert caught.value.id == victim
        assert len(replies) == 0
        with repo.transaction() as t:
            held = t.get(world.queue)
            with pytest.raises(rota.StateError, match="holds"):
                t.kill(world.queue, held.id)


# --- the killer is killed --------------------------------------------------------------------------------------------


def kill_until_killed(link: Link, path: pathlib.Path, failpoint: str, nth: int) -> None:
    platform.arm_from(f"{failpoint}=kill@{nth}")
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q")
        for identity in range(1, 31):
            link.send(("begin", identity))
            assert queue.kill(identity)
            link.send(("end", identity))


POINTS = [
    *("kill.located", "kill.applied", "append.admitted", "append.copied", "append.published", "append.applying"),
    *("append.applied", "sync.before", "sync.after"),
]


@pytest.mark.parametrize("beside", [True, False], ids=["beside a survivor", "alone"])
@pytest.mark.parametrize("nth", [1, 12])
@pytest.mark.parametrize("point", POINTS)
def test_a_killer_that_is_killed(directory: pathlib.Path, point: str, nth: int, beside: bool) -> None:
    """What it confirmed is gone, what it did not begin is there, counts agree, claims of the killed are right."""
    path = directory / "r"
    repo = rota.open(path, **OPTIONS)
    queue = repo.queue("q")
    queue.put_many([b"x"] * 30)
    batch = queue.get_many(20) if beside else None
    repo.sync()
    if not beside:
        repo.close()
    confirmed: set[int] = set()
    begun: set[int] = set()
    with Child(kill_until_killed, path, point, nth) as child:
        try:
            while True:
                kind, identity = child.receive()
                (begun if kind == "begin" else confirmed).add(identity)
        except Died:
            assert child.wait() == -signal.SIGKILL
    if not beside:
        repo = rota.open(path, **OPTIONS)
        queue = repo.queue("q")
    with repo:
        left = set(queue.ids(0, 100))
        assert left & confirmed == set()
        assert left >= set(range(1, 31)) - begun
        assert len(queue) == len(left)
        assert all(queue.kill(identity) is True for identity in set(range(1, 31)) - left)
        if batch is not None:
            assert queue.stats().claimed == len(left & set(range(1, 21)))
            batch.ack()
            assert set(queue.ids(0, 100)) == left - set(range(1, 21))
            assert queue.stats().claimed == 0
