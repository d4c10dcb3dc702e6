"""What inspection reads from the files is what the engine says of the same repository, and repair keeps all of it."""

from __future__ import annotations

import dataclasses
import pathlib
import pickle
from typing import Any

import pytest

import rota
from rota import inspection
from rota._core.inspection import Inspector
from rota._image import Malformed, Stream, read_image
from rota._live import replayed

CAPACITY = "1 MiB"


def lap(repo: rota.Repository, count: int) -> None:
    """So many messages come and go, until segments are freed and used again."""
    queue = repo.queue("lap")
    for number in range(count):
        queue.put(b"%50d" % number)
        queue.get(timeout=0).ack()


def fill(path: pathlib.Path) -> None:
    """Every state that a message can have, below a checkpoint and above it, in order of its close."""
    with rota.open(path, capacity=CAPACITY, durability="none") as repo:
        queue, other = repo.queue("q", max_attempts=2), repo.queue("other", max_attempts=None, max_messages=500)
        stopped = repo.queue("stopped")
        stopped.put(b"waits")
        registration = queue.register("clerk")
        with repo.transaction() as transaction:
            transaction.put(queue, b"tagged")
            transaction.tag(registration, b"tag")
        for number in range(100):
            queue.put(b"q%d" % number, priority=number % 3, key=f"k{number}", headers={"n": number, "b": b"\xff"})
        other.put_many([b"%d times " % number * 30 for number in range(100)], compression="lz4")
        other.put(b"later", delay=3600.0)
        other.put(b"ends", ttl=3600.0, key=b"\xfe")
        for _ in range(6):
            queue.get(timeout=0).nack()
        for _ in range(4):
            queue.get(timeout=0).nack()
        other.get(timeout=0).release(delay=1000.0)
        lap(repo, 6000)
        queue.get(timeout=0).ack()
        queue.put(b"above the begin")
        other.get(timeout=0).nack(delay=500.0)
        stopped.stop()
        assert repo.stats().checkpoints > 0


def told(path: pathlib.Path) -> dict[str, list[tuple[Any, ...]]]:
    """What the engine says, in the order in which it would hand it out."""
    with rota.open(path, create=False) as repo:
        return {
            name: [
                (message.id, message.body, message.priority, message.key, message.headers, message.attempts)
                for message in repo.queue(name).browse()
            ]
            for name in repo.queues()
        }


def read(path: pathlib.Path) -> dict[str, list[tuple[Any, ...]]]:
    """What inspection says, by id."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for name, message in inspection.live(path):
        assert not message.damage
        body = inspection.body(path, message)
        row = (message.id, body, message.priority, message.key, message.headers, message.attempts)
        found.setdefault(name, []).append(row)
    return found


def facts(path: pathlib.Path) -> list[tuple[Any, ...]]:
    fields = ("id", "handouts", "excused", "due_ns", "suspect", "parked", "moved", "in_error_queue")
    more = ("time_ns", "expiry_ns", "state")
    return [(name, *(getattr(message, field) for field in fields + more)) for name, message in inspection.live(path)]


def test_live_says_what_the_engine_says(directory: pathlib.Path) -> None:
    fill(directory / "r")
    by_inspection = read(directory / "r")
    engine = {name: sorted(rows) for name, rows in told(directory / "r").items() if rows}
    assert by_inspection == engine
    states = {row[-1] for row in facts(directory / "r")}
    assert states == {"ready", "delayed"}
    assert any(message.moved and message.in_error_queue for _, message in inspection.live(directory / "r"))


def test_live_sees_an_open_repository(directory: pathlib.Path) -> None:
    fill(directory / "r")
    with rota.open(directory / "r", create=False) as repo:
        repo.queue("q").put(b"just now")
        names = [inspection.body(directory / "r", message) for _, message in inspection.live(directory / "r")]
    assert names[-1] == b"just now"


def test_verify_of_a_sound_repository(directory: pathlib.Path) -> None:
    fill(directory / "r")
    report = inspection.verify(directory / "r")
    assert (report.verdict, report.problems) == ("sound", [])
    assert report.live > 0


def test_repair_keeps_state_order_and_options(directory: pathlib.Path) -> None:
    fill(directory / "r")
    before = facts(directory / "r")
    report = inspection.repair(directory / "r", directory / "o")
    assert report.complete
    assert report.messages == len(before)
    assert facts(directory / "o") == before
    sources = [Inspector(directory / name) for name in ("r", "o")]
    first, second = (replayed(look, read_image(look), look.judge()[3]) for look in sources)
    assert {**first.queues}.keys() == second.queues.keys()
    for number, options in first.queues.items():
        assert {**options, "created_lsn": 0} == {**second.queues[number], "created_lsn": 0}
    assert {key: dataclasses.replace(found, lsn=0) for key, found in first.registrations.items()} == {
        key: dataclasses.replace(found, lsn=0) for key, found in second.registrations.items()
    }
    assert told(directory / "r") == told(directory / "o")
    with rota.open(directory / "o", create=False) as repo:
        last = repo.queue("q").register("clerk").last
        assert last is not None and last.tag == b"tag"
        assert repo.queue("q").put(b"goes on") is not None


def test_a_damaged_message_below_the_begin_is_told_and_left_out(directory: pathlib.Path) -> None:
    fill(directory / "r")
    _, message = next(found for found in inspection.live(directory / "r") if found[1].key == "k50")
    segment = directory / "r" / f"seg.{message.file:06d}"
    data = bytearray(segment.read_bytes())
    data[message.offset] ^= 1
    segment.write_bytes(data)
    damaged = [found for _, found in inspection.live(directory / "r") if found.damage]
    assert [found.id for found in damaged] == [message.id]
    with pytest.raises(ValueError, match="checksum"):
        inspection.body(directory / "r", dataclasses.replace(message, source=None))
    report = inspection.verify(directory / "r")
    assert [problem.consequence for problem in report.problems] == [f"message {message.id} cannot be read"]
    saved = inspection.repair(directory / "r", directory / "o")
    assert saved.lost_ids == [message.id]
    assert len(list(inspection.live(directory / "o"))) == saved.messages


def test_repair_writes_into_new_directories_only(directory: pathlib.Path) -> None:
    fill(directory / "r")
    with pytest.raises(FileExistsError):
        inspection.repair(directory / "r", directory / "r")


def test_an_inspection_error_is_one_of_rota(directory: pathlib.Path) -> None:
    fill(directory / "r")
    (directory / "r" / "manifest").write_bytes(bytes(16384))
    with pytest.raises(rota.RotaError) as caught:
        list(inspection.live(directory / "r"))
    error = caught.value
    assert isinstance(error, inspection.InspectionError)
    assert error.file == "manifest"
    assert error.detail in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.file, str(again)) == (error.code, error.file, str(error))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 11])
def test_a_number_that_does_not_end_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        Stream(data).number()


@pytest.mark.parametrize(
    ("data", "value"), [(b"\0", 0), (b"\x7f", 127), (b"\x80\x01", 128), (b"\xff" * 9 + b"\1", 2**64 - 1)]
)
def test_numbers_have_seven_bits_a_byte(data: bytes, value: int) -> None:
    assert Stream(data).number() == value
