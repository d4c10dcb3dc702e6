"""Readers that go away, signals, closed and full outputs: quiet ends, and nothing lost."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable

import rota
from tests.cli.conftest import COMMAND, Shell

Wait = Callable[[Callable[[], bool], subprocess.Popen[bytes]], None]


def fill(shell: Shell, count: int) -> list[bytes]:
    lines = [b"%06d" % number for number in range(count)]
    stream = b"\n".join(lines)
    shell.ok("put", shell.repository, "-q", "work", "--create", "--durability", "none", stdin=stream)
    return lines


def test_a_reader_that_has_seen_enough_is_no_error(shell: Shell) -> None:
    lines = fill(shell, 50_000)
    process = shell.start("get", shell.repository, "-q", "work", "--all")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"000000\n"
    process.stdout.close()
    assert process.wait() == -signal.SIGPIPE
    assert process.stderr.read() == b""
    rest = shell.ok("get", shell.repository, "-q", "work", "--all", "--format", "json").splitlines()
    records = [json.loads(line) for line in rest]
    # What was acknowledged had been written; all the rest is there, in order, as if never handed out.
    assert [record["body"].encode() for record in records] == lines[len(lines) - len(records) :]
    assert {record["attempts"] for record in records} == {1}
    assert 0 < len(records) < len(lines)


def test_every_listing_ends_quietly_in_a_closed_pipe(shell: Shell) -> None:
    fill(shell, 10)
    for command in (
        ("stat",),
        ("stat", "--json"),
        ("top", "--once", "--interval", "0.05"),
        ("dump",),
        ("verify",),
    ):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [*COMMAND, command[0], str(shell.repository), *command[1:]],
            stdout=writer,
            stderr=subprocess.PIPE,
            env=shell.environment(),
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b""), command


def test_ctrl_c_in_a_wait_ends_with_130_and_loses_nothing(shell: Shell, wait_until: Wait) -> None:
    fill(shell, 3)
    process = shell.start("get", shell.repository, "-q", "work", "--follow")
    assert process.stdout is not None
    assert process.stderr is not None
    assert [process.stdout.readline() for _ in range(3)] == [b"000000\n", b"000001\n", b"000002\n"]
    with rota.open(shell.repository, create=False) as repository:
        queue = repository.queue("work")
        wait_until(lambda: len(queue) == 0, process)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
    assert shell.run("get", shell.repository, "-q", "work").returncode == 3
    shell.ok("put", shell.repository, "-q", "work", stdin=b"after\n")
    assert shell.ok("get", shell.repository, "-q", "work") == b"after\n"


def test_sigterm_ends_with_143(shell: Shell) -> None:
    fill(shell, 1)
    process = shell.start("get", shell.repository, "-q", "work", "--follow")
    assert process.stdout is not None
    assert process.stdout.readline() == b"000000\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143


def test_ctrl_c_in_a_full_pipe_gives_back_what_was_not_written(shell: Shell, wait_until: Wait) -> None:
    lines = fill(shell, 50_000)
    process = shell.start("get", shell.repository, "-q", "work", "--all")
    assert process.stdout is not None
    with rota.open(shell.repository, create=False) as repository:
        queue = repository.queue("work")
        # Nobody reads: the pipe takes up to 64 KiB, then the writer holds one batch and waits.
        wait_until(lambda: queue.stats().claimed > 0 and len(queue) < len(lines) - 7000, process)
        process.send_signal(signal.SIGINT)
        seen = process.stdout.read()
        assert process.wait() == 130
        assert queue.stats().claimed == 0
    rest = shell.ok("get", shell.repository, "-q", "work", "--all", "--format", "json").splitlines()
    left = [json.loads(line) for line in rest]
    assert {record["attempts"] for record in left} == {1}
    assert set(seen[: seen.rfind(b"\n") + 1].splitlines()) | {record["body"].encode() for record in left} == set(lines)


def test_what_was_put_before_ctrl_c_stays(shell: Shell, wait_until: Wait) -> None:
    shell.ok("put", shell.repository, "-q", "work", "--create")
    process = shell.start("put", shell.repository, "-q", "work")
    assert process.stdin is not None
    with rota.open(shell.repository, create=False) as repository:
        queue = repository.queue("work")
        process.stdin.write(b"1\n2\n3 is not finis")
        process.stdin.flush()
        wait_until(lambda: len(queue) == 2, process)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert shell.ok("get", shell.repository, "-q", "work", "--all") == b"1\n2\n"


def test_a_message_that_cannot_be_written_is_given_back(shell: Shell) -> None:
    fill(shell, 2)
    for redirection, complaint in ((">/dev/full", b"No space left"), (">&-", b"Bad file descriptor")):
        command = f'"$@" {redirection}'
        arguments = [*COMMAND, "get", str(shell.repository), "-q", "work"]
        done = subprocess.run(["sh", "-c", command, "sh", *arguments], stderr=subprocess.PIPE, env=shell.environment())
        assert done.returncode == 1
        assert complaint in done.stderr
    record = json.loads(shell.ok("get", shell.repository, "-q", "work", "--format", "json"))
    assert (record["body"], record["attempts"]) == ("000000", 1)


def read_screen(terminal: int, wanted: bytes) -> bytes:
    """Read what a program draws until something has appeared or the program has ended."""
    seen = b""
    while wanted not in seen:
        assert select.select([terminal], [], [], 30)[0], seen
        try:
            seen += os.read(terminal, 65536)
        except OSError:
            break
    return seen


def test_top_draws_on_a_terminal_and_leaves_by_q(shell: Shell) -> None:
    fill(shell, 7)
    terminal, own = pty.openpty()
    termios.tcsetwinsize(own, (30, 120))
    process = shell.start("top", shell.repository, stdin=own, stdout=own, stderr=own)
    os.close(own)
    screen = read_screen(terminal, b"acks/s")
    assert b"work" in screen + read_screen(terminal, b"work")
    os.write(terminal, b"q")
    read_screen(terminal, b"never drawn")
    assert process.wait() == 0
    os.close(terminal)


def test_a_bar_is_drawn_only_on_a_terminal(shell: Shell) -> None:
    (shell.directory / "data.log").write_bytes(b"".join(b"%d\n" % number for number in range(1000)))
    options = ("ingest", str(shell.repository), "data.log", "-q", "q", "--create")
    assert shell.run(*options).stderr == b""
    terminal, own = pty.openpty()
    process = shell.start(*options, "--again", "--batch", "1", stdin=subprocess.DEVNULL, stderr=own)
    os.close(own)
    screen = read_screen(terminal, b"never drawn")
    assert process.wait() == 0
    assert b"data.log" in screen
    os.close(terminal)


def test_python_m_rota_is_the_same_program(shell: Shell) -> None:
    installed = os.path.join(os.path.dirname(sys.executable), "rota")
    version = shell.ok("--version")
    assert version.startswith(b"rota ")
    if os.path.exists(installed):
        assert subprocess.run([installed, "--version"], capture_output=True).stdout == version
