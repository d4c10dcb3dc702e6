"""A get that does not wait finds what a consumer held that has just died."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

import rota
from tests.crash.kit import Child, Link
from tests.crash.workload import SMALL


def hold(link: Link, path: pathlib.Path) -> None:
    queue = rota.open(path, **SMALL).queue("q")
    link.send(queue.get(timeout=5).id)
    link.receive()


def with_get(queue: rota.Queue) -> rota.Message:
    return queue.get(timeout=0)


def with_get_many(queue: rota.Queue) -> rota.Message:
    return queue.get_many(10)[0]


def with_transaction(queue: rota.Queue) -> rota.Message:
    with queue.repository.transaction() as transaction:
        message = transaction.get(queue)
        assert message.body == b"x"
        return message


@pytest.mark.parametrize("look", [with_get, with_get_many, with_transaction])
def test_a_get_that_does_not_wait_takes_over(
    directory: pathlib.Path, look: Callable[[rota.Queue], rota.Message]
) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q", max_attempts=None)
        for _ in range(5):
            queue.put(b"x")
            with Child(hold, directory / "r") as child:
                held = child.receive()
                assert queue.get_many(10, timeout=0).ids == []
                child.kill()
                message = look(queue)
            assert (message.id, message.attempts) == (held, 2)
            if not message.settled:
                message.ack()
