"""A put with a dedup key adds one message within the window of its queue, and its answer survives all that happens."""

from __future__ import annotations

import multiprocessing
import pathlib
import random
import threading
import time
from collections import OrderedDict
from typing import Any

import pytest

import rota
from rota import inspection

SMALL: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}


@pytest.fixture
def repo(directory: pathlib.Path) -> Any:
    with rota.open(directory / "r", create=True, **SMALL) as repo:
        yield repo


def drained(queue: rota.Queue) -> None:
    """Return when what expires has expired."""
    end = time.monotonic() + 10
    while batch := queue.get_many(1):
        assert time.monotonic() < end
        batch.release()


def queue_of(repo: rota.Repository, count: int = 100) -> rota.Queue:
    return repo.queue("q", dedup_count=count)


def test_the_second_put_gives_the_first_receipt(repo: rota.Repository) -> None:
    queue = queue_of(repo)
    first, second = queue.put(b"one", dedup="k"), queue.put(b"two", dedup="k", priority=3, headers={"a": 1})
    assert (first.duplicate, second.duplicate, second.id, second.count) == (False, True, first.id, 1)
    assert [message.body for message in queue.browse()] == [b"one"]
    assert queue.put(b"plain").duplicate is False


def test_text_and_bytes_are_different_keys_and_queues_know_their_own(repo: rota.Repository) -> None:
    queue, other = queue_of(repo), repo.queue("other", dedup_count=100)
    receipts = [q.put(b"x", dedup=key) for q in (queue, other) for key in ("k", b"k", "", b"")]
    assert not any(receipt.duplicate for receipt in receipts)
    assert queue.put(b"x", dedup=b"k").id == receipts[1].id


@pytest.mark.parametrize("how", ["ack", "kill", "purge", "expired", "moved"])
def test_what_became_of_the_message_does_not_matter(repo: rota.Repository, how: str) -> None:
    queue = repo.queue("q", dedup_count=10, max_attempts=1)
    receipt = queue.put(b"x", dedup="k", ttl=1e-6 if how == "expired" else None)
    if how == "ack":
        queue.get(timeout=0).ack()
    elif how == "kill":
        queue.kill(receipt.id)
    elif how == "purge":
        assert queue.purge() == 1
    elif how == "moved":
        queue.get(timeout=0).nack()
        assert repo.queue("q.errors").redrive([receipt.id]) == 1
    else:
        drained(queue)
    again = queue.put(b"x", dedup="k")
    assert (again.id, again.duplicate) == (receipt.id, True)


def test_a_window_by_count_forgets_the_oldest_put_and_a_duplicate_renews_nothing(repo: rota.Repository) -> None:
    queue = queue_of(repo, 3)
    for key in "abc":
        queue.put(b"", dedup=key)
    assert queue.put(b"", dedup="a").duplicate
    assert not queue.put(b"", dedup="d").duplicate
    assert not queue.put(b"", dedup="a").duplicate  # it pushed b out
    assert [queue.put(b"", dedup=key).duplicate for key in "cda"] == [True] * 3


def test_a_window_by_time_ends_and_gives_its_room_back(repo: rota.Repository) -> None:
    queue = repo.queue("q", dedup_window=0.02)
    share = repo.stats().capacity // 100 // 64
    for number in range(3):
        keys = [f"{number}-{key}" for key in range(share - 1)]  # and the one that asked
        assert not any(queue.put(b"", dedup=key).duplicate for key in keys)
        end = time.monotonic() + 10
        while queue.put(b"", dedup=keys[-1]).duplicate:
            assert time.monotonic() < end
        queue.purge()
    long = repo.queue("long", dedup_count=share, dedup_window=3600.0)
    queue.forget(keys[-1])
    assert [long.put(b"", dedup="k").duplicate for _ in range(2)] == [False, True]


