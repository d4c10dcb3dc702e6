"""`rota stat`, `top`, `errors`, `redrive`: figures are right, as text and as JSON."""

from __future__ import annotations

import json

import rota
from tests.cli.conftest import Shell


def fail_out(shell: Shell, count: int) -> None:
    """Let the first messages of a queue use up their attempts."""
    with rota.open(shell.repository, create=False) as repository:
        queue = repository.queue("work")
        attempts = queue.stats().max_attempts
        assert attempts is not None
        for _ in range(count * attempts):
            queue.get(timeout=0).nack()


def filled(shell: Shell) -> None:
    shell.ok("put", shell.repository, "-q", "work", "--create", "--key", "k\x1b", stdin=b"a\nb\nc\nd\n")
    shell.ok("put", shell.repository, "-q", "work", "--delay", "1000", stdin=b"later\n")


def test_stat_counts(shell: Shell) -> None:
    filled(shell)
    shell.ok("get", shell.repository, "-q", "work")
    figures = json.loads(shell.ok("stat", shell.repository, "--json"))
    assert figures["path"] == str(shell.repository)
    queues = {queue["name"]: queue for queue in figures["queues"]}
    assert (queues["work"]["ready"], queues["work"]["delayed"], queues["work"]["total"]) == (3, 1, 4)
    assert queues["work"]["error_queue"] == "work.errors"
    assert json.loads(shell.ok("stat", shell.repository, "-q", "work", "--json"))["ready"] == 3
    text = shell.ok("stat", shell.repository).decode()
    row = next(line for line in text.splitlines() if line.startswith("work "))
    assert row.split()[:5] == ["work", "3", "1", "0", "0"]
    shell.refused(3, "stat", shell.repository, "-q", "nope")


def test_top_prints_once_where_there_is_no_terminal(shell: Shell) -> None:
    filled(shell)
    for options in ((), ("--once",)):
        text = shell.ok("top", shell.repository, "--interval", "0.05", *options).decode()
        assert "5 messages" in text
        assert "acks/s" in text


def test_errors_tell_where_from_and_why(shell: Shell) -> None:
    filled(shell)
    assert shell.run("errors", shell.repository).returncode == 3
    fail_out(shell, 2)
    lines = shell.ok("errors", shell.repository, "--json").splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["body"] for record in records] == ["a", "b"]
    assert {record["why"] for record in records} == {"attempts used up"}
    assert {(record["from"], record["attempts"], record["key"]) for record in records} == {("work", 5, "k\x1b")}
    text = shell.ok("errors", shell.repository, "-q", "work").decode()
    assert r"k\x1b" in text
    assert len(shell.ok("errors", shell.repository, "-n", "1").splitlines()) == 2
    assert len(shell.ok("errors", shell.repository, "-q", "work.errors").splitlines()) == 3


def test_redrive_sends_them_back_to_work(shell: Shell) -> None:
    filled(shell)
    fail_out(shell, 3)
    ids = [json.loads(line)["id"] for line in shell.ok("errors", shell.repository, "--json").splitlines()]
    assert shell.ok("redrive", shell.repository, "-q", "work.errors", ids[0]) == b"1 message back to work\n"
    assert json.loads(shell.ok("redrive", shell.repository, "-q", "work", "--all", "--json"))["messages"] == 2
    assert shell.run("redrive", shell.repository, "-q", "work", "--all").returncode == 3
    lines = shell.ok("get", shell.repository, "-q", "work", "--all", "--format", "json").splitlines()
    records = {record["body"]: record for record in map(json.loads, lines)}
    assert sorted(records) == ["a", "b", "c", "d"]
    assert {record["attempts"] for record in records.values()} == {1}
    assert records["a"]["id"] == ids[0]


def test_redrive_refuses_what_makes_no_sense(shell: Shell) -> None:
    filled(shell)
    for arguments in ((), ("1", "--all"), ("x",)):
        shell.refused(2, "redrive", shell.repository, "-q", "work", *arguments)
    shell.refused(3, "redrive", shell.repository, "-q", "work", "99")
    shell.refused(3, "redrive", shell.repository, "-q", "nope", "--all")


def test_redrive_to_another_queue(shell: Shell) -> None:
    filled(shell)
    fail_out(shell, 1)
    shell.refused(3, "redrive", shell.repository, "-q", "work", "--all", "--to", "triage")
    shell.ok("put", shell.repository, "-q", "triage", "--create")
    shell.ok("redrive", shell.repository, "-q", "work", "--all", "--to", "triage")
    assert shell.ok("get", shell.repository, "-q", "triage") == b"a\n"
