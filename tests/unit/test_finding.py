"""Finding and taking messages by key, headers and conditions, with and without an index."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import rota
from rota import expressions
from rota._core import platform
from rota._core.index_check import index_lists

SMALL: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}
FIELDS = ("key", "amount", "kind")


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", **SMALL) as opened:
        yield opened
    platform.shift_clock(wall_ns=0)


@pytest.fixture(params=["indexed", "not indexed"])
def queue(repo: rota.Repository, request: pytest.FixtureRequest) -> rota.Queue:
    return repo.queue("q", indexes=FIELDS if request.param == "indexed" else ())


def bodies(messages: list[rota.Message]) -> list[bytes]:
    return [message.body for message in messages]


def fill(queue: rota.Queue) -> None:
    queue.put(b"0", key="a", headers={"amount": 5, "kind": "new"})
    queue.put(b"1", key=b"a", headers={"amount": 5.0, "kind": "old"})
    queue.put(b"2", key="b", headers={"amount": True})
    queue.put(b"3", headers={"amount": "5", "kind": "new"})
    queue.put(b"4", key="a")
    queue.put(b"5", key="a", headers={"amount": 2**70, "kind": b"new", "other": 1.5})


# --- conditions ------------------------------------------------------------------------------------------------------

CONDITIONS: list[tuple[str, Any, list[int]]] = [
    ("key is text", rota.key == "a", [0, 4, 5]),
    ("key is bytes", rota.key == b"a", [1]),
    ("int and float are one number", rota.header("amount") == 5, [0, 1]),
    ("float and int are one number", rota.header("amount") == 5.0, [0, 1]),
    ("True is 1", rota.header("amount") == 1, [2]),
    ("large float and int", rota.header("amount") == float(2**70), [5]),
    ("text is no number", rota.header("amount") == "5", [3]),
    ("bytes are no text", rota.header("kind") == b"new", [5]),
    ("not equal wants a value", rota.header("amount") != 5, [2, 3, 5]),
    ("order of numbers", rota.header("amount") > 2, [0, 1, 5]),
    ("at most", rota.header("amount") <= 1, [2]),
    ("order of text", rota.header("kind") < "o", [0, 3]),
    ("one of several", rota.key.in_(["b", b"a", "none"]), [1, 2]),
    ("and", (rota.key == "a") & (rota.header("kind") == "new"), [0]),
    ("or over two fields", (rota.key == "b") | (rota.header("kind") == "old"), [1, 2]),
    ("not", ~(rota.key == "a"), [1, 2, 3]),
    ("and with what no index has", (rota.key == "a") & (rota.header("other") > 1), [5]),
    ("or with what no index has", (rota.key == "b") | (rota.header("other") > 1), [2, 5]),
    ("callable", lambda m: m.body in (b"3", b"4"), [3, 4]),
    ("nothing", rota.header("nothing") == 1, []),
]


@pytest.mark.parametrize(("condition", "expected"), [row[1:] for row in CONDITIONS], ids=[row[0] for row in CONDITIONS])
def test_find_and_get_by_condition(queue: rota.Queue, condition: Any, expected: list[int]) -> None:
    fill(queue)
    wanted = [b"%d" % i for i in expected]
    assert sorted(bodies(queue.find(where=condition))) == wanted
    taken = []
    for _ in wanted:
        message = queue.get(timeout=0, where=condition)
        taken.append(message.body)
        message.ack()
    assert sorted(taken) == wanted
    with pytest.raises(rota.Empty):
        queue.get(timeout=0, where=condition)
    assert len(queue) == 6 - len(wanted)
    index_lists(queue)


def test_find_by_arguments(queue: rota.Queue) -> None:
    fill(queue)
    assert bodies(queue.find(key="a")) == [b"0", b"4", b"5"]
    assert bodies(queue.find(key="a", limit=2)) == [b"0", b"4"] or not queue.figures()["indexes"]
    assert bodies(queue.find(key="a", header={"kind": "new"})) == [b"0"]
    assert bodies(queue.find(header={"amount": 5}, where=lambda m: m.key == b"a")) == [b"1"]
    assert bodies(queue.find(header={"amount": 5}, where=rota.key == "a")) == [b"0"]
    assert bodies(queue.find(limit=3)) == [b"0", b"1", b"2"] and queue.find(limit=0) == []


def test_find_sees_what_others_hold(queue: rota.Queue) -> None:
    fill(queue)
    held = queue.get(timeout=0)
    assert bodies(queue.find(key="a")) == [b"0", b"4", b"5"]
    assert [m.attempts for m in queue.find(key="a", limit=1)] == [0]
    held.nack()
    assert queue.find(key="a")[0].attempts == 1


def test_conditions_are_not_truth_values() -> None:
    with pytest.raises(TypeError, match="&"):
        bool(rota.key == "a")
    with pytest.raises(TypeError, match="bytes or str"):
        _ = rota.key == 5
    with pytest.raises(TypeError):
        _ = (rota.key == "a") & True  # type: ignore[operator]
    with pytest.raises(TypeError):
        rota.header(5)  # type: ignore[arg-type]
    assert repr((rota.key == "a") & ~rota.header("n").in_([1])) == "((rota.key == 'a') & ~rota.header('n').in_([1]))"
    assert isinstance(rota.key, expressions.Field)


def test_conditions_of_another_kind_are_refused(queue: rota.Queue) -> None:
    with pytest.raises(TypeError):
        queue.get(timeout=0, where="key == 'a'")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        queue.find(where=5)  # type: ignore[arg-type]


def test_a_callable_that_raises_takes_nothing(queue: rota.Queue) -> None:
    fill(queue)
    with pytest.raises(ZeroDivisionError):
        queue.get(timeout=0, where=lambda m: 1 / 0)
    assert queue.stats().claimed == 0 and queue.get(timeout=0).body == b"0"


# --- taking ----------------------------------------------------------------------------------------------------------


def test_what_was_chosen_is_a_message_like_others(queue: rota.Queue) -> None:
    fill(queue)
    message = queue.get(timeout=0, where=rota.key == "b")
    assert (message.body, message.attempts) == (b"2", 1)
    message.nack()
    message = queue.get(timeout=0, where=rota.key == "b")
    assert message.attempts == 2
    message.nack(delay=1000)
    with pytest.raises(rota.Empty):
        queue.get(timeout=0, where=rota.key == "b")
    platform.shift_clock(wall_ns=int(1001e9))
    message = queue.get(timeout=0, where=rota.key == "b")
    assert message.attempts == 3
    message.release()
    with queue.get_many(100) as batch:
        assert sorted(batch.bodies) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert len(queue) == 0


def test_many_returns_leave_one_entry(queue: rota.Queue) -> None:
    """A message that is chosen and returned for ever does not fill the heap."""
    fill(queue)
    for _ in range(50):
        queue.get(timeout=0, where=rota.key == "b").release()
        queue.get(timeout=0, where=lambda m: m.key == "b").release()
    found = []
    while len(queue):
        with queue.get(timeout=0) as message:
            found.append(message.body)
    assert sorted(found) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_priority_comes_first(queue: rota.Queue) -> None:
    for i, priority in enumerate((0, 5, 9, 5)):
        queue.put(b"%d" % i, key="a", priority=priority)
    assert bodies(queue.find(key="a"))[0] == (b"2" if queue.figures()["indexes"] else b"0")
    assert [queue.get(timeout=0, where=rota.key == "a").body for _ in range(4)] == [b"2", b"1", b"3", b"0"]


def test_expired_messages_are_not_taken(queue: rota.Queue) -> None:
    queue.put(b"old", key="a", ttl=10)
    queue.put(b"new", key="a")
    platform.shift_clock(wall_ns=int(11e9))
    assert queue.get(timeout=1, where=rota.key == "a").body == b"new"


def test_strict_queues_and_stopped_ones(repo: rota.Repository) -> None:
    strict = repo.queue("s", order="strict", indexes=("key",))
    strict.put(b"x", key="a")
    with pytest.raises(rota.StateError, match="strict"):
        strict.get(timeout=0, where=rota.key == "a")
    other = repo.queue("o", indexes=("key",))
    other.put(b"x", key="a")
    other.stop()
    with pytest.raises(rota.QueueStopped):
        other.get(timeout=0, where=rota.key == "a")


def test_group_order_holds_for_chosen_ones(repo: rota.Repository) -> None:
    queue = repo.queue("g", order="group", indexes=("kind",))
    for i in range(3):
        queue.put(b"%d" % i, key="a", headers={"kind": "new"})
    first = queue.get(timeout=0, where=rota.header("kind") == "new")
    assert first.body == b"0"
    with pytest.raises(rota.Empty):
        queue.get(timeout=0, where=rota.key == "a")
    first.ack()
    assert queue.get(timeout=0, where=lambda m: m.key == "a").body == b"1"


def test_transactions_choose_too(queue: rota.Queue) -> None:
    fill(queue)
    with queue.repository.transaction() as t:
        assert t.get(queue, where=rota.key == "b").body == b"2"
    assert b"2" not in bodies(queue.find())


def test_a_waiting_get_wakes_for_what_is_meant(queue: rota.Queue) -> None:
    """Several clerks share a reply queue; each gets its own."""
    got: dict[str, bytes] = {}
    fill(queue)

    def clerk(name: str) -> None:
        message = queue.get(timeout=20, where=rota.key == name)
        got[name] = message.body
        message.ack()

    threads = [threading.Thread(target=clerk, args=(f"clerk-{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for i in reversed(range(6)):
        queue.put(b"for %d" % i, key=f"clerk-{i}")
    for thread in threads:
        thread.join(30)
    assert got == {f"clerk-{i}": b"for %d" % i for i in range(6)}
    assert len(queue) == 6


def test_ranges_do_not_span_what_was_chosen(directory: pathlib.Path) -> None:
    """The ack of a range, replayed, would settle a message in the middle that was taken by itself and never logged."""
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("q", indexes=("key",), lease=1e6)
        for i in range(9):
            queue.put(b"%d" % i, key="chosen" if i == 4 else None)
        held = queue.get(timeout=0, where=rota.key == "chosen")
        batch = queue.get_many(100)
        assert batch.bodies == [b"%d" % i for i in range(9) if i != 4]
        batch.ack()
        held.release()
        repo.sync()
        from tests.crash.kit import Child, Link

        def look(link: Link) -> None:
            from rota import inspection

            link.send([message.id for _, message in inspection.live(directory / "r")])

        with Child(look) as child:
            assert child.receive() == [held.id]


def test_indexes_are_options_of_the_queue(repo: rota.Repository) -> None:
    queue = repo.queue("q", indexes=FIELDS)
    assert queue.figures()["indexes"] == FIELDS
    assert repo.queue("q", indexes=list(FIELDS)).name == "q"
    assert repo.queue("q.errors").figures()["indexes"] == FIELDS
    with pytest.raises(rota.OptionMismatch):
        repo.queue("q", indexes=("key",))
    for wrong in (("a", "a"), ("",), ("x" * 300,), [str(i) for i in range(15)]):
        with pytest.raises(ValueError, match="index"):
            repo.queue("w", indexes=wrong)
    with pytest.raises(TypeError):
        repo.queue("w", indexes="key")
    most = repo.queue("most", indexes=["key", *(f"h{i}" for i in range(14))])
    most.put(b"x", key="a", headers={f"h{i}": i for i in range(14)})
    assert [len(most.find(header={f"h{i}": i})) for i in range(14)] == [1] * 14
    assert len(index_lists(most)) == 15


# --- highest first ---------------------------------------------------------------------------------------------------


def test_highest_first(repo: rota.Repository) -> None:
    queue = repo.queue("h", order="highest", by="amount", indexes=("kind",))
    amounts: list[Any] = [5, 1, 9.5, True, -3, 9.5, "9", None, 2**70, float("-inf"), float("nan")]
    for i, amount in enumerate(amounts):
        queue.put(b"%d" % i, headers=None if amount is None else {"amount": amount, "kind": i % 2})
    held = queue.get(timeout=0)
    assert held.body == b"8"
    held.nack()
    assert queue.get(timeout=0, where=rota.header("kind") == 1).body == b"1"  # of what is meant: by arrival
    with queue.get_many(100) as batch:
        assert batch.bodies == [b"8", b"2", b"5", b"0", b"3", b"6", b"7", b"10", b"4", b"9"]


def test_highest_first_survives_reopening(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("h", order="highest", by="amount", max_attempts=1)
        for i in range(200):
            queue.put(b"%d" % i + b"." * 500, headers={"amount": i * 37 % 101})
        queue.get(timeout=0).nack()
        errors = repo.queue("h.errors")
        errors.redrive(errors.ids())
    with rota.open(directory / "r", **SMALL) as repo:
        queue = repo.queue("h")
        amounts = [message.headers["amount"] for message in iter_all(queue)]
    assert len(amounts) == 200 and amounts == sorted(amounts, reverse=True)


def iter_all(queue: rota.Queue) -> Iterator[rota.Message]:
    while len(queue):
        with queue.get(timeout=0) as message:
            yield message


def test_an_old_cheap_one_is_served_in_bounded_time(repo: rota.Repository) -> None:
    """With a rate of 1 a second, what lacks 100 waits 100 seconds at most, whatever else comes."""
    queue = repo.queue("h", order="highest", by="amount", age_rate=1.0)
    queue.put(b"cheap", headers={"amount": 0})
    served_at = None
    for second in range(200):
        platform.shift_clock(wall_ns=int(second * 1e9))
        queue.put(b"dear", headers={"amount": 100})
        with queue.get(timeout=0) as message:
            if message.body == b"cheap":
                served_at = second
                break
    assert served_at is not None and 99 <= served_at <= 101


def test_orders_by_value_have_their_options(repo: rota.Repository) -> None:
    with pytest.raises(ValueError, match="by="):
        repo.queue("w", order="highest")
    with pytest.raises(ValueError, match="by="):
        repo.queue("w", by="amount")
    with pytest.raises(ValueError, match="age_rate"):
        repo.queue("w", order="highest", by="amount", age_rate=-1.0)
    queue = repo.queue("h", order="highest", by="amount", age_rate=0.5)
    assert (queue.figures()["by"], queue.figures()["age_rate"]) == ("amount", 0.5)
    with pytest.raises(ValueError, match="highest"):
        queue.configure(order="skip")
    with pytest.raises(rota.OptionMismatch):
        queue.put(b"x", priority=2)
