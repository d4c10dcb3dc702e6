"""Faults reported of neighbouring systems: full disks, refused file systems, growth."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import rota
from tests.crash.kit import Child, Link, drain

OPTIONS: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}
DAY_NS = 86_400 * 10**9


# --- disk full, file systems -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_volume(directory: pathlib.Path, megabytes: int) -> Iterator[pathlib.Path]:
    """A file system of its own; the test is skipped where mounting is not allowed."""
    path = directory / "volume"
    path.mkdir()
    size = f"size={megabytes}m"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(path)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(queue: rota.Queue) -> int:
    """Put until the volume is full; how many there were."""
    for count in range(100_000):
        try:
            queue.put(b"%d" % count + b"d" * 5000, timeout=5)
        except rota.DiskFull:
            return count
    raise AssertionError


def test_c25_full_volume_raises_disk_full(directory: pathlib.Path) -> None:
    """C08, C28: the process lives, reads and settles at zero bytes free, and puts again when there is room."""
    with small_volume(directory, 24) as volume:
        ballast = volume / "ballast"
        with rota.open(volume / "r", capacity="64 MiB", durability="none") as repo:
            queue = repo.queue("q")
            put = fill(queue)
            assert put > 100
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(b"b" * 4096)
            assert shutil.disk_usage(volume).free < 4096
            first = queue.get(timeout=0)
            assert first.body.startswith(b"0d")
            first.ack()
            queue.get(timeout=0).nack()
            queue.get(timeout=0).release()
            queue.kill(queue.peek().id)
            bodies = drain(queue)
            assert len(bodies) == put - 2
            ballast.unlink()
            assert queue.put(b"again", timeout=5).id
            assert drain(queue) == [b"again"]
        with rota.open(volume / "r", durability="none") as repo:
            assert drain(repo.queue("q")) == []


def test_c30_an_untrusted_file_system_is_refused_by_name(directory: pathlib.Path) -> None:
    with pytest.raises(rota.FileSystemRefused, match="proc"):
        rota.open("/proc/self/task")
    with pytest.raises(rota.OpenError):
        rota.open("/sys/kernel", create=False)


# --- growth ----------------------------------------------------------------------------------------------------------


def test_c31_files_do_not_grow_with_what_was_acked(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **OPTIONS) as repo:
        queue = repo.queue("q")
        for _ in range(300):
            queue.put_many([b"a" * 100] * 60)
            queue.get_many(60).ack()
        size = sum(file.stat().st_blocks * 512 for file in (directory / "r").iterdir() if file.name.startswith("seg."))
        assert size <= 1 << 20
        pool = repo.stats()
        assert (pool.messages, queue.stats().puts, queue.stats().acks) == (0, 18_000, 18_000)
        assert (directory / "r" / "control").stat().st_size < 32 << 20


def test_c32_rolls_leave_no_files_and_no_mappings_behind(directory: pathlib.Path) -> None:
    """A hundred rolls beside three readers."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q")
        readers = [Child(reads_on, path) for _ in range(3)]
        try:
            counts = [reader.receive() for reader in readers]
            queue = repo.queue("q")
            for _ in range(700):
                queue.put(b"r" * 9000)
                queue.get().ack()
            for reader in readers:
                reader.send("count")
            for reader, before in zip(readers, counts, strict=True):
                assert reader.receive()[0] <= before[0] + 16
                reader.send("end")
                reader.finish()
        finally:
            for reader in readers:
                reader.__exit__()
        held = [
            os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if os.path.lexists(f"/proc/self/fd/{fd}")
        ]
        assert not [name for name in held if "deleted" in name and str(path) in name]


def mappings() -> tuple[int, list[str]]:
    lines = [line for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "/r/" in line]
    assert not [line for line in lines if "deleted" in line]
    return len(lines), lines


def reads_on(link: Link, path: pathlib.Path) -> None:
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q")
        link.send(mappings()[:1])
        stop = threading.Event()

        def browse() -> None:
            while not stop.is_set():
                for message in queue.browse():
                    assert message.body == b"r" * 9000

        thread = threading.Thread(target=browse)
        thread.start()
        link.receive()
        stop.set()
        thread.join()
        link.send(mappings()[:1])
        link.receive()


def test_c37_slots_of_killed_readers_are_taken_over(directory: pathlib.Path) -> None:
    """A hundred attached readers are killed; claims come back, slots are free again."""
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        queue = repo.queue("q", max_attempts=None)
        queue.put_many([b"%d" % i for i in range(100)])
        for start in range(0, 100, 20):
            children = [Child(attach_and_wait, path) for _ in range(20)]
            for child in children:
                assert child.receive() == b"claimed", start
            for child in children:
                child.signal(signal.SIGKILL)
            for child in children:
                child.__exit__()
        found = drain(queue)
        assert len(found) == 100
        deadline = time.monotonic() + 2
        while len(repo.stats().processes) > 1:
            assert time.monotonic() < deadline
        with Child(attach_and_wait, path) as child:
            assert child.receive() == b"nothing"


def attach_and_wait(link: Link, path: pathlib.Path) -> None:
    repo = rota.open(path, **OPTIONS)
    batch = repo.queue("q").get_many(1, timeout=0.2)
    link.send(b"claimed" if len(batch) and batch.bodies else b"nothing")
    signal.pause()
