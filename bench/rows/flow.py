"""The coordinator: pairs of enqueue and dequeue, against the article's design in Java where there is a JDK."""

from __future__ import annotations

import pathlib
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy

import rota
from bench.measure import Outcome, Row, Setting, clock, scratch

AUTOMATA = pathlib.Path(__file__).parent.parent / "rivals" / "Automata.java"


@contextmanager
def rival(path: pathlib.Path, count: int) -> Iterator[Callable[[], float]]:
    """Yield what runs a round of the Java program: its seconds."""
    subprocess.run(["javac", "-d", str(path), str(AUTOMATA)], check=True)
    command = ["java", "-Xmx3g", "-cp", str(path), "Automata", str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def one() -> float:
            stdin.write("\n")
            stdin.flush()
            return int(stdout.readline()) / 1e9

        yield one
        stdin.close()


def keys_of(count: int) -> numpy.ndarray:
    """Return distinct numbers in no order."""
    return numpy.random.default_rng(1).permutation(count) * 7919


def each(coordinator: rota.Coordinator, keys: list[int]) -> None:
    enqueue, dequeue = coordinator.enqueue, coordinator.dequeue
    for key in keys:
        enqueue(key)
    for key in keys:
        dequeue(key)


def many(coordinator: rota.Coordinator, keys: numpy.ndarray) -> None:
    coordinator.enqueue_many(keys)
    coordinator.dequeue_many(keys)


def against_java(setting: Setting, run: Callable[[rota.Coordinator, numpy.ndarray], None]) -> Outcome:
    """All keys enqueued, then all dequeued, in a table of twice their number."""
    if not shutil.which("javac"):
        return Outcome(None, {"reason": "no JDK here"})
    count, rounds = setting.pick(1_000_000, 1000), min(setting.rounds, 7)
    coordinator, keys, ours, theirs = rota.Coordinator(capacity=2 * count), keys_of(count), [], []
    with scratch(setting) as path, rival(path, count) as java:
        for number in range(rounds + 2):
            seconds = clock(lambda: run(coordinator, keys)), java()
            if number > 1:
                ours.append(seconds[0])
                theirs.append(seconds[1])
    figures = {"ours": count / statistics.median(ours), "java": count / statistics.median(theirs)}
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    return Outcome(ratio, {**figures, "bytes_a_key": coordinator.stats().memory_bytes / count})


def singly(setting: Setting) -> Outcome:
    return against_java(setting, lambda coordinator, keys: each(coordinator, keys.tolist()))


def in_arrays(setting: Setting) -> Outcome:
    return against_java(setting, many)


def limited(setting: Setting) -> Outcome:
    """One check of a bucket that never makes anybody wait, the call from Python included."""
    count, found = setting.pick(1_000_000, 1000), []
    with scratch(setting) as path, rota.open(path / "r", capacity="1 MiB", durability="none") as repo:
        acquire = repo.limiter("checks", rate=1e9, burst=1e9).acquire

        def run() -> None:
            for _ in range(count):
                acquire()

        for _ in range(min(setting.rounds, 7)):
            found.append(clock(run) / count * 1e9)
    return Outcome(statistics.median(found), {})


ROWS = (
    Row("coordinator", "Coordinator.enqueue and dequeue, against a Java map of automata", 0.8, "x", True, singly),
    Row("coordinator_many", "enqueue_many and dequeue_many, against the same", 4.0, "x", True, in_arrays),
    Row("limiter", "Limiter.acquire that need not wait", 200.0, "ns", False, limited),
)
