"""Bytes that are not what was written: a message is lost at most, an error at least, a fault never."""

from __future__ import annotations

import os
import pathlib
import random
import shutil
from collections.abc import Callable

import pytest

import rota
from tests.crash.kit import Child, Link
from tests.crash.workload import SMALL

SEGMENT = 64 << 10
BODIES = [b"<%04d>" % i + bytes([65 + i % 26]) * 250 for i in range(120)]


def prepare(path: pathlib.Path) -> None:
    """Several segments, cleanly closed: all that lies there is proven durable."""
    with rota.open(path, **SMALL) as repo:
        queue = repo.queue("q", max_attempts=None)
        for body in BODIES[:60]:
            queue.put(body)
        queue.put_many(BODIES[60:90])
        queue.put_many(BODIES[90:])


def segment_files(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(file for file in path.glob("seg.*"))


def flip(file: pathlib.Path, offset: int, bit: int = 0) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        byte = opened.read(1)[0]
        opened.seek(offset)
        opened.write(bytes([byte ^ 1 << bit]))


def place_of(path: pathlib.Path, body: bytes) -> tuple[pathlib.Path, int]:
    for file in segment_files(path):
        offset = file.read_bytes().find(body)
        if offset >= 0:
            return file, offset
    raise AssertionError("not found")


@pytest.mark.parametrize("index", [0, 30, 59, 60, 90, 119])
@pytest.mark.parametrize("how", ["get", "batch", "bodies"])
def test_c19_one_flipped_bit_in_a_body_costs_one_message(directory: pathlib.Path, how: str, index: int) -> None:
    path = directory / "r"
    prepare(path)
    file, offset = place_of(path, BODIES[index])
    flip(file, offset + 7, 3)
    found: list[bytes] = []
    told: list[rota.Corrupt] = []
    with rota.open(path, **SMALL) as repo:
        queue = repo.queue("q")
        for _ in range(len(BODIES) + 3):
            try:
                if how == "get":
                    messages = [queue.get(timeout=0)]
                else:
                    batch = queue.get_many(7)
                    messages = list(batch)
                    if how == "bodies":
                        assert len(batch.bodies) == len(messages)
                for message in messages:
                    body = message.body
                    message.ack()
                    found.append(body)
            except rota.Empty:
                break
            except rota.Corrupt as error:
                told.append(error)
                if how != "get":
                    for message in batch:
                        if not message.settled:
                            try:
                                message.release()
                            except rota.LeaseLost:
                                continue
        assert [error.file for error in told] == [file.name]
        assert "verify" in str(told[0])
        assert sorted(found) == sorted(set(BODIES) - {BODIES[index]})
        figures = queue.stats()
        assert (figures.total, figures.parked, figures.claimed) == (1, 1, 0)
    with rota.open(path, **SMALL) as repo:
        assert (len(repo.queue("q")), repo.queue("q").stats().parked) == (1, 1)


def look(link: Link, path: pathlib.Path) -> None:
    """Open and read everything; anything but an error of the tree is a failure."""
    try:
        with rota.open(path, **SMALL) as repo:
            bodies = []
            for name in repo.queues():
                for message in repo.queue(name).get_many(1000):
                    try:
                        bodies.append(message.body)
                    except rota.Corrupt:
                        continue
            link.send(("found", bodies))
            repo.queue("after").put(b"x")
    except (rota.RotaError, OSError, MemoryError) as error:
        link.send(("error", f"{type(error).__name__}: {error}"))


def outcome(path: pathlib.Path) -> tuple[str, object]:
    with Child(look, path) as child:
        result: tuple[str, object] = child.receive()
        child.finish()
        return result


@pytest.mark.parametrize("name", ["manifest", "control", "claims", "lock"])
def test_flipped_bits_in_small_files(directory: pathlib.Path, seed: int, name: str) -> None:
    """C09: derived files are built anew; of the manifest one of four copies may be anything."""
    chance = random.Random(seed)
    prepare(directory / "kept")
    size = (directory / "kept" / name).stat().st_size
    for _ in range(25 if size else 1):
        path = directory / "r"
        shutil.copytree(directory / "kept", path)
        if size:
            flip(path / name, chance.randrange(min(size, 16384)), chance.randrange(8))
        assert outcome(path) == ("found", BODIES)
        shutil.rmtree(path)


DAMAGES: dict[str, Callable[[pathlib.Path], object]] = {
    "control is empty": lambda path: (path / "control").write_bytes(b""),
    "control is short": lambda path: (path / "control").write_bytes((path / "control").read_bytes()[:5000]),
    "control is gone": lambda path: (path / "control").unlink(),
    "control is ones": lambda path: (path / "control").write_bytes(b"\xff" * (4 << 20)),
    "claims is empty": lambda path: (path / "claims").write_bytes(b""),
    "claims is gone": lambda path: (path / "claims").unlink(),
    "claims is ones": lambda path: (path / "claims").write_bytes(b"\xff" * (4 << 20)),
    "lock is gone": lambda path: (path / "lock").unlink(),
    "an empty segment": lambda path: (path / "seg.000999").write_bytes(b""),
    "a segment of zeros": lambda path: (path / "seg.000015").write_bytes(b"\0" * SEGMENT),
    "an unfinished segment": lambda path: (path / "seg.000015.new").write_bytes(b"\0" * 100),
    "one manifest sector of zeros": lambda path: overwrite(path / "manifest", 0, b"\0" * 4096),
    "one manifest sector of ones": lambda path: overwrite(path / "manifest", 4096, b"\xff" * 4096),
}


def overwrite(file: pathlib.Path, offset: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        opened.write(data)


@pytest.mark.parametrize("damage", DAMAGES)
def test_c10_what_can_be_derived_is_built_anew(directory: pathlib.Path, damage: str) -> None:
    """C09, C10, C23: never fatal, never a crash."""
    path = directory / "r"
    prepare(path)
    DAMAGES[damage](path)
    result = outcome(path)
    if damage == "an empty segment":
        assert result[0] == "error"
        assert "seg.000999" in str(result[1])
        (path / "seg.000999").unlink()
        result = outcome(path)
    assert result == ("found", BODIES)


def replace(file: pathlib.Path, make: Callable[[pathlib.Path], object]) -> None:
    """Another kind of file under the same name."""
    file.unlink()
    make(file)


REFUSED: dict[str, Callable[[pathlib.Path], object]] = {
    "manifest is empty": lambda path: (path / "manifest").write_bytes(b""),
    "manifest is zeros": lambda path: (path / "manifest").write_bytes(b"\0" * 16384),
    "manifest is ones": lambda path: (path / "manifest").write_bytes(b"\xff" * 16384),
    "a segment is gone": lambda path: place_of(path, BODIES[5])[0].unlink(),
    "a segment is short": lambda path: place_of(path, BODIES[5])[0].write_bytes(b"\0" * 5000),
    "a segment is a directory": lambda path: replace(place_of(path, BODIES[5])[0], pathlib.Path.mkdir),
    "control is a directory": lambda path: replace(path / "control", pathlib.Path.mkdir),
    "control is a pipe": lambda path: replace(path / "control", os.mkfifo),
}


@pytest.mark.parametrize("damage", REFUSED)
def test_what_cannot_be_derived_is_refused_with_a_name(directory: pathlib.Path, damage: str) -> None:
    path = directory / "r"
    prepare(path)
    REFUSED[damage](path)
    kind, text = outcome(path)
    assert kind == "error"
    assert str(path) in str(text)


def test_any_flipped_bit_of_the_log_is_an_error_or_a_message(directory: pathlib.Path, seed: int) -> None:
    """Headers, operations, frames: the messages found are true, the others are told of, nothing crashes."""
    chance = random.Random(seed)
    prepare(directory / "kept")
    used = [
        (file.name, place)
        for file in segment_files(directory / "kept")
        for place in [len(file.read_bytes().rstrip(b"\0"))]
    ]
    found = refused = 0
    for _ in range(60):
        path = directory / "r"
        shutil.copytree(directory / "kept", path)
        name, end = chance.choice(used)
        flip(path / name, chance.randrange(end), chance.randrange(8))
        kind, result = outcome(path)
        if kind == "found":
            assert isinstance(result, list)
            assert set(result) <= set(BODIES)
            assert len(result) == len(set(result))
            assert len(result) >= len(BODIES) - 1
            found += 1
        else:
            assert str(path) in str(result)
            refused += 1
        shutil.rmtree(path)
    print(f"seed {seed}: {found} opened, {refused} refused")


def truncated_while_open(link: Link, path: pathlib.Path, what: str, size: int) -> None:
    """Go on using a repository whose file shrank under the mapping."""
    repo = rota.open(path, **SMALL)
    queue = repo.queue("q")
    messages = list(queue.get_many(200))
    target = place_of(path, BODIES[5])[0] if what == "segment" else path / what
    os.truncate(target, size)
    errors = 0
    for message in messages:
        try:
            assert message.body
        except rota.RotaError:
            errors += 1
    for _ in range(3):
        try:
            queue.put(b"y" * 100)
        except (rota.RotaError, OSError):
            errors += 1
    link.send(errors)


@pytest.mark.parametrize("size", [0, 4096, 10_000])
def test_c26_a_segment_truncated_by_another_is_an_error(directory: pathlib.Path, size: int) -> None:
    """SIGBUS in a copy becomes an error; the process lives."""
    path = directory / "r"
    prepare(path)
    with Child(truncated_while_open, path, "segment", size) as child:
        assert child.receive() > 0
        child.finish()
