"""The scenarios that break a lesser log, each in the real thing: F1 to F11."""

from __future__ import annotations

import itertools
import os
import pathlib
import shutil
import signal
import threading
from typing import Any

import pytest

import rota
from rota._core import platform
from tests.crash.kit import Child, Link, drain

OPTIONS: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}
DAY_NS = 86_400 * 10**9
REAP_POINTS = ("reap.verdict", "reap.committed", "reap.freed")


def churn(queue: rota.Queue, total: int, size: int = 2000) -> None:
    """Put and ack so many bytes."""
    for number in range(total // size):
        queue.put(b"%08d" % number + b"c" * size)
        queue.get(timeout=0).ack()


def die(link: Link, path: pathlib.Path, work: str) -> None:
    """Do the work, then SIGKILL."""
    repo = rota.open(path, **OPTIONS)
    queue = repo.queue("q")
    if work == "churn":
        churn(queue, 3 << 20)
    elif work == "put":
        ids = list(queue.put_many([b"seen"] * 100).ids)
        link.send(ids)
    elif work == "hold":
        link.send(queue.get().body)
    os.kill(os.getpid(), signal.SIGKILL)


def test_f1_an_ack_outlives_the_segment_it_was_written_in(directory: pathlib.Path) -> None:
    """Old messages live while the segments with the acks of others are used again: none of those comes back."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        old, queue = repo.queue("old"), repo.queue("q")
        old.put_many([b"old %d" % i for i in range(20)])
        for message in old.get_many(10):
            message.ack()
        churn(queue, 3 << 20)
    with Child(die, path, "churn") as child:
        child.wait()
    with rota.open(path, **OPTIONS) as repo:
        assert drain(repo.queue("old")) == [b"old %d" % i for i in range(10, 20)]
        assert drain(repo.queue("q")) == []


def test_f2_a_call_that_appends_nothing_is_durable_too(directory: pathlib.Path) -> None:
    """A repeated ack at level sync acknowledges what the first one, at level none, may still lose."""
    with rota.open(directory / "r", **OPTIONS) as repo:
        queue = repo.queue("q")

        def is_durable() -> bool:
            stats = repo.stats()
            return stats.durable_lsn >= stats.tail_lsn

        for settle in ("message", "queue", "batch", "transaction", "nothing put", "kill"):
            queue.put_many([b"1", b"2"])
            batch = queue.get_many(2)
            batch.ack(durability="none")
            single = queue.put(b"3")
            message = queue.get()
            message.ack(durability="none")
            assert not single.durable
            if settle == "message":
                message.ack(durability="sync")
            elif settle == "queue":
                queue.ack([message], durability="sync")
            elif settle == "batch":
                batch.ack(durability="sync")
            elif settle == "transaction":
                repo.transaction(durability="sync").commit()
            elif settle == "nothing put":
                assert queue.put_many([], durability="sync").durable
            else:
                assert queue.kill(message.id) is False  # it was acked before
                continue
            assert is_durable(), settle


def test_f3_a_body_that_changes_meanwhile_is_not_corruption(directory: pathlib.Path) -> None:
    """Another thread writes to the buffer during the put; whatever was taken, its checksum fits."""
    with rota.open(directory / "r", capacity="64 MiB", durability="none") as repo:
        queue = repo.queue("q")
        body = bytearray(100_000)
        stop = threading.Event()

        def scribble() -> None:
            for value in itertools.cycle(range(256)):
                if stop.is_set():
                    return
                body[:] = bytes([value]) * len(body)

        thread = threading.Thread(target=scribble)
        thread.start()
        try:
            for _ in range(60):
                queue.put(body)
                queue.put_many([memoryview(body)])
        finally:
            stop.set()
            thread.join()
        assert len(drain(queue)) == 120


def test_f4_ids_seen_before_a_power_cut_do_not_come_again(directory: pathlib.Path) -> None:
    """The log is set back to what was synced; what was put at level none and seen is gone, its ids stay used."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q").put(b"x")
        shutil.copytree(path, directory / "disk")  # as it is: nothing below was synced
        seen = list(repo.queue("q").put_many([b"seen"] * 100).ids)
    for name in ("control", "claims"):
        (directory / "disk" / name).unlink()
    with rota.open(directory / "disk", **OPTIONS) as repo:
        assert b"seen" not in drain(repo.queue("q"))
        assert repo.queue("q").put(b"new").id > max(seen)


