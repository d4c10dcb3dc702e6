"""Every call to the system fails once, at every place where it is made: an error that says so, and nothing lost."""

from __future__ import annotations

import errno
import pathlib
import shutil
import signal

import pytest

import rota
from rota._core import platform
from tests.crash.kit import Child, Ledger, Link, announced, drain
from tests.crash.workload import SMALL

CALLS = {
    "open": errno.EMFILE,
    "facts": errno.EIO,
    "list_directory": errno.EIO,
    "pread": errno.EIO,
    "pwrite": errno.EIO,
    "sync": errno.EIO,
    "sync_metadata": errno.EIO,
    "sync_directory": errno.EIO,
    "allocate": errno.ENOSPC,
    "zero": errno.ENOSPC,
    "truncate": errno.ENOSPC,
    "map": errno.ENOMEM,
    "rename": errno.EIO,
    "rename_new": errno.EIO,
    "unlink": errno.EIO,
    "lock_range": errno.ENOLCK,
    "test_range": errno.EIO,
    "memory_allocate": errno.ENOMEM,
    "boot_id": errno.EIO,
    "copy_guarded": errno.EFAULT,
    "copy_crc_guarded": errno.EFAULT,
    "crc_guarded": errno.EFAULT,
    "gather_guarded": errno.EFAULT,
}
LAST = 40


def prepare(path: pathlib.Path) -> list[bytes]:
    """A repository with a checkpoint, a few segments and a torn end."""
    bodies = [b"%d" % i + b"." * 3000 for i in range(60)]
    with rota.open(path, **SMALL) as repo:
        repo.queue("q", max_attempts=None).put_many(bodies[:4])
        for body in bodies[4:50]:
            repo.queue("q").put(body)
    with Child(put_and_die, path, bodies[50:]) as child:
        assert child.wait() == -signal.SIGKILL
    return bodies


def put_and_die(link: Link, path: pathlib.Path, bodies: list[bytes]) -> None:
    queue = rota.open(path, **SMALL).queue("q")
    for body in bodies:
        queue.put(body)
    platform.arm("append.published", "kill")
    queue.put(b"unknown")


def use(link: Link, path: pathlib.Path, call: str, nth: int) -> None:
    """Open, work a little, close; whatever fails must fail with an error of the tree."""
    platform.call_counts()
    platform.inject(call, nth, CALLS[call])
    try:
        with rota.open(path, **SMALL) as repo:
            queue = repo.queue("q")
            with announced(link, adds=[b"new"]):
                queue.put(b"new")
            message = queue.get(timeout=0)
            with announced(link, removes=[message.body]):
                message.ack(durability="sync")
            with announced(link, adds=[b"large" + b"." * 9000]):
                queue.put(b"large" + b"." * 9000, durability="sync")
            for batch in (queue.get_many(3), queue.get_many(2)):
                bodies = batch.bodies
                with announced(link, removes=bodies):
                    batch.ack()
    except (rota.RotaError, OSError, MemoryError) as error:
        link.send(("error", type(error).__name__, str(error)))
    link.send(("fired", platform.injections_fired().get(call, 0)))


def drain_all(queue: rota.Queue, live: dict[int, bytes]) -> list[bytes]:
    """What is ready, and what was parked since it could not be read once: it is kept, and can be sent on."""
    bodies = [message.body for message in queue.get_many(1000)] if live else drain(queue)
    if live:
        parked = [id for id, body in live.items() if body not in bodies]
        assert queue.stats().parked == len(parked) == 1
        queue.redrive(parked, target=queue)
        (message,) = queue.get_many(5)
        bodies.append(message.body)
    return bodies


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_loses_nothing(directory: pathlib.Path, call: str) -> None:
    bodies = prepare(directory / "kept")
    fired = 0
    for nth in range(1, LAST):
        path = directory / "r"
        shutil.copytree(directory / "kept", path)
        ledger = Ledger()
        ledger.certain = {*bodies, b"unknown"}
        with Child(use, path, call, nth) as child:
            entries = []
            while True:
                entry = child.receive()
                entries.append(entry)
                ledger.take(entry)
                if entry[0] == "fired":
                    break
            child.finish()
        errors = [entry[1:] for entry in entries if entry[0] == "error"]
        with rota.open(path, **SMALL) as repo:
            try:
                queue = repo.queue("q")
                parked = {m.id: m.body for m in queue.browse()} if queue.stats().parked else {}
                assert not parked or call.startswith("copy_")
                ledger.check(drain_all(queue, parked))
            except AssertionError as error:
                raise AssertionError(f"{call} {nth}: {errors}") from error
            assert repo.queue("q").put(b"works again").id
        shutil.rmtree(path)
        if not entries[-1][1]:
            break
        fired += 1
    print(f"{call}: failed at {fired} places")
