"""enqueued_at is when a message was first put: through copies and reopening, and never a number with a flipped bit."""

from __future__ import annotations

import pathlib
import struct
import time
from typing import Any

import pytest

import rota
from rota import inspection

SMALL: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}
BODY = b"a body that is nowhere else in the files"
HEADER_TIME = 64  # offset of time_ns in the header of a commit


def test_a_copied_message_keeps_its_time(directory: pathlib.Path) -> None:
    """Put plain, with a key, and in a compressed block; then the log goes round many times."""
    path = directory / "r"
    with rota.open(path, **SMALL) as repo:
        queue, churn = repo.queue("q", max_attempts=None), repo.queue("churn", max_attempts=None)
        queue.put(BODY)
        queue.put(BODY, key="k", headers={"h": 1}, ttl=3600.0)
        queue.put_many([BODY * 9] * 3, compression="lz4")
        before = {message.id: message.enqueued_at for message in queue.browse()}
        places = {message.id: inspection_place(path, message.id) for message in queue.browse()}
        assert all(abs(at - time.time()) < 60 for at in before.values())
        for number in range(8000):
            churn.put(b"x" * 500)
            message = churn.get()
            if number % 90 == 0 and number < 5000:
                message.release(delay=3600.0)
            else:
                message.ack()
        assert all(inspection_place(path, id) != places[id] for id in before), "nothing was copied"
        assert {message.id: message.enqueued_at for message in queue.browse()} == before
        keyed = queue.read(2)
        assert (keyed.key, keyed.headers) == ("k", {"h": 1})
    with rota.open(path, **SMALL) as repo:
        queue = repo.queue("q")
        assert {message.id: message.enqueued_at for message in queue.browse()} == before
        taken = [queue.get(timeout=0) for _ in range(5)]
        assert {message.id: message.enqueued_at for message in taken} == before


def inspection_place(path: pathlib.Path, id: int) -> tuple[int, int]:
    (message,) = (message for _, message in inspection.live(path) if message.id == id)
    return message.file, message.offset


def test_a_flipped_bit_in_the_time_is_told(directory: pathlib.Path) -> None:
    """Only who asks for the time hears of it: the body has a sum of its own."""
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q")
        queue.put(BODY)
        assert queue.read(1).enqueued_at > 1e9
        segment = next(path for path in sorted((directory / "r").glob("seg.*")) if BODY in path.read_bytes())
        data = segment.read_bytes()
        start = data.rindex(b"ROTC", 0, data.index(BODY))
        (stamp,) = struct.unpack_from("<Q", data, start + HEADER_TIME)
        with segment.open("r+b") as file:
            file.seek(start + HEADER_TIME)
            file.write(struct.pack("<Q", stamp ^ 1 << 40))
        for message in (queue.read(1), queue.get(), next(iter(queue.browse()))):
            assert message.body == BODY
            with pytest.raises(rota.Corrupt, match="the time of the put"):
                _ = message.enqueued_at
        assert queue.stats().oldest_at is None
        assert len(queue.get_many(5, timeout=0)) == 0


def test_the_largest_attributes_leave_room_for_the_time(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="64 MiB", durability="none") as repo:
        queue = repo.queue("q")
        with pytest.raises(ValueError, match="65519"):
            queue.put(b"x", key=b"k" * 65520)
        queue.put(b"x", key=b"k" * 65519)
        assert len(queue.get().key or b"") == 65519