def test_f5_after_a_failed_sync_the_disk_is_read_and_not_the_cache(directory: pathlib.Path) -> None:
    """The next open drops the caches, reads past them, and goes on in fresh files."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q").put(b"durable", durability="sync")
    repo = rota.open(path, **OPTIONS)
    platform.inject("sync", 0, 5)
    with pytest.raises(rota.OutcomeUnknown):
        repo.queue("q").put(b"unknown", durability="sync")
    platform.injections_clear()
    repo.close()
    before = {file.name: file.stat().st_ino for file in path.glob("seg.*")}
    counted = platform.call_counts()["drop_cache"]
    with rota.open(path, **OPTIONS) as repo:
        assert platform.call_counts()["drop_cache"] > counted
        assert b"durable" in drain(repo.queue("q"))
    aside = list(path.glob("seg.*.failed"))
    assert aside
    assert {file.stat().st_ino for file in aside} <= set(before.values())
    platform.injections_clear()


def test_f6_a_death_inside_a_large_change_leaves_the_pool_whole(directory: pathlib.Path) -> None:
    """Chunks are taken and given back under the lock; killed among them, nobody finds one twice or none."""
    path = directory / "r"
    options = {**OPTIONS, "capacity": "64 MiB"}
    with rota.open(path, **options) as repo:
        queue = repo.queue("q")
        for point, count in itertools.product(("append.applying", "append.published"), (300, 3000)):
            receipt = queue.put_many([b"%d" % i for i in range(count)])
            with Child(large_change, path, options, point) as child:
                assert child.wait() == -signal.SIGKILL
            left = drain(queue)
            assert len(left) in (0, count, 2 * count)
            assert len(left) == count, "acked by the log, though its owner died, and put by it"
            assert queue.put(b"x").id > receipt.ids[-1]
            drain(queue)


def large_change(link: Link, path: pathlib.Path, options: dict[str, Any], point: str) -> None:
    """One commit that settles everything and puts as much."""
    repo = rota.open(path, **options)
    queue = repo.queue("q")
    with repo.transaction() as t:
        batch = t.get_many(queue, 10_000)
        t.put_many(queue, [b"new %d" % i for i in range(len(batch))])
        platform.arm(point, "kill")


@pytest.mark.parametrize("points", [*itertools.product(REAP_POINTS, repeat=2)])
def test_f7_a_reap_that_dies_is_finished_by_the_next(directory: pathlib.Path, points: tuple[str, str]) -> None:
    """Two reapers die inside; the hand-out of the first dead is counted once."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q").put_many([b"shown", b"another"])
    with Child(waits_then_drains, path) as last:
        assert last.receive() == "open"
        last.signal(signal.SIGSTOP)
        with Child(die, path, "hold") as child:
            assert child.receive() == b"shown"
            child.wait()
        for point in points:
            with Child(reaps, path, point) as child:
                child.wait()
        last.signal(signal.SIGCONT)
        last.send("go")
        assert sorted(last.receive()) == [(b"another", 1), (b"shown", 2)]
        last.finish()


def reaps(link: Link, path: pathlib.Path, point: str) -> None:
    platform.arm(point, "kill")
    repo = rota.open(path, **OPTIONS)
    try:
        repo.queue("none").get(timeout=0.5)
    except rota.Empty:
        repo.close()


def waits_then_drains(link: Link, path: pathlib.Path) -> None:
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q")
        link.send("open")
        link.receive()
        found = []
        while len(queue):
            for message in queue.get_many(10, timeout=1):
                found.append((message.body, message.attempts))
                message.ack()
        link.send(found)


def holds_several(link: Link, path: pathlib.Path) -> None:
    repo = rota.open(path, **OPTIONS)
    queue = repo.queue("q")
    message = queue.get()
    batch = queue.get_many(3)
    link.send([message.body, batch[0].body])
    os.kill(os.getpid(), signal.SIGKILL)


