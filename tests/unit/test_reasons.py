"""Why a message was returned: kept with it through return, error queue, redrive, cleaning and restart."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from click.testing import CliRunner

import rota
from rota.cli.error_queues import errors
from tests.asking import answer, ask

SMALL: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}


@pytest.mark.parametrize("reopened", [False, True], ids=["at once", "reopened"])
@pytest.mark.parametrize("body", [b"", b"x" * 5000], ids=["empty", "5 kB"])
def test_a_reason_is_seen_by_the_next(directory: pathlib.Path, body: bytes, reopened: bool) -> None:
    repo = rota.open(directory / "r", **SMALL)
    queue = repo.queue("q")
    queue.put(body, key="k", headers={"n": 1}, priority=3, ttl=1000)
    first = queue.get(timeout=0)
    assert first.error is None
    first.nack(reason="no seat \N{SNOWMAN}")
    if reopened:
        repo.close()
        repo = rota.open(directory / "r", **SMALL)
        queue = repo.queue("q")
    with repo:
        second = queue.get(timeout=0)
        assert (second.body, second.key, second.headers, second.priority) == (body, "k", {"n": 1}, 3)
        assert (second.id, second.attempts, second.enqueued_at) == (first.id, 2, first.enqueued_at)
        assert second.error == "no seat \N{SNOWMAN}"
        second.nack(reason="another")
        third = queue.get(timeout=0)
        assert third.error == "another"
        third.nack()
        fourth = queue.get(timeout=0)
        assert (fourth.error, fourth.attempts) == ("another", 4)
        fourth.ack()
        assert len(queue) == 0


def test_a_reason_goes_to_the_error_queue_and_back_and_survives_cleaning(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q", max_attempts=1)
        identity = queue.put(b"bad").id
        queue.get(timeout=0).nack(reason="ValueError: bad")
        for _ in range(400):
            queue.put(b"f" * 10000)
            queue.get(timeout=0).ack()
        (found,) = repo.queue("q.errors").browse()
        assert (found.id, found.error, found.attempts) == (identity, "ValueError: bad", 1)
        repo.queue("q.errors").redrive([identity])
        with queue.get(timeout=0) as again:
            assert (again.body, again.error, again.attempts) == (b"bad", "ValueError: bad", 1)


def test_the_failed_reply_says_the_reason(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        orders = repo.queue("orders", max_attempts=1)
        ask(repo, b"x")
        orders.get(timeout=0).nack(reason="ValueError: no seat")
        assert answer(repo) == (b"", b"1", "failed", "ValueError: no seat")


def test_each_of_a_batch_has_it(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q")
        queue.put_many([b"a", b"b", b"c"])
        queue.get_many(3).nack(reason="all of them")
        batch = queue.get_many(3)
        assert [message.error for message in batch] == ["all of them"] * 3
        batch.ack()
        assert len(queue) == 0


def test_a_long_reason_is_shortened_and_a_reason_is_text(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="64 MiB", durability="none") as repo:
        queue = repo.queue("q")
        queue.put(b"x", headers={"h": b"h" * 65000})
        message = queue.get(timeout=0)
        with pytest.raises(TypeError):
            message.nack(reason=b"bytes")  # type: ignore[arg-type]
        message.nack(reason="r" * 9000)
        again = queue.get(timeout=0)
        assert again.error is not None
        assert 0 < len(again.error) < 600
        assert again.headers == {"h": b"h" * 65000}


def test_who_lost_the_claim_leaves_no_reason(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q")
        identity = queue.put(b"x").id
        message = queue.get(timeout=0)
        message.extend(0.001)
        with queue.get(timeout=5) as other:
            with pytest.raises(rota.LeaseLost):
                message.nack(reason="too late")
            assert other.id == identity
            (seen,) = queue.browse()
            assert seen.error is None


def fill(queue: rota.Queue) -> None:
    while True:
        queue.put(b"x" * 10000, timeout=0)


def test_a_repository_without_room_takes_the_return_without_its_reason(
    directory: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q")
        with pytest.raises(rota.Full):
            fill(queue)
        kept = 0
        for _ in range(len(queue)):
            message = queue.get(timeout=0)
            message.nack(delay=1000, reason="y" * 4000)
            assert message.settled
            kept += message.error is not None
        assert kept < len(queue)
        assert "no room" in caplog.text
        assert queue.stats().delayed == len(queue)


def test_the_command_line_shows_it(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q", max_attempts=1)
        queue.put(b"bad")
        queue.get(timeout=0).nack(reason="ValueError: no seat")
    run = CliRunner().invoke(errors, [str(directory / "r"), "--json"], standalone_mode=False)
    assert json.loads(run.output)["error"] == "ValueError: no seat"
    run = CliRunner().invoke(errors, [str(directory / "r")], standalone_mode=False)
    assert "attempts used up: ValueError: no seat" in run.output
