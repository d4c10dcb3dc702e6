"""The segment that holds the end of the log is lost as a whole: that is no shorter log, it is a loss that is told.

What was never durable may be lost in a power cut; what the manifest says was reached may not.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota import inspection
from rota._core.inspection import Inspector
from tests.crash.kit import Child, Link

OPTIONS: dict[str, Any] = {"capacity": "1 MiB", "durability": "sync"}
PATIENCE_S = 20.0

LOSSES: dict[str, Callable[[pathlib.Path], object]] = {
    "removed": lambda file: file.unlink(),
    "zeros": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "no header": lambda file: file.write_bytes(bytes(4096) + file.read_bytes()[4096:]),
}


def newest(path: pathlib.Path) -> pathlib.Path:
    """Return the segment file that holds the end of the log."""
    inspector = Inspector(path)
    _, number = max((first, number) for number, first, *_, chosen in inspector.files() if chosen)
    return path / f"seg.{number:06d}"


def reached(path: pathlib.Path) -> int:
    return int(Inspector(path).manifest()["reached_turns"])


def refused(path: pathlib.Path) -> rota.Corrupt:
    with pytest.raises(rota.Corrupt) as told:
        rota.open(path, **OPTIONS)
    assert told.value.file is not None
    assert told.value.offset is not None
    assert "rota verify" in str(told.value)
    assert "rota repair" in str(told.value)
    report = inspection.verify(path)
    assert report.verdict == "damaged"
    return told.value


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("count", [1, 40])
def test_the_last_segment_lost_after_a_close_is_no_clean_end(directory: pathlib.Path, count: int, loss: str) -> None:
    path = directory / "r"
    with rota.open(path, **OPTIONS) as repo:
        for i in range(count):
            repo.queue("q").put(b"%04d" % i + b"." * 6000)
    file = newest(path)
    LOSSES[loss](file)
    error = refused(path)
    before = {other.name: other.read_bytes() for other in path.glob("seg.*")}
    refused(path)  # a refusal changes nothing
    assert before == {other.name: other.read_bytes() for other in path.glob("seg.*")}
    assert (error.file, error.offset) == ("manifest", 124 if count == 1 else 88)  # reached_turns, checkpoint_end
    output = directory / "saved"
    inspection.repair(path, output)
    with rota.open(output, **OPTIONS) as repo:
        found = [message.body for message in repo.queue("q").get_many(1000)]
    assert found == [b"%04d" % i + b"." * 6000 for i in range(len(found))]
    assert len(found) < count or loss == "no header"


def put_and_stay(link: Link, path: pathlib.Path, count: int) -> None:
    queue = rota.open(path, **OPTIONS).queue("q")
    for i in range(count):
        queue.put(b"%04d" % i + b"." * 6000)
    link.send("durable")
    link.receive(60)


@pytest.mark.parametrize("count", [1, 40])
def test_the_last_segment_lost_after_a_kill_is_told(directory: pathlib.Path, count: int) -> None:
    path = directory / "r"
    with Child(put_and_stay, path, count) as child:
        assert child.receive() == "durable"
        size = Inspector(path).manifest()["segment_size"]
        turns = max(first for _, first, *_, chosen in Inspector(path).files() if chosen) // size + 1
        deadline = time.monotonic() + PATIENCE_S
        while reached(path) < turns:
            assert time.monotonic() < deadline, "the service thread did not tell the manifest"
        assert reached(path) == turns
    newest(path).unlink()
    error = refused(path)
    assert error.found is not None
    assert (error.file == "manifest" and error.offset == 124) if count == 1 else str(error.file).startswith("seg.")


def test_what_was_reached_never_goes_back(directory: pathlib.Path) -> None:
    path = directory / "r"
    seen = 0
    for turn in range(6):
        with rota.open(path, **OPTIONS) as repo:
            queue = repo.queue("q")
            for _ in range(12):
                queue.put(b"%d" % turn * 6000)
            while not queue.empty():
                queue.get_many(50).ack()
        assert reached(path) > seen
        seen = reached(path)


def test_a_segment_that_never_held_durable_commits_is_no_loss(directory: pathlib.Path) -> None:
    """Made and opened, nothing synced in it: an empty log is what a power cut may leave, and opens."""
    path = directory / "r"
    with Child(put_nothing, path) as child:
        assert child.receive() == "open"
    assert reached(path) == 0
    newest(path).unlink()
    with rota.open(path, **OPTIONS) as repo:
        repo.queue("q").put(b"x")
        assert repo.queue("q").get(timeout=0).body == b"x"


def put_nothing(link: Link, path: pathlib.Path) -> None:
    repo = rota.open(path, **OPTIONS)
    link.send("open")
    link.receive(60)
    repo.close()
