"""Registrations go with their queue: at once, in the log, in checkpoints, in what is read offline."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

import rota
from rota import inspection

SMALL: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}


def tagged(queue: rota.Queue, name: str, tag: bytes) -> rota.Registration:
    registration = queue.register(name)
    with queue.repository.transaction() as transaction:
        transaction.put(queue, b"x")
        transaction.tag(registration, tag)
    return registration


def last_tags(queue: rota.Queue, count: int) -> list[bytes | None]:
    """What a first call of register() would find."""
    return [last.tag if (last := queue.register(f"clerk {i}").last) else None for i in range(count)]


@pytest.mark.parametrize(
    ("how", "count"),
    [
        ("at once", 1),
        ("after a replay", 20),
        ("after a checkpoint", 3000),  # more than a bucket of the table holds
        ("out of the checkpoint", 20),
    ],
)
def test_a_new_queue_of_that_number_knows_nobody(directory: pathlib.Path, how: str, count: int) -> None:
    path = directory / "r"
    repo = rota.open(path, **{**SMALL, "capacity": "16 MiB"})
    queue, kept = repo.queue("q", max_attempts=None), repo.queue("kept", max_attempts=None)
    for i in range(count):
        tagged(queue, f"clerk {i}", b"old")
    registration = tagged(kept, "clerk 0", b"kept")
    number = queue.number_
    if how == "out of the checkpoint":
        repo.close()
        repo = rota.open(path, **SMALL)
        queue, kept = repo.queue("q"), repo.queue("kept")
    repo.destroy("q", force=True)
    with pytest.raises(rota.NotFound):
        queue.register("late")
    if how == "after a checkpoint":
        repo.close()
        repo = rota.open(path, **SMALL)
    fresh = repo.queue("fresh", max_attempts=None)
    assert fresh.number_ == number
    if how == "after a replay":
        repo.close()
        repo = rota.open(path, **SMALL)
        fresh = repo.queue("fresh")
    assert last_tags(fresh, min(count, 50)) == [None] * min(count, 50)
    last = repo.queue("kept").register("clerk 0").last
    assert last is not None and last.tag == b"kept" and registration.name == "clerk 0"
    repo.close()
    report = inspection.repair(path, directory / "repaired")
    assert report.registrations == min(count, 50) + 1


def test_registering_at_a_destroyed_queue_is_refused(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo, rota.open(directory / "r", **SMALL) as other:
        queue = repo.queue("q")
        other.destroy("q")
        with pytest.raises(rota.NotFound, match="destroyed"):
            queue.register("late")
