"""A checkpoint whose checksums match and whose contents lie: the open refuses it or serves what it says.

The program at the end of this file writes lies into the stream of a small repository, sets every checksum and chain
right again, and opens it; the test sees how that ends.
"""

from __future__ import annotations

import contextlib
import pathlib
import random
import shutil
import struct
import subprocess
import sys

import rota
from rota._core.platform import crc32c

COMMIT = struct.Struct("<IHHQIIIIIIQQQQQQII")
OPERATION = struct.Struct("<BBHIQQQ")
MASK = 2**64 - 1
SECTORS = range(0, 16384, 4096)


def mix(value: int) -> int:
    """Return rota_mix64 of a number."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


class Forger:
    """The commits of a repository that is closed, from the first block of its checkpoint on."""

    def __init__(self, path: pathlib.Path) -> None:
        manifest = (path / "manifest").read_bytes()
        sector = max((manifest[at : at + 512] for at in SECTORS), key=lambda bytes_: bytes_[16:24][::-1])
        self.salt, self.segment_size = struct.unpack_from("<QQ", sector, 40)
        (self.sync_unit,) = struct.unpack_from("<I", sector, 64)
        (self.block_lsn,) = struct.unpack_from("<Q", sector, 80)
        self.seed = crc32c(struct.pack("<Q", self.salt))
        for self.file in sorted(path.glob("seg.*")):
            self.bytes = bytearray(self.file.read_bytes())
            (first_lsn,) = struct.unpack_from("<Q", self.bytes, 32)
            if first_lsn and first_lsn // self.segment_size == self.block_lsn // self.segment_size:
                return
        raise AssertionError("no file holds the block")

    def stream(self) -> tuple[int, int]:
        """Return where the stream starts in the file, and its length: it is one block."""
        at = self.block_lsn % self.segment_size + COMMIT.size
        kind, detail, _, length, *_ = OPERATION.unpack_from(self.bytes, at)
        assert (kind, detail) == (16, 1)
        return at + OPERATION.size, length

    def seal(self) -> None:
        """Set the sums of the block and of its commit, and the chain of all that follows."""
        start, length = self.stream()
        stream = bytes(self.bytes[start : start + length])
        struct.pack_into("<Q", self.bytes, start - 8, crc32c(stream, self.seed) | 1 << 32)
        at, chain = self.block_lsn % self.segment_size, None
        while True:
            fields = list(COMMIT.unpack_from(self.bytes, at))
            lsn = self.block_lsn - self.block_lsn % self.segment_size + at
            if fields[3] != lsn:
                break
            if chain is not None:
                fields[10] = chain
            meta = self.bytes[at + COMMIT.size : at + COMMIT.size + fields[5] + 32 * fields[6]]
            fields[16] = crc32c(bytes(meta), self.seed)
            fields[17] = crc32c(COMMIT.pack(*fields)[:92], self.seed)
            COMMIT.pack_into(self.bytes, at, *fields)
            chain = mix(mix(self.salt ^ fields[10] ^ (fields[8] << 32 | fields[9])) ^ (fields[17] << 32 | fields[16]))
            at = self.following(at + fields[4])
            if at < 0:
                break
        self.file.write_bytes(self.bytes)

    def following(self, at: int) -> int:
        """Return where the next commit lies: here or at the next sync unit; -1: nowhere."""
        for place in (at, (at + self.sync_unit - 1) // self.sync_unit * self.sync_unit):
            if place + COMMIT.size <= self.segment_size:
                lsn = self.block_lsn - self.block_lsn % self.segment_size + place
                if struct.unpack_from("<Q", self.bytes, place + 8)[0] == lsn:
                    return place
        return -1


def fill(path: pathlib.Path) -> None:
    """Make a repository with a bit of everything in its checkpoint, and close it."""
    with rota.open(path, capacity="768 KiB", durability="none") as repo:
        queue = repo.queue("q", max_attempts=2)
        queue.register("clerk")
        for number in range(40):
            queue.put(b"%d" % number, priority=number % 3, ttl=3600.0 if number % 5 == 0 else None)
        queue.put_many([b"run"] * 100)
        queue.put(b"later", delay=3600.0)
        for _ in range(12):
            queue.get().nack()
        for number in range(3):
            queue.get().nack(delay=3600.0 + number)
        group = repo.queue("group", order="group", indexes=("key", "n"), max_attempts=1)
        highest = repo.queue("highest", order="highest", by="n", age_rate=1.0)
        for number in range(40):
            group.put(b"%d" % number, key=f"key {number % 7}", headers={"n": number % 3})
            highest.put(b"%d" % number, headers={"n": number * 31 % 40})
        for _ in range(5):
            group.get().nack()
        errors = repo.queue("group.errors")
        errors.redrive(errors.ids())
        other = repo.queue("other")
        for _ in range(1200):
            other.put(b"x" * 30)
            other.get().ack()


def lie(forger: Forger, rng: random.Random) -> None:
    start, length = forger.stream()
    for _ in range(rng.randrange(1, 4)):
        at = start + rng.randrange(length)
        forger.bytes[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def test_lies_are_refused_or_served(directory: pathlib.Path, seed: int) -> None:
    command = [sys.executable, __file__, str(directory), str(seed), "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    refused, served = map(int, done.stdout.split())
    assert refused + served == 60
    assert refused > 10
    assert served > 0


def main(directory: str, seed: str, laps: str) -> None:
    original, copy = pathlib.Path(directory, "original"), pathlib.Path(directory, "copy")
    fill(original)
    Forger(original).seal()
    with rota.open(shutil.copytree(original, copy), capacity="768 KiB") as repo:
        assert len(repo.queue("q")) > 100, "a seal without a lie changes nothing"
    refused = served = 0
    for lap in range(int(laps)):
        shutil.rmtree(copy)
        forger = Forger(shutil.copytree(original, copy))
        lie(forger, random.Random(f"{seed} {lap}"))
        forger.seal()
        try:
            with rota.open(copy, capacity="768 KiB", durability="none") as repo:
                look(repo)
        except rota.RotaError:
            refused += 1
        else:
            served += 1
    print(refused, served)


def look(repo: rota.Repository) -> None:
    """Use what is there; a message may be anything but a crash."""
    for name in repo.queues():
        queue = repo.queue(name)
        for identity in queue.ids(0, 1000):
            try:
                assert queue.read(identity).body is not None
            except (rota.Corrupt, rota.NotFound):
                continue
        with contextlib.suppress(rota.Full, rota.QueueStopped):
            queue.put(b"more", timeout=0)
        queue.find(key="key 1", header={"n": 1})
        with contextlib.suppress(rota.Full, rota.QueueStopped):
            queue.put(b"more", key="key 2", headers={"n": 1}, timeout=0)
        with contextlib.suppress(rota.Corrupt, rota.Empty, rota.QueueStopped, rota.StateError):
            queue.get(timeout=0, where=rota.key == "key 3").nack()
        for _ in range(200):
            try:
                queue.get(timeout=0).ack()
            except (rota.Corrupt, rota.Empty, rota.QueueStopped):
                break


if __name__ == "__main__":
    main(*sys.argv[1:])