def test_memory_is_bounded_by_a_share_of_the_capacity(repo: rota.Repository) -> None:
    queue = repo.queue("q", dedup_window=3600.0)
    for number in range(repo.stats().capacity // 100 // 64):
        queue.put(b"", dedup=str(number))
    with pytest.raises(rota.Full, match="hundredth"):
        queue.put(b"", dedup="one more")
    assert queue.put(b"", dedup="0").duplicate
    assert queue.forget("0")
    assert not queue.put(b"", dedup="new").duplicate
    with pytest.raises(rota.Full):
        repo.queue("other", dedup_window=3600.0).put(b"", dedup="k")
    repo.destroy("q", force=True)
    assert not repo.queue("other").put(b"", dedup="k").duplicate


def test_forget_lets_one_more_in(repo: rota.Repository) -> None:
    queue = queue_of(repo)
    first = queue.put(b"", dedup="k")
    assert (queue.forget("k"), queue.forget("k"), queue.forget("never")) == (True, False, False)
    second = queue.put(b"", dedup="k")
    assert not second.duplicate
    assert second.id > first.id
    assert queue.put(b"", dedup="k").id == second.id


def test_a_queue_that_takes_the_number_knows_no_key(repo: rota.Repository) -> None:
    queue = queue_of(repo)
    queue.put(b"", dedup="k")
    repo.destroy("q", force=True)
    other = repo.queue("another", dedup_count=5)
    assert other.number_ == queue.number_
    assert not other.put(b"", dedup="k").duplicate
    with pytest.raises(rota.NotFound):
        queue.put(b"", dedup="k")


def test_a_duplicate_needs_no_room(repo: rota.Repository) -> None:
    queue = repo.queue("q", dedup_count=5, max_messages=1)
    receipt = queue.put(b"", dedup="k")
    with pytest.raises(rota.Full):
        queue.put(b"", dedup="other", timeout=0)
    assert queue.put(b"", dedup="k", timeout=0).id == receipt.id
    queue.stop()
    assert queue.put(b"", dedup="k", timeout=0).id == receipt.id


def test_a_duplicate_at_level_sync_depends_on_what_it_saw(repo: rota.Repository) -> None:
    queue = queue_of(repo)
    assert not queue.put(b"", dedup="k").durable
    assert queue.put(b"", dedup="k", durability="sync").durable


@pytest.mark.parametrize(
    ("options", "keywords", "error"),
    [
        ({}, {"dedup": "k"}, rota.StateError),
        ({"dedup_count": 1}, {"dedup": 7}, TypeError),
        ({"dedup_count": 1}, {"dedup": "k", "priority": 11}, ValueError),
        ({"dedup_count": 1}, {"dedup": "k", "ttl": -1}, ValueError),
    ],
)
def test_what_is_refused_adds_nothing(
    repo: rota.Repository, options: dict[str, Any], keywords: dict[str, Any], error: type[Exception]
) -> None:
    queue = repo.queue("q", **options)
    with pytest.raises(error):
        queue.put(b"", **keywords)
    assert len(queue) == 0


@pytest.mark.parametrize(
    "options",
    [{"dedup_count": 0}, {"dedup_window": 0.0}, {"dedup_window": -1.0}, {"dedup_count": 1, "volatile": True}],
)
def test_impossible_windows(repo: rota.Repository, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"dedup|volatile"):
        repo.queue("q", **options)


def test_the_window_is_stored_and_is_fixed(repo: rota.Repository) -> None:
    queue = repo.queue("q", dedup_count=5, dedup_window=2.5, indexes=("key", "city"))
    assert repo.queue("q", dedup_count=5, dedup_window=2.5).number_ == queue.number_
    with pytest.raises(rota.OptionMismatch):
        repo.queue("q", dedup_count=6)
    with pytest.raises(ValueError, match="cannot change"):
        queue.configure(dedup_count=6)  # type: ignore[call-arg]
    queue.configure(lease=3.0)
    assert not queue.put(b"", key="a", headers={"city": "x"}, dedup="k").duplicate
    assert queue.put(b"", dedup="k").duplicate
    assert len(queue.find(header={"city": "x"})) == 1


def test_in_a_transaction(repo: rota.Repository) -> None:
    queue = queue_of(repo)
    old = queue.put(b"old", dedup="old")
    with repo.transaction() as t:
        new, twin = t.put(queue, b"new", dedup="new"), t.put(queue, b"twin", dedup="new")
        known = t.put(queue, b"known", dedup="old")
        assert (known.duplicate, known.id, twin.duplicate, twin.id, new.duplicate) == (True, old.id, True, None, False)
        place = t.savepoint()
        t.put(queue, b"undone", dedup="undone")
        place.rollback()
        dropped = t.put(queue, b"dropped", dedup="dropped")
        t.kill(dropped)
        assert t.get(queue).body == b"old"
        with pytest.raises(rota.Empty):  # its own put with a key is for others
            t.get(queue)
    assert (twin.id, twin.ids, twin.count, twin.visible) == (new.id, new.ids, 1, True)
    assert [message.body for message in queue.browse()] == [b"new"]
    assert [queue.put(b"", dedup=key).duplicate for key in ("new", "undone", "dropped")] == [True, False, False]


def test_an_aborted_transaction_leaves_no_key(repo: rota.Repository) -> None:
    queue = queue_of(repo)
    t = repo.transaction()
    t.put(queue, b"", dedup="k")
    t.rollback()
    assert not queue.put(b"", dedup="k").duplicate


def test_the_commit_refuses_a_key_that_came_meanwhile(repo: rota.Repository) -> None:
    queue = queue_of(repo)
    queue.put(b"work")
    t = repo.transaction()
    t.get(queue)
    t.put(queue, b"answer", dedup="k")
    other = queue.put(b"faster", dedup="k")
    with pytest.raises(rota.Conflict) as caught:
        t.commit()
    assert caught.value.id == other.id
    assert sorted(message.body for message in queue.browse()) == [b"faster", b"work"]
    with repo.transaction() as t:
        assert t.put(queue, b"answer", dedup="k").id == other.id


def test_a_handle_with_a_token(repo: rota.Repository) -> None:
    queue = queue_of(repo)
    queue.fence(5)
    leader = queue.under(5)
    first = leader.put(b"", dedup="k")
    assert (first.duplicate, leader.put(b"", dedup="k").id, len(queue)) == (False, first.id, 1)
    with pytest.raises(rota.StaleLeader):
        queue.under(4).put(b"", dedup="other")


def test_a_transaction_bounds_its_keys(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", create=True, capacity="64 MiB", durability="none") as repo:
        queue = repo.queue("q", dedup_count=100)
        t = repo.transaction()
        for number in range(256):
            t.put(queue, b"", dedup=str(number))
        with pytest.raises(rota.TransactionTooLarge):
            t.put(queue, b"", dedup="one more")
        t.commit()
        assert len(queue) == 256
        assert [queue.put(b"", dedup=str(number)).duplicate for number in (156, 155)] == [True, False]


@pytest.mark.parametrize("seed", range(6))
def test_the_same_answers_as_an_ordered_dict(directory: pathlib.Path, seed: int) -> None:
    """With reopening, checkpoints and reuse of segments between the questions."""
    rng = random.Random(seed)
    window = rng.choice((1, 7, 40, 120))
    model: OrderedDict[str, int] = OrderedDict()
    repo = rota.open(directory / "r", create=True, **SMALL)
    queue = queue_of(repo, window)
    for step in range(1200):
        key = str(rng.randrange(window * 2))
        choice = rng.random()
        if choice < 0.1:
            assert queue.forget(key) == (model.pop(key, None) is not None)
        elif choice < 0.11:
            repo.close()
            repo = rota.open(directory / "r", **SMALL)
            queue = repo.queue("q")
        else:
            receipt = queue.put(rng.randbytes(rng.choice((10, 3000))), dedup=key)
            assert receipt.duplicate == (key in model), (step, key)
            if not receipt.duplicate:
                model[key] = receipt.id
                if len(model) > window:
                    model.popitem(last=False)
            assert receipt.id == model[key]
            queue.get_many(20).ack()
    assert repo.stats().checkpoints or repo.recovery.begin_lsn > 4096
    repo.close()


def test_one_of_many_threads_puts(repo: rota.Repository) -> None:
    queue = queue_of(repo, 100)
    start = threading.Barrier(4)
    told: list[tuple[int, int, bool]] = []

    def work() -> None:
        start.wait()
        for number in range(60):
            receipt = queue.put(b"%d" % number, dedup=str(number))
            told.append((number, receipt.id, receipt.duplicate))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(message.body) for message in queue.browse()) == list(range(60))
    assert len({(number, id) for number, id, _ in told}) == 60
    assert sum(not duplicate for _, _, duplicate in told) == 60


def put_all(path: str, results: Any) -> None:
    with rota.open(path, durability="none") as repo:
        queue = repo.queue("q")
        results.put([queue.put(b"%d" % number, dedup=str(number)).duplicate for number in range(100)])


def test_one_of_several_processes_puts(repo: rota.Repository) -> None:
    queue = queue_of(repo, 200)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    children = [context.Process(target=put_all, args=(repo.path, results)) for _ in range(2)]
    for child in children:
        child.start()
    answers = [results.get(timeout=30) for _ in children]
    for child in children:
        child.join()
    assert [one + other for one, other in zip(*answers, strict=True)] == [1] * 100
    assert len(queue) == 100


def test_repair_keeps_the_keys(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", create=True, **SMALL) as repo:
        queue = queue_of(repo, 10)
        ids = [queue.put(b"", dedup=str(number)).id for number in range(8)]
        queue.forget("3")
    with rota.open(directory / "r", **SMALL) as repo:  # some in the checkpoint, some in the log behind it
        ids += [repo.queue("q").put(b"", dedup=str(number)).id for number in (8, 9)]
        repo.queue("q").forget("8")
        repo.sync()
        inspection_of(directory, ids)


def inspection_of(directory: pathlib.Path, ids: list[int]) -> None:
    inspection.repair(directory / "r", directory / "repaired")
    with rota.open(directory / "repaired", **SMALL) as repo:
        queue = repo.queue("q")
        assert [queue.put(b"", dedup=str(number)).duplicate for number in (3, 8)] == [False, False]
        assert [queue.put(b"", dedup=str(number)).id for number in (0, 7, 9)] == [ids[0], ids[7], ids[9]]
