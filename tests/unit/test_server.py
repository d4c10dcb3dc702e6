"""Servers: what becomes of a request, row by row; several classes; options.

A test waits for what a server does through a queue or an event, never for time.
"""

from __future__ import annotations

import json
import pathlib
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import rota
from tests.asking import PATIENCE_S, answer, ask

AT_ONCE = rota.Backoff(first=0.0, most=0.0)
OPTIONS: dict[str, Any] = {"capacity": "4 MiB", "durability": "none"}


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", **OPTIONS) as found:
        yield found


# --- what becomes of a request ----------------------------------------------------------------------------------------


def test_a_request_is_answered_and_settled_in_one_commit(repo: rota.Repository) -> None:
    ask(repo, b"two tickets")
    with repo.server("orders", lambda message: message.body.upper()):
        assert answer(repo) == (b"TWO TICKETS", b"1", "ok", None)
        assert len(repo.queue("orders")) == 0  # the reply is seen with the settlement, not before


def test_what_the_handler_puts_comes_with_the_reply(repo: rota.Repository) -> None:
    packing = repo.queue("packing")

    def handle(message: rota.Message, t: rota.Transaction) -> bytes:
        t.put(packing, message.body)
        return b"packed"

    ask(repo, b"a lamp")
    with repo.server("orders", handle):
        assert answer(repo)[0] == b"packed"
    assert [m.body for m in packing.get_many(2)] == [b"a lamp"]


def test_a_message_that_asks_for_no_reply_is_settled(repo: rota.Repository) -> None:
    seen = threading.Event()

    def handle(message: rota.Message) -> None:
        seen.set()

    repo.queue("orders").put(b"no answer, please")
    with repo.server("orders", handle):
        assert seen.wait(PATIENCE_S)
    assert len(repo.queue("orders")) == 0


def test_an_exception_undoes_everything_and_counts(repo: rota.Repository) -> None:
    attempts = []

    def handle(message: rota.Message, t: rota.Transaction) -> bytes:
        attempts.append(message.attempts)
        t.put(repo.queue("packing"), b"half")
        if len(attempts) < 3:
            raise RuntimeError("no lamp in the house")
        return b"at last"

    ask(repo, b"a lamp")
    with repo.server("orders", handle, backoff=AT_ONCE):
        assert answer(repo)[0] == b"at last"
    assert attempts == [1, 2, 3]
    assert len(repo.queue("packing")) == 1


def test_a_request_that_failed_waits_for_its_back_off(repo: rota.Repository) -> None:
    raised = threading.Event()

    def handle(message: rota.Message) -> None:
        raised.set()
        raise RuntimeError

    repo.queue("orders").put(b"a lamp")
    with repo.server("orders", handle, backoff=rota.Backoff(first=1000.0, most=2000.0, jitter=0.0)):
        assert raised.wait(PATIENCE_S)
    stats = repo.queue("orders").stats()
    assert (stats.delayed, stats.ready, stats.claimed) == (1, 0, 0)


def test_attempts_used_up_end_in_the_error_queue(repo: rota.Repository) -> None:
    def handle(message: rota.Message) -> None:
        raise RuntimeError("never")

    queue = repo.queue("orders", max_attempts=3)
    identity = queue.put(b"poison").id
    with repo.server("orders", handle, backoff=AT_ONCE):
        message = repo.queue("orders.errors").get(timeout=PATIENCE_S)
    assert (message.id, message.body) == (identity, b"poison")


def test_a_refused_request_is_answered_failed_and_nothing_else_is_kept(repo: rota.Repository) -> None:
    calls = []

    def handle(message: rota.Message, t: rota.Transaction) -> bytes:
        calls.append(message.id)
        t.put(repo.queue("packing"), b"half")
        raise rota.Refused("sold out")

    ask(repo, b"a piano")
    with repo.server("orders", handle):
        assert answer(repo) == (b"", b"1", "failed", "sold out")
    assert (len(calls), len(repo.queue("packing")), len(repo.queue("orders"))) == (1, 0, 0)


def test_a_refused_message_without_a_reply_is_not_lost(repo: rota.Repository) -> None:
    def handle(message: rota.Message) -> None:
        raise rota.Refused("sold out")

    repo.queue("orders", max_attempts=2).put(b"a piano")
    with repo.server("orders", handle, backoff=AT_ONCE):
        assert repo.queue("orders.errors").get(timeout=PATIENCE_S).body == b"a piano"


def test_not_now_does_not_count(repo: rota.Repository) -> None:
    attempts = []

    def handle(message: rota.Message) -> bytes:
        attempts.append(message.attempts)
        if len(attempts) < 9:  # more than max_attempts
            raise rota.NotNow(0)
        return b"now"

    ask(repo, b"a lamp")
    with repo.server("orders", handle):
        assert answer(repo)[0] == b"now"
    assert attempts == [1] * 9


