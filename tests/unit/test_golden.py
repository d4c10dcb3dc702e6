"""The repository of each format version opens, and holds what it held; tools/golden.py made it and tells the rule."""

from __future__ import annotations

import json
import os
import pathlib
import tarfile
from typing import Any

import pytest

import rota
from rota import inspection

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
FILES = sorted(GOLDEN.glob("v*.tar.xz"))

pytestmark = pytest.mark.skipif(
    os.environ.get("ROTA_BUILD") == "debug", reason="a debug build takes no files of a real one"
)


@pytest.fixture(params=FILES, ids=lambda path: path.name.partition(".")[0])
def golden(request: pytest.FixtureRequest, directory: pathlib.Path) -> tuple[pathlib.Path, list[dict[str, Any]]]:
    """A copy of the repository, and its messages."""
    path = directory / "repository"
    with tarfile.open(request.param) as archive:
        archive.extractall(path, filter="data")
    record = json.loads((GOLDEN / f"{request.param.name.partition('.')[0]}.json").read_text())
    return path, record["messages"]


def plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def by_engine(path: pathlib.Path) -> dict[int, list[Any]]:
    with rota.open(path, create=False) as repo:
        return {
            message.id: [
                name,
                message.priority,
                plain(message.key),
                {key: plain(value) for key, value in message.headers.items()},
                message.attempts,
                message.body.hex(),
            ]
            for name in repo.queues()
            for message in repo.queue(name).browse()
        }


def row(record: dict[str, Any]) -> list[Any]:
    return [record[field] for field in ("queue", "priority", "key", "headers", "attempts", "body")]


def test_there_is_one() -> None:
    assert [path.name for path in FILES][:1] == ["v1.tar.xz"]
    assert all(path.stat().st_size < 200_000 for path in FILES)


def test_it_opens_and_holds_what_it_held(golden: tuple[pathlib.Path, list[dict[str, Any]]]) -> None:
    path, messages = golden
    assert by_engine(path) == {record["id"]: row(record) for record in messages}
    with rota.open(path, create=False) as repo:
        last = repo.queue("work").register("clerk").last
        assert last is not None and last.tag == b"tag"
        assert repo.queue("other").figures()["max_messages"] == 1000
        with pytest.raises(rota.QueueStopped):
            repo.queue("stopped").get(timeout=0)


def test_inspection_reads_it(golden: tuple[pathlib.Path, list[dict[str, Any]]]) -> None:
    path, messages = golden
    assert inspection.verify(path).ok
    found = [
        (name, message.id, message.due_ns, message.expiry_ns, message.moved, message.time_ns)
        for name, message in inspection.live(path)
    ]
    fields = ("queue", "id", "due_ns", "expiry_ns", "moved", "time_ns")
    assert found == [tuple(record[field] for field in fields) for record in messages]


def test_repair_saves_all_of_it(golden: tuple[pathlib.Path, list[dict[str, Any]]], directory: pathlib.Path) -> None:
    path, messages = golden
    report = inspection.repair(path, directory / "saved")
    assert not report.lost_ids
    assert by_engine(directory / "saved") == {record["id"]: row(record) for record in messages}
