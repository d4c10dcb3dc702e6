"""`rota drain`: everything moves once, within a repository and into another, killed or not."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Callable

import rota
from tests.cli.conftest import Shell

Wait = Callable[[Callable[[], bool], subprocess.Popen[bytes]], None]


def fill(shell: Shell, count: int, *options: str) -> list[bytes]:
    """Put numbers into a queue; return them as lines."""
    lines = [b"%d" % number for number in range(count)]
    stream = b"\n".join(lines) + b"\n"
    shell.ok("put", shell.repository, "-q", "work", "--create", "--durability", "none", *options, stdin=stream)
    return lines


def test_everything_goes_to_standard_output(shell: Shell) -> None:
    lines = fill(shell, 1000)
    assert shell.ok("drain", shell.repository, "-q", "work").splitlines() == lines
    assert shell.ok("drain", shell.repository, "-q", "work") == b""


def test_another_queue_of_the_repository_gets_all_that_was_given(shell: Shell) -> None:
    lines = fill(shell, 300, "--key", "k", "--priority", "3", "--header", "a=1")
    assert "--create" in shell.refused(3, "drain", shell.repository, "-q", "work", "--to", "done")
    figures = json.loads(shell.ok("drain", shell.repository, "-q", "work", "--to", "done", "--create", "--json"))
    assert figures["messages"] == 300
    output = shell.ok("get", shell.repository, "-q", "done", "--all", "--format", "json").splitlines()
    records = [json.loads(line) for line in output]
    assert [record["body"].encode() for record in records] == lines
    assert {(record["key"], record["priority"], record["headers"]["a"]) for record in records} == {("k", 3, 1)}
    assert {record["attempts"] for record in records} == {1}


def test_a_queue_is_not_drained_into_itself(shell: Shell) -> None:
    fill(shell, 3)
    shell.refused(2, "drain", shell.repository, "-q", "work", "--to", "work")
    shell.refused(2, "drain", shell.repository, "-q", "work", "--to-dir", shell.repository)


def test_big_messages_move_one_by_one(shell: Shell) -> None:
    bodies = [bytes([65 + number]) * 1_500_000 for number in range(8)]
    options = ("--create", "--durability", "none")
    shell.ok("put", shell.repository, "-q", "work", *options, stdin=b"\n".join(bodies))
    shell.ok("drain", shell.repository, "-q", "work", "--to", "done", *options)
    other = shell.directory / "other"
    shell.ok("drain", shell.repository, "-q", "done", "--to-dir", other, *options)
    assert shell.ok("drain", other, "-q", "done").splitlines() == bodies


def test_killed_on_the_way_within_a_repository_nothing_is_lost_or_doubled(
    shell: Shell, seed: int, wait_until: Wait
) -> None:
    chance = random.Random(seed)
    lines = fill(shell, 20_000)
    options = ["-q", "work", "--to", "done", "--durability", "none"]
    shell.ok("put", shell.repository, "-q", "done", "--create")
    with rota.open(shell.repository) as repository:
        target = repository.queue("done")
        while (before := len(target)) < len(lines):
            goal = min(before + chance.randrange(1, 5000), len(lines))
            process = shell.start("drain", shell.repository, *options)
            wait_until(lambda goal=goal: len(target) >= goal, process)  # type: ignore[misc]
            process.send_signal(signal.SIGKILL)
            process.wait()
            if len(repository.queue("work")) == 0:
                break
    shell.ok("drain", shell.repository, *options)
    found = shell.ok("drain", shell.repository, "-q", "done").splitlines()
    assert sorted(found, key=int) == lines


def test_killed_on_the_way_to_another_repository_nothing_is_lost_or_doubled(
    shell: Shell, seed: int, wait_until: Wait
) -> None:
    chance = random.Random(seed)
    lines = fill(shell, 6000)
    other = shell.directory / "other"
    options = ["-q", "work", "--to-dir", str(other), "--durability", "none"]
    shell.ok("put", other, "-q", "work", "--create")
    kills = 0
    with rota.open(other) as archive:
        target = archive.queue("work")
        while (before := len(target)) < len(lines):
            goal = min(before + chance.randrange(1, 1500), len(lines))
            process = shell.start("drain", shell.repository, *options)
            wait_until(lambda goal=goal: len(target) >= goal, process)  # type: ignore[misc]
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
    shell.ok("drain", shell.repository, *options)
    assert kills > 0
    found = shell.ok("drain", other, "-q", "work").splitlines()
    assert sorted(found, key=int) == lines
    assert shell.run("get", shell.repository, "-q", "work").returncode == 3
