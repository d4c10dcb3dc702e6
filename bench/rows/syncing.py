"""The rows of group commit: a synced batch against a bare write, and how many commits share one fdatasync."""

from __future__ import annotations

import os
import statistics
import threading
import time

import rota
from bench import processes
from bench.measure import Outcome, Row, Setting, bodies_of, clock, drain, interleave, lapped, ratio, scratch


class BareFile:
    """A file written before, then written again in place, one fdatasync after each write."""

    def __init__(self, path: str, size: int) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.size, self.offset = size, 0
        os.pwrite(self.fd, bytes(size), 0)
        os.fsync(self.fd)

    def write(self, data: bytes) -> None:
        if self.offset + len(data) > self.size:
            self.offset = 0
        os.pwrite(self.fd, data, self.offset)
        os.fdatasync(self.fd)
        self.offset += len(data)

    def close(self) -> None:
        os.close(self.fd)


def put_many_synced(setting: Setting) -> Outcome:
    """put_many(1000) that returns when it is durable, against pwrite of as many bytes and fdatasync."""
    bodies = bodies_of(setting.pick(1000, 50))
    with lapped(setting, "sync") as (repo, queue, reused), scratch(setting) as path:
        before = repo.stats().stored_bytes
        queue.put_many(bodies)
        data = os.urandom(repo.stats().stored_bytes - before)
        drain(queue)
        file = BareFile(str(path / "bare"), setting.pick(32 << 20, 1 << 20))
        try:
            seconds = interleave(
                setting.pick(101, 3),
                {"bare": lambda: file.write(data), "put_many": lambda: queue.put_many(bodies)},
                lambda: queue.get_many(len(bodies)).ack(durability="none"),
            )
        finally:
            file.close()
    detail = {f"{name}_us": statistics.median(values) * 1e6 for name, values in seconds.items()}
    return Outcome(
        ratio(seconds["bare"], seconds["put_many"]), {**detail, "bytes": len(data), "after_first_lap": reused}
    )


def put_for(queue: rota.Queue, seconds: float) -> int:
    """Put singly until the time is over; how many there were."""
    end, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        queue.put(b"x" * 100, durability="sync")
        done += 1
    return done


def put_in_threads(queue: rota.Queue, threads: int, seconds: float) -> int:
    """The same in several threads."""
    done = [0] * threads

    def work(number: int) -> None:
        done[number] = put_for(queue, seconds)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(done)


def process_puts(path: str, threads: int, seconds: float) -> int:
    """The work of one process of the row with processes."""
    with rota.open(path, create=False, durability="sync") as repo:
        return put_in_threads(repo.queue("bench"), threads, seconds)


def grouped(setting: Setting, many: int, threads: int) -> tuple[float, float, dict[str, float]]:
    """Return commits per sync and the rate against one thread; `many` processes, or 0: threads of this one."""
    seconds = 1.0 if not setting.small else 0.1
    shared, rates = [], []
    with lapped(setting, "sync") as (repo, queue, reused):
        for _ in range(setting.pick(5, 1)):
            alone = put_for(queue, seconds) / seconds
            drain(queue)
            before = repo.stats()
            if many:
                work = [(process_puts, (repo.path, threads, seconds))] * many
                done = sum(processes.run_together(work))
            else:
                done = put_in_threads(queue, threads, seconds)
            after = repo.stats()
            shared.append((after.commits - before.commits) / max(1, after.syncs - before.syncs))
            rates.append(done / seconds / alone)
            drain(queue)
    detail = {"alone_per_second": alone, "after_first_lap": reused}
    return statistics.median(shared), statistics.median(rates), detail


def threads_shared(setting: Setting) -> Outcome:
    shared, rate, detail = grouped(setting, 0, setting.pick(32, 4))
    return Outcome(shared, {**detail, "rate_against_one": rate})


def threads_rate(setting: Setting) -> Outcome:
    shared, rate, detail = grouped(setting, 0, setting.pick(32, 4))
    return Outcome(rate, {**detail, "commits_per_sync": shared})


def processes_shared(setting: Setting) -> Outcome:
    shared, rate, detail = grouped(setting, setting.pick(8, 2), setting.pick(4, 2))
    return Outcome(shared, {**detail, "rate_against_one": rate})


def processes_rate(setting: Setting) -> Outcome:
    shared, rate, detail = grouped(setting, setting.pick(8, 2), setting.pick(4, 2))
    return Outcome(rate, {**detail, "commits_per_sync": shared})


def lone_sync_seconds(setting: Setting) -> float:
    """Seconds of one write of 4 KiB in place with its fdatasync, nobody else writing."""
    with scratch(setting) as path:
        file = BareFile(str(path / "lone"), 1 << 20)
        try:
            return statistics.median(clock(lambda: file.write(b"x" * 4096)) for _ in range(setting.pick(51, 3)))
        finally:
            file.close()


ROWS = (
    Row("sync_batch", "synced put_many(1000), against pwrite in place and fdatasync", 0.7, "x", True, put_many_synced),
    Row("sync_threads_shared", "synced puts of 32 threads: commits per fdatasync", 12, "", True, threads_shared),
    Row("sync_threads_rate", "synced puts of 32 threads: rate against one thread", 4.5, "x", True, threads_rate),
    Row(
        "sync_processes_shared",
        "synced puts of 8 processes x 4 threads: commits per fdatasync",
        12,
        "",
        True,
        processes_shared,
    ),
    Row(
        "sync_processes_rate",
        "synced puts of 8 processes x 4 threads: rate against one thread",
        4.5,
        "x",
        True,
        processes_rate,
    ),
)
