"""`rota ingest` killed at random points, and two at the same time: every record once, in order."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import signal
import subprocess
from collections.abc import Callable

import rota
from tests.cli.conftest import Shell

Wait = Callable[[Callable[[], bool], subprocess.Popen[bytes]], None]


def taken(shell: Shell, queue: str = "q") -> list[bytes]:
    """Take everything out of a queue."""
    return shell.ok("drain", shell.repository, "-q", queue, "--null").split(b"\0")[:-1]


def test_killed_at_random_points_every_record_is_there_once(shell: Shell, seed: int, wait_until: Wait) -> None:
    chance = random.Random(seed)
    lines = [b"%d,%s" % (number, b"x" * (number % 90)) for number in range(60_000)]
    (shell.directory / "data.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"\n".join(lines), 1))
    options = ["-q", "q", "--create", "--batch", "17", "--durability", "none", "--quiet"]
    shell.ok("put", shell.repository, "-q", "q", "--create")
    kills = 0
    with rota.open(shell.repository) as repository:
        queue = repository.queue("q")
        while (before := len(queue)) < len(lines):
            process = shell.start("ingest", shell.repository, "data.csv.gz", *options)
            goal = min(before + chance.randrange(1, 9000), len(lines))
            wait_until(lambda goal=goal: len(queue) >= goal, process)  # type: ignore[misc]
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
    assert kills > 0
    figures = json.loads(shell.ok("ingest", shell.repository, "data.csv.gz", *options[:-1], "--json"))
    assert (figures["records"], figures["records_total"]) == (0, len(lines))
    assert taken(shell) == lines


def test_killed_between_bytes_of_a_pipe(shell: Shell, seed: int, wait_until: Wait) -> None:
    chance = random.Random(seed + 1)
    lines = [b"%d" % number for number in range(20_000)]
    stream = b"\n".join(lines) + b"\n"
    options = ["-", "-q", "q", "--source", "pipe", "--create", "--batch", "10", "--durability", "none"]
    options += ["--hold-partial", "--quiet"]
    shell.ok("put", shell.repository, "-q", "q", "--create")
    with rota.open(shell.repository) as repository:
        queue = repository.queue("q")
        for _ in range(6):
            process = shell.start("ingest", shell.repository, *options)
            assert process.stdin is not None
            # A record is in the queue as soon as the pipe gives it, so what was written can be waited for.
            part = stream[: chance.randrange(len(stream) // 2, len(stream))]
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(part)
                process.stdin.flush()
            goal = chance.randrange(part.count(b"\n"))
            wait_until(lambda goal=goal: len(queue) >= goal, process)  # type: ignore[misc]
            process.send_signal(signal.SIGKILL)
            process.wait()
    shell.ok("ingest", shell.repository, *options, stdin=stream)
    assert taken(shell) == lines


def test_a_second_ingest_of_the_same_source_is_refused_or_waits(shell: Shell, wait_until: Wait) -> None:
    lines = [b"%06d" % number for number in range(30_000)]
    stream = b"\n".join(lines) + b"\n"
    (shell.directory / "whole").write_bytes(stream)
    options = [
        "-q",
        "q",
        "--create",
        "--source",
        "app",
        "--durability",
        "none",
        "--json",
        "--format",
        "lines",
    ]
    shell.ok("put", shell.repository, "-q", "q", "--create")
    first = shell.start("ingest", shell.repository, "-", *options)
    assert first.stdin is not None
    with rota.open(shell.repository) as repository:
        queue = repository.queue("q")
        first.stdin.write(stream[:140_000])
        first.stdin.flush()
        wait_until(lambda: len(queue) > 0, first)
        assert "another process" in shell.refused(4, "ingest", shell.repository, "whole", *options)
        second = shell.start("ingest", shell.repository, "whole", *options, "--wait")
        # Another source, and another queue, are not held up.
        shell.ok("ingest", shell.repository, "whole", *options, "--source", "other", "-q", "other")
        assert second.poll() is None
        first.stdin.close()
        assert first.wait() == 0
        assert second.wait() == 0
    assert first.stdout is not None
    assert second.stdout is not None
    records = [json.loads(stream.read())["records"] for stream in (first.stdout, second.stdout)]
    assert sum(records) == len(lines)
    assert 0 < records[0] < len(lines)
    assert taken(shell) == lines


def test_the_right_to_ingest_dies_with_its_owner(shell: Shell, wait_until: Wait) -> None:
    lines = b"".join(b"%06d\n" % number for number in range(20_000))
    options = ["-q", "q", "--create", "--source", "app", "--durability", "none", "--quiet"]
    shell.ok("put", shell.repository, "-q", "q", "--create")
    first = shell.start("ingest", shell.repository, "-", *options)
    assert first.stdin is not None
    with rota.open(shell.repository) as repository:
        queue = repository.queue("q")
        first.stdin.write(lines[:100_000])
        first.stdin.flush()
        wait_until(lambda: len(queue) > 0, first)
    first.send_signal(signal.SIGKILL)
    first.wait()
    shell.ok("ingest", shell.repository, "-", *options, stdin=lines)
    assert b"".join(body + b"\n" for body in taken(shell)) == lines


def test_interrupted_it_ends_with_130_and_goes_on_later(shell: Shell, wait_until: Wait) -> None:
    lines = b"".join(b"%06d\n" % number for number in range(20_000))
    options = ["-q", "q", "--create", "--source", "app", "--durability", "none", "--quiet"]
    shell.ok("put", shell.repository, "-q", "q", "--create")
    process = shell.start("ingest", shell.repository, "-", *options)
    assert process.stdin is not None
    with rota.open(shell.repository) as repository:
        queue = repository.queue("q")
        process.stdin.write(lines[:100_000])
        process.stdin.flush()
        wait_until(lambda: len(queue) > 0, process)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert process.stderr is not None
    assert process.stderr.read() == b""
    shell.ok("ingest", shell.repository, "-", *options, stdin=lines)
    assert b"".join(body + b"\n" for body in taken(shell)) == lines


def test_a_full_repository_lets_it_wait_for_consumers(shell: Shell, wait_until: Wait) -> None:
    lines = [b"%06d %s" % (number, b"x" * 100) for number in range(20_000)]
    (shell.directory / "data.log").write_bytes(b"\n".join(lines))
    shell.ok("put", shell.repository, "-q", "q", "--create", "--capacity", "768 KiB")
    process = shell.start("ingest", shell.repository, "data.log", "-q", "q", "--durability", "none", "--quiet")
    found: list[bytes] = []
    with rota.open(shell.repository, create=False) as repository:
        queue = repository.queue("q")
        wait_until(lambda: len(queue) > 1000, process)
        while len(found) < len(lines):
            batch = queue.get_many(500, timeout=10)
            assert batch, f"nothing more after {len(found)} records"
            found += batch.bodies
            batch.ack()
    assert process.wait() == 0
    assert found == lines


def test_ctrl_c_ends_the_wait_for_room(shell: Shell, wait_until: Wait) -> None:
    (shell.directory / "data.log").write_bytes(b"\n".join(b"%0100d" % number for number in range(20_000)))
    options = ("data.log", "-q", "q", "--durability", "none", "--quiet")
    shell.ok("put", shell.repository, "-q", "q", "--create", "--capacity", "768 KiB")
    process = shell.start("ingest", shell.repository, *options)
    with rota.open(shell.repository, create=False) as repository:
        queue = repository.queue("q")
        wait_until(lambda: len(queue) > 1000, process)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert shell.run("get", shell.repository, "-q", "q").returncode == 0
