"""Producers: what a receipt tells, when a batch leaves, what a full memory does, what close() and errors do."""

from __future__ import annotations

import errno
import pathlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import rota
from rota._core import platform

PATIENCE_S = 20.0
NEVER = 3600.0  # an interval that no test waits for


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", capacity="4 MiB", durability="interval") as repo:
        yield repo


def held(repo: rota.Repository, **options: object) -> rota.Producer:
    """A producer whose messages stay in memory: nothing is due before it is flushed, once the first batch has left."""
    producer = repo.producer("q", flush_interval=NEVER, **options)  # type: ignore[arg-type]
    assert producer.put(b"first").wait(PATIENCE_S, visible=True)
    return producer


def bodies(queue: rota.Queue) -> list[bytes]:
    batch = queue.get_many(100_000)
    found = list(batch.bodies)
    batch.ack()
    return found


class Brake:
    """A process callable that stops until it is let go, and tells when it began."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.free = threading.Event()

    def __call__(self, body: bytes) -> bytes:
        self.begun.release()
        assert self.free.wait(PATIENCE_S)
        return body.upper()


def test_a_receipt_tells_where_its_message_is(repo: rota.Repository) -> None:
    with held(repo) as producer:
        receipt = producer.put(b"a")
        assert (receipt.cached, receipt.visible, receipt.durable, receipt.id) == (True, False, False, None)
        assert not receipt.wait(timeout=0)
        assert producer.flush(PATIENCE_S)
        assert (receipt.cached, receipt.visible) == (False, True)
        assert receipt.wait(PATIENCE_S) and receipt.durable
        assert receipt.id is not None
        assert repo.queue("q").read(receipt.id).body == b"a"
        assert receipt.error is None


def test_under_light_load_a_message_leaves_at_once(repo: rota.Repository) -> None:
    with repo.producer("q", flush_interval=NEVER) as producer:
        assert producer.put(b"alone").wait(PATIENCE_S, visible=True)
        later = producer.put(b"too soon after it")
        assert later.cached


@pytest.mark.parametrize("options", [{"batch_size": 3}, {"flush_bytes": 300}], ids=str)
def test_a_full_batch_does_not_wait(repo: rota.Repository, options: dict[str, int]) -> None:
    with held(repo, **options) as producer:
        receipts = [producer.put(b"x" * 100) for _ in range(4)]
        assert receipts[2].wait(PATIENCE_S, visible=True)
        assert receipts[3].cached
        assert producer.stats().batches == 2


def test_a_batch_leaves_when_its_time_has_come(repo: rota.Repository) -> None:
    with repo.producer("q", flush_interval=0.05) as producer:
        begun = time.monotonic()
        receipts = [producer.put(b"x") for _ in range(10)]
        assert receipts[-1].wait(PATIENCE_S, visible=True)
        assert producer.stats().batches <= 3
        assert time.monotonic() - begun < PATIENCE_S


def test_ids_follow_the_order_of_puts(repo: rota.Repository) -> None:
    with repo.producer("q", batch_size=7) as producer:
        receipts = [producer.put(b"%d" % n, key="k" if n % 5 == 0 else None) for n in range(200)]
        assert producer.flush(PATIENCE_S)
    ids = [receipt.id for receipt in receipts]
    assert all(ids) and ids == sorted(ids, key=lambda each: each or 0)
    assert bodies(repo.queue("q")) == [b"%d" % n for n in range(200)]


def test_what_a_message_has_besides_its_body_arrives(repo: rota.Repository) -> None:
    with repo.producer("q") as producer:
        low = producer.put(b"low", key="k", headers={"n": 3}, ttl=1000.0)
        high = producer.put(bytearray(b"high"), priority=5)
        assert producer.flush(PATIENCE_S)
    queue = repo.queue("q")
    first, second = queue.get(timeout=0), queue.get(timeout=0)
    assert (first.id, first.body, second.id, second.body) == (high.id, b"high", low.id, b"low")
    assert (second.key, dict(second.headers)) == ("k", {"n": 3})


def test_a_wrong_message_is_refused_alone(repo: rota.Repository) -> None:
    with repo.producer("q") as producer:
        good = producer.put(b"good", key="k")
        for wrong, kind in (({"key": 3}, TypeError), ({"delay": -1.0}, ValueError), ({"priority": 10}, ValueError)):
            with pytest.raises(kind):
                producer.put(b"wrong", **wrong)
        with pytest.raises(TypeError):
            producer.put("text")  # type: ignore[arg-type]
        with pytest.raises(rota.MessageTooLarge):
            producer.put(bytes(4 << 20))
        assert good.wait(PATIENCE_S)
    assert producer.stats().failed == 0


def braked(repo: rota.Repository, **options: object) -> tuple[rota.Producer, Brake, list[rota.CachedReceipt]]:
    """A producer whose memory of four is full: one message is being processed, three wait for it."""
    brake = Brake()
    producer = repo.producer("q", cache_size=4, workers=1, process=brake, **options)  # type: ignore[arg-type]
    receipts = [producer.put(b"a")]
    assert brake.begun.acquire(timeout=PATIENCE_S)
    receipts += [producer.put(body) for body in (b"b", b"c", b"d")]
    return producer, brake, receipts


def test_reject_raises_full(repo: rota.Repository) -> None:
    producer, brake, _ = braked(repo, overflow="reject")
    with producer:
        with pytest.raises(rota.Full):
            producer.put(b"e")
        assert producer.stats().rejected == 1
        brake.free.set()
    assert bodies(repo.queue("q")) == [b"A", b"B", b"C", b"D"]


def test_block_waits_for_room_and_no_longer_than_its_timeout(repo: rota.Repository) -> None:
    producer, brake, _ = braked(repo)
    with producer:
        with pytest.raises(rota.Full):
            producer.put(b"e", timeout=0.01)
        brake.free.set()
        producer.put(b"e", timeout=PATIENCE_S)
    assert bodies(repo.queue("q")) == [b"A", b"B", b"C", b"D", b"E"]


def test_drop_newest_drops_what_comes(repo: rota.Repository) -> None:
    producer, brake, _ = braked(repo, overflow="drop-newest")
    with producer:
        late = producer.put(b"e")
        assert isinstance(late.error, rota.Full) and not late.cached
        with pytest.raises(rota.Full):
            late.wait(0)
        brake.free.set()
    assert bodies(repo.queue("q")) == [b"A", b"B", b"C", b"D"]
    assert producer.stats().dropped == 1


def test_drop_oldest_drops_what_waits_longest(repo: rota.Repository) -> None:
    producer, brake, receipts = braked(repo, overflow="drop-oldest")
    with producer:
        producer.put(b"e")
        assert isinstance(receipts[1].error, rota.Full)
        brake.free.set()
    assert bodies(repo.queue("q")) == [b"A", b"C", b"D", b"E"]


def test_drop_oldest_in_the_cache(repo: rota.Repository) -> None:
    with held(repo, cache_size=4, batch_size=2, overflow="drop-oldest") as producer:
        bodies(queue := repo.queue("q"))
        queue.stop()
        receipts = [producer.put(b"%d" % n) for n in range(10)]
        assert producer.stats().cached <= 4
        dropped = [receipt for receipt in receipts if receipt.error is not None]
        assert len(dropped) == producer.stats().dropped >= 4
        queue.start()
        assert producer.flush(PATIENCE_S)
        kept = [(receipt.id, b"%d" % n) for n, receipt in enumerate(receipts) if receipt.error is None]
        assert kept[-1][1] == b"9"
        for identity, body in kept:
            assert identity is not None and queue.read(identity).body == body


def test_spill_keeps_in_the_log_what_was_not_processed(repo: rota.Repository) -> None:
    producer, brake, _ = braked(repo, overflow="spill")
    with producer:
        spilled = producer.put(b"e", key="k")
        assert spilled.visible and producer.stats().spilled == 1
        brake.free.set()
        queue = repo.queue("q")
        got = {message.body: message.key for message in (queue.get(timeout=PATIENCE_S) for _ in range(5))}
    assert got == {b"A": None, b"B": None, b"C": None, b"D": None, b"E": "k"}
    assert len(repo.queue("q.spill")) == 0


def test_the_order_is_kept_for_each_key(repo: rota.Repository) -> None:
    with repo.producer("q", process=lambda body: body, workers=3) as producer:
        for n in range(300):
            producer.put(b"%d" % n, key=f"k{n % 7}")
    batch = repo.queue("q").get_many(1000)
    seen: dict[object, list[int]] = {}
    for message in batch:
        seen.setdefault(message.key, []).append(int(message.body))
    batch.ack()
    assert sum(map(len, seen.values())) == 300
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_an_exception_in_process_reaches_receipt_and_error_queue(repo: rota.Repository) -> None:
    def refuse(body: bytes) -> bytes:
        if body == b"bad":
            raise KeyError("no such seat")
        return body

    with repo.producer("q", process=refuse) as producer:
        bad, good = producer.put(b"bad", key="k"), producer.put(b"good")
        with pytest.raises(KeyError, match="no such seat"):
            bad.wait(PATIENCE_S)
        assert good.wait(PATIENCE_S)
        assert isinstance(bad.error, KeyError)
        failed = repo.queue("q.errors").get(timeout=0)
        assert (failed.body, failed.key) == (b"bad", "k")
        assert "no such seat" in str(failed.headers["error"])
    assert producer.stats().failed == 1


def test_none_from_process_ends_a_message(repo: rota.Repository) -> None:
    with repo.producer("q", process=lambda body: None if body == b"skip" else body) as producer:
        producer.put(b"skip"), producer.put(b"keep")
        assert producer.flush(PATIENCE_S)
    assert bodies(repo.queue("q")) == [b"keep"]


def test_threads_and_memory_are_bounded_whatever_arrives(repo: rota.Repository) -> None:
    """A load that outruns the disk: the queue takes nothing for a while, then everything."""
    queue = repo.queue("q", max_messages=50)
    with repo.producer(queue, cache_size=100, cache_bytes=20_000, overflow="reject") as producer:
        before = threading.active_count()
        accepted = most = most_bytes = 0
        for _ in range(20_000):
            try:
                producer.put(bytes(100))
                accepted += 1
            except rota.Full:
                pass
            figures = producer.stats()
            most, most_bytes = max(most, figures.cached), max(most_bytes, figures.cached_bytes)
        assert threading.active_count() <= before
        assert 0 < most <= 100 and most_bytes <= 20_000
        taken = 0
        while taken < accepted:
            batch = queue.get_many(1000, timeout=PATIENCE_S)
            taken += len(batch)
            batch.ack()
    assert (taken, producer.stats().written) == (accepted, accepted)


@pytest.mark.parametrize("cause", ["full", "stopped"])
def test_close_gives_up_at_its_deadline_and_says_what_is_lost(repo: rota.Repository, cause: str) -> None:
    queue = repo.queue("q", max_messages=1)
    queue.put(b"there")
    if cause == "stopped":
        queue.stop()
    producer = repo.producer(queue)
    receipts = [producer.put(b"x") for _ in range(5)]
    begun = time.monotonic()
    assert producer.close(timeout=0.1) == 5
    assert time.monotonic() - begun < PATIENCE_S / 2
    assert all(isinstance(each.error, rota.Full if cause == "full" else rota.QueueStopped) for each in receipts)
    assert producer.closed and producer.close() == 0
    with pytest.raises(rota.ClosedError):
        producer.put(b"late")


def test_a_full_disk_delays_and_loses_nothing(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="4 MiB", durability="interval") as repo:
        queue = repo.queue("q")
        with repo.producer(queue) as producer:
            for nth in (2, 3, 4):
                platform.inject("pwrite", nth, errno.ENOSPC)
            receipts = [producer.put(bytes(5000)) for _ in range(20)]
            assert receipts[-1].wait(PATIENCE_S, visible=True)
        assert platform.injections_fired()["pwrite"]
        platform.injections_clear()
        assert len(queue) == 20


def test_close_from_another_thread_ends_a_put_that_waits(repo: rota.Repository) -> None:
    producer, brake, _ = braked(repo)
    failure: list[BaseException] = []

    def wait() -> None:
        try:
            producer.put(b"e")
        except rota.ClosedError as error:
            failure.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    closer = threading.Thread(target=producer.close)
    closer.start()
    thread.join(PATIENCE_S)
    assert len(failure) == 1
    brake.free.set()
    closer.join(PATIENCE_S)
    assert bodies(repo.queue("q")) == [b"A", b"B", b"C", b"D"]


def test_a_process_callable_that_hangs_does_not_hold_close(repo: rota.Repository) -> None:
    producer, brake, receipts = braked(repo)
    producer.close(timeout=0.1)
    brake.free.set()
    for receipt in receipts:
        with pytest.raises(rota.ClosedError):
            receipt.wait(PATIENCE_S)


def test_closing_the_repository_closes_its_producers(directory: pathlib.Path) -> None:
    with rota.open(directory / "r", capacity="1 MiB") as repo:
        producer = held(repo)
        producer.put(b"cached")
    assert producer.closed
    with rota.open(directory / "r") as repo:
        assert bodies(repo.queue("q")) == [b"first", b"cached"]


@pytest.mark.parametrize(
    "options",
    [
        {"cache_size": 0},
        {"batch_size": 0},
        {"workers": 0},
        {"flush_interval": -1},
        {"overflow": "explode"},
        {"overflow": "spill"},
        {"order": "size"},
        {"close_timeout": -1},
    ],
    ids=str,
)
def test_impossible_options_are_refused(repo: rota.Repository, options: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        repo.producer("q", **options)  # type: ignore[arg-type]


def test_many_threads_put_and_nothing_is_lost(repo: rota.Repository) -> None:
    def work(first: int, put: Callable[[bytes], object]) -> None:
        for n in range(first, first + 2000):
            put(b"%d" % n)

    with repo.producer("q", cache_size=64, batch_size=16, flush_interval=0.0) as producer:
        threads = [threading.Thread(target=work, args=(2000 * n, producer.put)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(map(int, bodies(repo.queue("q")))) == list(range(8000))