def test_f8_of_several_shown_none_is_charged_and_each_is_tried_alone(directory: pathlib.Path) -> None:
    """Also when they came by different calls; a suspect goes only to who holds nothing, and then nothing else."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q")
        queue.put_many([b"1", b"2", b"3", b"4", b"5"])
        with Child(holds_several, path) as child:
            assert child.receive() == [b"1", b"2"]
            child.wait()
        first = queue.get_many(5, timeout=2)
        while not len(first):
            first = queue.get_many(5, timeout=2)
        if first[0].body == b"5":  # what nobody held came before the dead was found
            first.ack()
            first = queue.get_many(5, timeout=2)
        assert [(m.body, m.attempts) for m in first] == [(b"1", 1)]
        with pytest.raises(rota.Empty):
            queue.get(timeout=0)
        first.ack()
        second = queue.get_many(5)
        assert [(m.body, m.attempts) for m in second] == [(b"2", 1)]
        second.ack()
        assert {b"3", b"4"} <= {m.body for m in queue.get_many(5)}


@pytest.mark.parametrize("point", ["recovery.cut", "recovery.rebuilt", "recovery.synced", "recovery.epoch"])
def test_f9_an_answer_is_given_only_after_the_cut_is_durable(directory: pathlib.Path, point: str) -> None:
    """The open that is killed before its epoch stands changes nothing; a bad sector may be good at the next."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q").put(b"first")
    with Child(die, path, "put") as child:
        child.receive()
        child.wait()
    file, offset = next(
        (f, f.read_bytes().find(b"seen")) for f in sorted(path.glob("seg.*")) if b"seen" in f.read_bytes()
    )
    good = file.read_bytes()
    file.write_bytes(good[:offset] + b"torn" + good[offset + 4 :])
    with Child(opens, path, point) as child:
        assert child.wait() == -signal.SIGKILL
    cut = point == "recovery.epoch"
    file.write_bytes(good)
    with rota.open(path, **OPTIONS) as repo:
        assert drain(repo.queue("q")) == [b"first", *([] if cut else [b"seen"] * 100)]


def opens(link: Link, path: pathlib.Path, point: str) -> None:
    platform.arm(point, "kill")
    rota.open(path, **OPTIONS).close()


def test_f10_files_are_synced_in_the_order_of_the_log(directory: pathlib.Path) -> None:
    """No position is called durable before all files below it are synced."""
    events: list[tuple[Any, ...]] = []
    names: dict[int, str] = {}

    def note(event: str, file: int, *rest: Any) -> None:
        if event == "open":
            names[file] = rest[0]
        elif event == "synced":
            events.append((names.get(file),))

    platform.record(note)
    try:
        with rota.open(directory / "r", **OPTIONS) as repo:
            queue = repo.queue("q")
            for _ in range(12):
                for i in range(40):
                    queue.put(b"%d" % i + b"f" * 3000)
                begun = len(events)
                repo.sync()
                order = [
                    name for (name,) in events[begun:] if name and name.startswith("seg.") and not name.endswith(".new")
                ]
                firsts = [int.from_bytes((directory / "r" / name).read_bytes()[40:48], "little") for name in order]
                assert len(set(order)) == len(order) or order == sorted(order, key=order.index)
                assert firsts == sorted(firsts) or len(firsts) < 2
                drain(queue)
    finally:
        platform.record(None)
    assert events


def test_f11_a_batch_never_shows_the_body_of_another(directory: pathlib.Path) -> None:
    """Its lease ends unseen, its messages are worked off by others, its segments are used again."""
    with rota.open(directory / "r", **OPTIONS) as repo:
        queue = repo.queue("q", lease=0.15)
        queue.put_many([b"mine %d" % i for i in range(20)])
        lazy = queue.get_many(20)
        others: list[bytes] = []
        while len(others) < 20:
            batch = queue.get_many(20, timeout=2)
            others.extend(batch.bodies)
            batch.ack()
        churn(queue, 3 << 20)
        queue.put_many([b"stranger"] * 50)
        with pytest.raises(rota.LeaseLost):
            lazy.bodies  # noqa: B018
        for index in range(20):
            with pytest.raises((rota.LeaseLost, IndexError)):
                lazy[index].body  # noqa: B018
        with pytest.raises(rota.LeaseLost):
            lazy.ack()
