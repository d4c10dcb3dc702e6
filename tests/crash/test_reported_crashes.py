"""Faults reported of neighbouring systems: crash, power loss, corruption."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import signal
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


# --- crash, power loss, corruption -----------------------------------------------------------------------------------


def test_c04_an_old_reader_crosses_borders_and_gaps(directory: pathlib.Path) -> None:
    """It stays open while others write, die, wait a day and write again."""
    try:
        with rota.open(directory / "r", **OPTIONS) as repo:
            queue = repo.queue("q")
            seen = []
            for day in range(4):
                platform.shift_clock(wall_ns=day * DAY_NS, boot_ns=day * DAY_NS)
                bodies = [b"%d-%d" % (day, i) + b"." * 9000 for i in range(12)]
                put_in_child(directory / "r", bodies)
                seen += drain(queue)
            assert [body.rstrip(b".") for body in seen] == [b"%d-%d" % (d, i) for d in range(4) for i in range(12)]
    finally:
        platform.shift_clock()


@pytest.mark.parametrize("filler", [b"\0", b"\xff"])
def test_c06_zeros_behind_the_last_sync_are_a_torn_end(directory: pathlib.Path, filler: bytes) -> None:
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q").put(b"synced", durability="sync")
    put_in_child(path, [b"unsynced %d" % i for i in range(50)])
    for file in path.glob("seg.*"):
        data = file.read_bytes()
        offset = data.find(b"unsynced 0")
        if offset >= 0:
            file.write_bytes(data[:offset] + filler * (len(data) - offset))
    with rota.open(path, **OPTIONS) as repo:
        assert repo.recovery.torn_bytes > 0
        assert drain(repo.queue("q")) == [b"synced"]


def test_c07_an_exit_without_close_loses_nothing(directory: pathlib.Path) -> None:
    bodies = [b"%d" % i for i in range(100)]
    put_in_child(directory / "r", bodies, "exit")
    with rota.open(directory / "r", **OPTIONS) as repo:
        assert drain(repo.queue("q")) == bodies


def test_c11_a_segment_whose_first_page_was_lost_counts_as_never_made(directory: pathlib.Path) -> None:
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q")
        queue.put(b"x", durability="sync")
    before = {file.name for file in path.glob("seg.*")}
    put_in_child(path, [b"y" * 9000] * 8)
    newest = max(file for file in path.glob("seg.*") if file.name not in before and file.read_bytes().strip(b"\0"))
    data = newest.read_bytes()
    newest.write_bytes(b"\0" * 4096 + data[4096:])
    with rota.open(path, **OPTIONS) as repo:
        found = drain(repo.queue("q"))
        assert found[0] == b"x"
        assert set(found[1:]) <= {b"y" * 9000}
        repo.queue("q").put(b"z")


def test_c12_the_second_crash_keeps_what_came_after_the_first(directory: pathlib.Path) -> None:
    bodies = []
    for crash in range(5):
        here = [b"%d-%d" % (crash, i) for i in range(10)]
        put_in_child(directory / "r", here)
        bodies += here
    with rota.open(directory / "r", **OPTIONS) as repo:
        assert drain(repo.queue("q")) == bodies


def test_c16_after_a_wrap_and_a_crash_nothing_unacked_is_overwritten(directory: pathlib.Path) -> None:
    path = directory / "r"
    with Child(wrap_and_die, path) as child:
        expected = child.receive()
        child.wait()
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q")
        more = 0
        with contextlib.suppress(rota.Full):
            while True:
                queue.put(b"more %d" % more + b"." * 3000, timeout=0)
                more += 1
        found = drain(queue)
        assert found[: len(expected)] == expected
        assert len(found) == len(expected) + more


def wrap_and_die(link: Link, path: pathlib.Path) -> None:
    queue = rota.open(path, **OPTIONS).queue("q")
    expected: list[bytes] = []
    for number in range(1200):
        body = b"%d" % number + b"." * 3000
        queue.put(body)
        expected.append(body)
        if len(expected) > 60:
            for message in queue.get_many(30):
                message.ack()
            expected = expected[30:]
    expected = expected[-15:]
    while len(queue) > 15:
        queue.get().ack()
    link.send(expected)
    os.kill(os.getpid(), signal.SIGKILL)


def test_c18_wraps_with_random_sizes_and_kills(directory: pathlib.Path, seed: int) -> None:
    """Short records over longer ones: never are old bytes taken for a header."""
    chance = random.Random(seed)
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q", max_attempts=None)
    for _ in range(25):
        with Child(random_sizes, path, chance.random()) as child:
            live = child.receive()
            child.wait()
        with rota.open(path, **OPTIONS) as repo:
            assert [m.body for m in repo.queue("q").browse()] == live


def random_sizes(link: Link, path: pathlib.Path, seed: float) -> None:
    chance = random.Random(seed)
    repo = rota.open(path, **OPTIONS)
    queue = repo.queue("q", max_attempts=None)
    for _ in range(150):
        queue.put(chance.randbytes(int(2 ** (chance.random() * 13.5))))
        while len(queue) > 12:
            queue.get().ack()
    bodies = [m.body for m in queue.browse()]
    while sum(map(len, bodies)) > 80_000:
        queue.get().ack()
        del bodies[0]
    link.send(bodies)
    os.kill(os.getpid(), signal.SIGKILL)


class Disk:
    """What a power cut leaves: every file as it was when its last sync was over.  The worst a cut can do but one."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.cache: dict[str, bytearray] = {}
        self.durable: dict[str, bytes] = {}
        self.begun: dict[int, tuple[str, bytes]] = {}

    def note(self, event: str, file: int, *rest: Any) -> None:
        if event == "open":
            self.names[file] = rest[0]
        elif event == "rename":
            if rest[0] in self.cache:
                self.cache[rest[1]] = self.cache.pop(rest[0])
            if rest[0] in self.durable:
                self.durable[rest[1]] = self.durable.pop(rest[0])
            self.names.update({fd: rest[1] for fd, name in self.names.items() if name == rest[0]})
        name = self.names.get(file, "")
        if not name.startswith(("seg.", "manifest")):
            return
        data = self.cache.setdefault(name, bytearray())
        if event in ("store", "zero"):
            piece = rest[1] if event == "store" else bytes(rest[1])
            if len(data) < rest[0] + len(piece):
                data.extend(bytes(rest[0] + len(piece) - len(data)))
            data[rest[0] : rest[0] + len(piece)] = piece
        elif event == "truncate":
            del data[rest[0] :]
        elif event == "sync":
            self.begun[file] = (name, bytes(data))
        elif event == "synced":
            self.durable[self.names[file]] = self.begun.pop(file)[1]

    def write(self, path: pathlib.Path) -> None:
        path.mkdir()
        for name, data in self.durable.items():
            (path / name).write_bytes(data)


@pytest.mark.parametrize("level", ["sync", "interval", "none"])
def test_c20_power_loss_takes_no_message_whose_receipt_was_durable(directory: pathlib.Path, level: Any) -> None:
    """C21: at "sync" nothing acknowledged goes, at the other levels what no sync had covered may go."""
    disk = Disk()
    platform.record(disk.note)
    try:
        with rota.open(directory / "r", capacity="1 MiB", durability=level) as repo:
            queue = repo.queue("q")
            durable: list[bytes] = []
            acked: list[bytes] = []
            for number in range(40):
                receipt = queue.put(b"%d" % number + b"p" * 3000)
                if number % 5 == 4:
                    message = queue.get()
                    message.ack(durability="sync")
                    acked.append(message.body)
                if receipt.durable:
                    durable.append(b"%d" % number + b"p" * 3000)
            disk.write(directory / "cut")
    finally:
        platform.record(None)
    with rota.open(directory / "cut", **OPTIONS) as repo:
        found = drain(repo.queue("q"))
        assert set(durable) - set(acked) <= set(found)
        assert not set(acked) & set(found)
        assert level != "sync" or len(durable) == 40
        assert found == sorted(found, key=lambda body: int(body.rstrip(b"p")))