def test_a_killed_request_is_not_answered_by_its_handler(repo: rota.Repository) -> None:
    inside, killed = threading.Event(), threading.Event()

    def handle(message: rota.Message, t: rota.Transaction) -> bytes:
        if message.body == b"second":
            return b"answered"
        t.put(repo.queue("packing"), b"half")
        inside.set()
        assert killed.wait(PATIENCE_S)
        return b"too late"

    identity = ask(repo, b"first", b"1")
    with repo.server("orders", handle):
        assert inside.wait(PATIENCE_S)
        assert repo.queue("orders").kill(identity)
        killed.set()
        ask(repo, b"second", b"2")
        while (found := answer(repo))[1] != b"2":
            assert found[2] == "cancelled"
        assert found == (b"answered", b"2", "ok", None)
    assert len(repo.queue("packing")) == 0


def test_a_reply_of_a_wrong_type_is_an_error_of_the_handler(repo: rota.Repository) -> None:
    queue = repo.queue("orders", max_attempts=1)
    ask(repo, b"a lamp")
    handler: Any = lambda message: 42  # noqa: E731
    with repo.server("orders", handler, backoff=AT_ONCE):
        assert repo.queue("orders.errors").get(timeout=PATIENCE_S).body == b"a lamp"
    assert len(queue) == 0


def test_a_handler_that_ends_the_transaction_is_told_so(repo: rota.Repository) -> None:
    def handle(message: rota.Message, t: rota.Transaction) -> None:
        t.commit()

    repo.queue("orders", max_attempts=1).put(b"a lamp")
    with repo.server("orders", handle, backoff=AT_ONCE):
        assert repo.queue("orders.errors").get(timeout=PATIENCE_S).body == b"a lamp"


def test_a_reply_whose_queue_is_gone_is_dropped(repo: rota.Repository) -> None:
    ask(repo, b"a lamp", b"1")
    repo.destroy("replies")
    seen = threading.Event()

    def handle(message: rota.Message) -> bytes:
        seen.set()
        return b"for nobody"

    with repo.server("orders", handle):
        assert seen.wait(PATIENCE_S)
    assert len(repo.queue("orders")) == 0


# --- several classes, typed handlers ----------------------------------------------------------------------------------


def test_each_queue_has_its_handler_and_its_threads(repo: rota.Repository) -> None:
    server = repo.server(threads=2)

    @server.handle("orders", decode=json.loads, encode=lambda sum: json.dumps(sum).encode())
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    @server.handle("refunds", threads=1)
    def refund(message: rota.Message) -> bytes:
        return b"refunded " + message.body

    with server:
        ask(repo, b"[1, 2, 3]", b"1")
        assert answer(repo) == (b"6", b"1", "ok", None)
        ask(repo, b"7", b"2", queue="refunds")
        assert answer(repo) == (b"refunded 7", b"2", "ok", None)
        ask(repo, b"{", b"3")
        body, rid, status, error = answer(repo)
        assert (body, rid, status) == (b"", b"3", "failed") and "cannot be read" in str(error)
        with pytest.raises(rota.StateError, match="runs"):
            server.handle("more")(refund)
    with pytest.raises(ValueError, match="has a handler"):
        server.handle("orders")(refund)
    assert add([1, 1]) == 2  # the function is what it was


@pytest.mark.parametrize(
    "options",
    [{"threads": 0}, {"processes": -1}, {"keep": -1.0}, {"grace": float("nan")}, {"threads": 10**6}],
    ids=str,
)
def test_impossible_options_are_refused(repo: rota.Repository, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        repo.server("orders", lambda message: None, **options)


def test_wrong_calls(repo: rota.Repository) -> None:
    with pytest.raises(TypeError):
        repo.server("orders")
    with pytest.raises(rota.StateError, match="no handler"):
        repo.server().start()
    with repo.server("orders", lambda message: None) as server, pytest.raises(rota.StateError, match="already"):
        server.start()
    with pytest.raises(ValueError):
        rota.Backoff(first=2.0, most=1.0)


def test_back_off_doubles_up_to_its_most_and_is_spread(seed: int) -> None:
    plain = rota.Backoff(first=1.0, factor=2.0, most=10.0, jitter=0.0)
    assert [plain.delay(n) for n in (1, 2, 3, 4, 5, 10**9)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    spread = [rota.Backoff(first=1.0, jitter=0.5).delay(1) for _ in range(100)]
    assert all(0.5 <= delay <= 1.0 for delay in spread) and len(set(spread)) > 50
    assert pickle.loads(pickle.dumps(plain)) == plain
