"""The bodies of a batch, read in groups: every length, neighbours of another kind, and one that is damaged."""

from __future__ import annotations

import pathlib
import random

import pytest

import rota


def test_bodies_of_every_length_and_kind(directory: pathlib.Path, seed: int) -> None:
    """Three of one length are summed side by side; others, and those with attributes, lie between them."""
    draw = random.Random(seed)
    with rota.open(directory / "r", create=True, capacity="64 MiB", durability="none") as repo:
        queue = repo.queue("q")
        expected: list[bytes] = []
        while len(expected) < 1500:
            length = draw.choice([0, 1, 7, 8, 100, 100, 100, 400, 5000])
            bodies = [draw.randbytes(length) for _ in range(draw.randrange(1, 9))]
            if draw.random() < 0.2:
                queue.put(bodies[0], key=b"k", headers={"a": "b"})
                bodies = bodies[:1]
            else:
                queue.put_many(bodies)
            expected += bodies
        got: list[bytes] = []
        while len(batch := queue.get_many(draw.randrange(1, 400))):
            got += batch.bodies
            batch.ack()
        assert got == expected
        assert queue.stats().ready == 0


@pytest.mark.parametrize("place", range(7))
def test_one_that_is_damaged_is_told(directory: pathlib.Path, place: int) -> None:
    """Whatever its place in a group of three; its neighbours are read by themselves."""
    bodies = [b"body number %d" % i + b"x" * 50 for i in range(7)]
    with rota.open(directory / "r", create=True, capacity="1 MiB", durability="none") as repo:
        queue = repo.queue("q")
        queue.put_many(bodies)
        for path in (directory / "r").glob("seg.*"):
            data = path.read_bytes()
            if (at := data.find(bodies[place])) >= 0:
                with path.open("r+b") as file:
                    file.seek(at + 3)
                    file.write(b"?")
        batch = queue.get_many(7)
        with pytest.raises(rota.Corrupt):
            _ = batch.bodies
        others = [message for number, message in enumerate(batch) if number != place]
        assert [message.body for message in others] == [body for number, body in enumerate(bodies) if number != place]
