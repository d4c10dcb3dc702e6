"""Write tests/golden/v1.tar.xz: a small repository of this version, and what is in it, for all later versions to read.

The rule: a golden file is never made again.  Every release must open the files of every format version that it says it
reads.  Who changes what is on disk raises ROTA_FORMAT_VERSION and adds a file of the new version beside the old ones:

    python tools/golden.py

It refuses to overwrite one.  Times are those of the making; sizes and contents are the same each time.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import signal
import sys
import tarfile
import tempfile

import rota
from rota import inspection

VERSION = 1
PLACE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
CAPACITY = "768 KiB"
LEFT_OUT = {"control", "claims", "lock"}  # shared memory and locks: not part of the format


def fill(path: str) -> None:
    """Whatever the format can hold, below and above a checkpoint, with a torn end: the writer is killed."""
    repo = rota.open(path, capacity=CAPACITY, durability="none")
    work, other = repo.queue("work", max_attempts=2), repo.queue("other", max_attempts=None, max_messages=1000)
    stopped = repo.queue("stopped", max_attempts=None)
    stopped.put(b"waits")
    registration = work.register("clerk")
    with repo.transaction() as transaction:
        transaction.put(work, b"tagged")
        transaction.tag(registration, b"tag")
    for number in range(40):
        work.put(b"work %d" % number, priority=number % 3, key=f"k{number}", headers={"n": number, "b": b"\xff"})
    other.put_many([b"%d times " % number * 20 for number in range(40)], compression="lz4")
    other.put(b"later", delay=10 * 365 * 86400.0)
    other.put(b"ends", ttl=100 * 365 * 86400.0, key=b"\xfe")
    for _ in range(9):
        work.get(timeout=0).nack()
    other.get(timeout=0).release(delay=20 * 365 * 86400.0)
    lap = repo.queue("lap")
    for number in range(4000):
        lap.put(b"%50d" % number)
        lap.get(timeout=0).ack()
    assert repo.stats().checkpoints > 0
    work.get(timeout=0).ack()
    work.put(b"above the begin")
    stopped.stop()
    repo.sync()


def written(path: str) -> None:
    """Fill it in a process that dies, so that the log has no close."""
    child = os.fork()
    if child == 0:
        try:
            fill(path)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        sys.exit("the writer failed")


def contents(path: str) -> list[dict[str, object]]:
    """Each live message."""
    return [
        {
            "queue": name,
            "id": message.id,
            "priority": message.priority,
            "key": message.key.hex() if isinstance(message.key, bytes) else message.key,
            "headers": {
                key: value.hex() if isinstance(value, bytes) else value for key, value in message.headers.items()
            },
            "attempts": message.attempts,
            "due_ns": message.due_ns,
            "expiry_ns": message.expiry_ns,
            "moved": message.moved,
            "time_ns": message.time_ns,
            "body": inspection.body(path, message).hex(),
        }
        for name, message in inspection.live(path)
    ]


def main() -> None:
    """Write the two files."""
    target = PLACE / f"v{VERSION}.tar.xz"
    if target.exists():
        sys.exit(f"{target.name} exists: a golden file is never made again")
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as directory:
        path = os.path.join(directory, "repository")
        written(path)
        messages = contents(path)
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for name in sorted(set(os.listdir(path)) - LEFT_OUT):
                data = pathlib.Path(path, name).read_bytes()
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    (PLACE / f"v{VERSION}.json").write_text(
        json.dumps({"version": rota.__version__, "messages": messages}, indent=1) + "\n"
    )
    print(f"{target.name}: {target.stat().st_size} bytes, {len(messages)} messages")


if __name__ == "__main__":
    main()
