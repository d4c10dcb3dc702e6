"""Faults reported of neighbouring systems: stuck consumers, leases, odd payloads, processes, clocks."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import rota
from rota._core import platform
from tests.crash.kit import Child, Link, drain

OPTIONS: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}
DAY_NS = 86_400 * 10**9


def put_and_exit(link: Link, path: pathlib.Path, bodies: list[bytes], how: str) -> None:
    """Put, then end without a close."""
    queue = rota.open(path, **OPTIONS).queue("q")
    for body in bodies:
        queue.put(body)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


def put_in_child(path: pathlib.Path, bodies: list[bytes], how: str = "kill") -> None:
    with Child(put_and_exit, path, bodies, how) as child:
        child.wait()


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", **OPTIONS) as opened:
        yield opened


# --- stuck consumers -------------------------------------------------------------------------------------------------

IN_ANOTHER_NAMESPACE = """
import sys, rota
try:
    rota.open(sys.argv[1])
except rota.ForeignFiles as error:
    print("refused:", error)
"""


def test_c40_another_pid_namespace_is_refused(directory: pathlib.Path) -> None:
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", IN_ANOTHER_NAMESPACE, str(directory / "r")]
    if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces are not to be had here")
    with rota.open(directory / "r", **OPTIONS) as repo:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout.startswith("refused:"), done.stderr
        repo.queue("q").put(b"x")


def test_c41_kills_at_random_points_under_the_lock(directory: pathlib.Path, seed: int) -> None:
    """The lock is taken over each time, by one who lives, at once."""
    chance = random.Random(seed)
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q", max_attempts=None)
        for number in range(60):
            point = chance.choice(
                ["lock.acquired", "append.copied", "append.published", "append.applying", "claim.cursor"]
            )
            with Child(works_until, path, point, chance.randrange(1, 60)) as child:
                child.wait()
            begun = time.monotonic()
            receipt = queue.put(b"%d" % number, priority=9)
            message = queue.get(timeout=1)
            assert message.id == receipt.id
            message.ack()
            assert time.monotonic() - begun < 1
        drain(queue)
        assert repo.stats().owner_deaths > 20


def works_until(link: Link, path: pathlib.Path, point: str, nth: int) -> None:
    queue = rota.open(path, **OPTIONS).queue("q")
    platform.arm(point, "kill", nth)
    for i in range(100):
        queue.put(b"w%d" % i)
        with queue.get() as message:
            assert message.body


def test_c45_a_lease_ends_although_its_holder_lives(repo: rota.Repository) -> None:
    queue = repo.queue("q", lease=0.1)
    queue.put(b"x")
    held = queue.get()
    again = queue.get(timeout=5)
    assert (again.id, again.attempts) == (held.id, 2)
    with pytest.raises(rota.LeaseLost):
        held.ack()
    again.ack()


def test_c48_a_dead_holder_gives_back_at_once_and_delays_fire_on_time(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **OPTIONS) as repo:
        queue = repo.queue("q", lease=3600)
        queue.put(b"held")
        with Child(holds, directory / "r") as child:
            child.receive()
            child.kill()
        begun = time.monotonic()
        assert queue.get(timeout=5).attempts == 2
        assert time.monotonic() - begun < 1
        begun = time.monotonic()
        queue.put(b"late", delay=0.3)
        assert queue.get(timeout=5).body == b"late"
        assert 0.29 < time.monotonic() - begun < 0.6


def holds(link: Link, path: pathlib.Path) -> None:
    repo = rota.open(path, **OPTIONS)
    link.send(repo.queue("q").get().body)
    signal.pause()


def test_c49_a_quick_failure_comes_again_at_once(directory: pathlib.Path) -> None:
    """nack: another consumer, who waits already, has it in milliseconds; release leaves the count alone."""
    with rota.open(directory / "r", **OPTIONS) as repo:
        queue = repo.queue("q", lease=3600)
        queue.put(b"x")
        message = queue.get()
        with Child(takes_one, directory / "r") as child:
            child.receive()
            begun = time.monotonic()
            message.nack()
            assert child.receive() - begun < 0.1
            child.finish()
        queue.put(b"y")
        queue.get().release()
        assert queue.get().attempts == 1


def takes_one(link: Link, path: pathlib.Path) -> None:
    with rota.open(path, **OPTIONS) as repo:
        link.send("ready")
        message = repo.queue("q").get(timeout=10)
        link.send(time.monotonic())
        message.ack()


def test_c50_a_delay_longer_than_the_lease_makes_no_copies(repo: rota.Repository) -> None:
    queue = repo.queue("q", lease=0.05)
    queue.put(b"x", delay=0.5)
    queue.put(b"y")
    queue.get().nack(delay=0.5)
    found = [queue.get(timeout=5) for _ in range(2)]
    assert sorted((m.body, m.attempts) for m in found) == [(b"x", 1), (b"y", 2)]
    for message in found:
        message.ack()
    with pytest.raises(rota.Empty):
        queue.get(timeout=0.3)


def test_c51_showing_restarts_the_lease_and_a_late_ack_changes_nothing(repo: rota.Repository) -> None:
    queue = repo.queue("q", lease=0.3)
    queue.put_many([b"%d" % i for i in range(10)])
    stop = threading.Event()
    for message in queue.get_many(10):
        assert message.body
        stop.wait(0.09)
        message.ack()
    assert len(queue) == 0
    queue.put(b"late")
    late = queue.get()
    other = queue.get(timeout=5)
    with pytest.raises(rota.LeaseLost):
        late.ack()
    assert (queue.stats().claimed, len(queue)) == (1, 1)
    other.ack()


# --- odd payloads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [b"\xff\x00", b"", "ä\0", "\ud800", "k" * 200])
def test_c64_odd_keys_go_round_or_are_refused(repo: rota.Repository, key: Any) -> None:
    queue = repo.queue("q")
    try:
        queue.put(b"x", key=key, headers={"h\xff": b"\xff\0", "n": -(2**63), "f": 1.5, "t": True})
    except ValueError:
        assert len(queue) == 0
        return
    message = queue.get()
    assert message.key == key
    assert message.headers == {"h\xff": b"\xff\0", "n": -(2**63), "f": 1.5, "t": True}
    repr(message)


def test_c65_empty_bodies_are_messages(directory: pathlib.Path) -> None:
    path = directory / "r"
    put_in_child(path, [b""] * 3)
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q")
        queue.put_many([b"", b"x", b""])
        assert drain(queue) == [b"", b"", b"", b"", b"x", b""]
        for _ in range(2000):
            queue.put(b"")
        assert drain(queue) == [b""] * 2000


def test_c66_sizes_at_the_borders_are_stored_or_refused_before_a_byte(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    limit = 64 * 1024 // 4
    for size in (
        0,
        1,
        7,
        8,
        9,
        31,
        32,
        33,
        4095,
        4096,
        4097,
        limit - 161,
        limit - 160,
        limit - 159,
        limit,
        limit + 1,
        1 << 20,
    ):
        tail = repo.stats().tail_lsn
        body = random.Random(size).randbytes(size)
        try:
            queue.put(body)
        except rota.MessageTooLarge:
            assert size > limit - 200
            assert repo.stats().tail_lsn == tail
            continue
        assert queue.get().body == body
        drain(queue) if not len(queue) else queue.purge()
    repo.queue("other").put(b"still good")


# --- processes -------------------------------------------------------------------------------------------------------


def test_c68_thirty_two_processes_at_once(directory: pathlib.Path) -> None:
    path = directory / "r"
    with rota.open(path, capacity="16 MiB", durability="none") as repo:
        repo.queue("q", max_attempts=None)
        children = [Child(mixed, path, number) for number in range(32)]
        try:
            taken: list[bytes] = []
            for child in children:
                taken += child.receive(60)
                child.finish()
        finally:
            for child in children:
                child.__exit__()
        taken += drain(repo.queue("q"))
        assert sorted(taken) == sorted(b"%d-%d" % (n, i) for n in range(32) for i in range(60))


def mixed(link: Link, path: pathlib.Path, number: int) -> None:
    with rota.open(path, capacity="16 MiB", durability="none") as repo:
        queue = repo.queue("q")
        taken = []
        for i in range(60):
            queue.put(b"%d-%d" % (number, i))
            if i % 3 == 0:
                for message in queue.get_many(3):
                    body = message.body
                    message.ack()
                    taken.append(body)
        link.send(taken)


def test_c71_a_wait_lets_other_threads_run(repo: rota.Repository) -> None:
    """A get on an empty queue, a put on a full one: neither keeps the GIL."""
    queue, full = repo.queue("q"), repo.queue("full", max_messages=1)
    full.put(b"x")
    done: list[object] = []
    threads = [
        threading.Thread(target=lambda: done.append(queue.get(timeout=10))),
        threading.Thread(target=lambda: done.append(full.put(b"y", timeout=10))),
    ]
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    count = 0
    while time.monotonic() - begun < 0.3:
        count += 1
    assert count > 1000
    queue.put(b"z")
    full.get().ack()
    for thread in threads:
        thread.join()
    assert len(done) == 2


def test_c74_a_handler_that_raises_is_no_ack(directory: pathlib.Path) -> None:
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q")
        queue.put_many([b"1", b"2"])
        with pytest.raises(ZeroDivisionError), queue.get():
            raise ZeroDivisionError
        transaction = repo.transaction()
        transaction.get(queue)
        with pytest.raises(ZeroDivisionError), transaction:
            raise ZeroDivisionError
    with rota.open(path, **OPTIONS) as repo:
        assert [(m.body, m.attempts) for m in repo.queue("q").get_many(5)] == [(b"1", 3), (b"2", 1)]


# --- clocks ----------------------------------------------------------------------------------------------------------


def test_c84_jumps_of_the_wall_clock_touch_no_lease_and_no_wait(repo: rota.Repository) -> None:
    try:
        queue = repo.queue("q", lease=3600)
        queue.put(b"held")
        held = queue.get()
        for shift in (DAY_NS, -DAY_NS, 0):
            platform.shift_clock(wall_ns=shift)
            begun = time.monotonic()
            with pytest.raises(rota.Empty):
                queue.get(timeout=0.1)
            assert time.monotonic() - begun < 1
            queue.put(b"late", delay=0.05)
            message = queue.get(timeout=5)
            assert message.body == b"late"
            message.ack()
        held.ack()
    finally:
        platform.shift_clock()


def test_c85_another_boot_voids_claims_and_keeps_counts(directory: pathlib.Path) -> None:
    """What lay in the claims file means nothing after a boot; counts that were logged stay."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q").put_many([b"nacked", b"held"])
        repo.queue("q").get().nack()
    with Child(holds_all, path) as child:
        child.receive()
        child.kill()
    control = bytearray((path / "control").read_bytes())
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    offset = control.find(bytes.fromhex(boot))
    assert 0 < offset < 4096
    control[offset : offset + 16] = bytes(16)
    (path / "control").write_bytes(control)
    with rota.open(path, **OPTIONS) as repo:
        assert {m.body: m.attempts for m in repo.queue("q").get_many(5)} == {b"nacked": 2, b"held": 1}


def holds_all(link: Link, path: pathlib.Path) -> None:
    repo = rota.open(path, **OPTIONS)
    link.send(repo.queue("q").get_many(5).bodies)
    signal.pause()
