"""`rota verify`, `repair` and `dump`: sound, torn and damaged repositories."""

from __future__ import annotations

import json
import pathlib
import sqlite3

import pytest

import rota
from tests.cli.conftest import Shell


def filled(shell: Shell) -> None:
    shell.ok("put", shell.repository, "-q", "work", "--create", "--key", "k", stdin=b"one\ntwo\n\xff\x00three\n")
    shell.ok("put", shell.repository, "-q", "other", "--create", "--priority", "4", stdin=b"four\n")


def damaged(shell: Shell) -> None:
    """Flip a bit in the body of a message."""
    for segment in sorted(shell.repository.glob("seg.*")):
        data = bytearray(segment.read_bytes())
        place = data.find(b"two")
        if place > 0:
            data[place] ^= 1
            segment.write_bytes(data)


@pytest.fixture(params=["closed", "open"])
def state(request: pytest.FixtureRequest) -> str:
    """Whether a process has the repository open: then the log has no checkpoint at its end."""
    return str(request.param)


def holding(shell: Shell, state: str) -> rota.Repository | None:
    return rota.open(shell.repository, create=False) if state == "open" else None


def test_dump_lists_what_is_not_settled(shell: Shell, state: str) -> None:
    filled(shell)
    shell.ok("get", shell.repository, "-q", "work")
    repository = holding(shell, state)
    try:
        text = shell.ok("dump", shell.repository).decode()
        lines = shell.ok("dump", shell.repository, "--format", "jsonl").splitlines()
        only = shell.ok("dump", shell.repository, "-q", "other").decode()
    finally:
        if repository is not None:
            repository.close()
    assert r"\xff\x00three" in text
    records = [json.loads(line) for line in lines]
    assert [record["queue"] for record in records] == ["work", "work", "other"]
    assert records[0]["body"] == "two"
    assert records[0]["key"] == "k"
    assert records[1]["body"] == {"base64": "/wB0aHJlZQ=="}
    assert only.splitlines()[0].startswith("other ")
    assert len(only.splitlines()) == 1


def test_dump_fills_an_sqlite_file(shell: Shell) -> None:
    filled(shell)
    shell.ok("dump", shell.repository, "--sqlite", "dump.sqlite")
    connection = sqlite3.connect(shell.directory / "dump.sqlite")
    try:
        rows = connection.execute("SELECT queue, priority, key, body FROM message ORDER BY id").fetchall()
        commits = connection.execute("SELECT count(*) FROM commit_record").fetchone()
    finally:
        connection.close()
    assert rows == [
        ("work", 0, "k", b"one"),
        ("work", 0, "k", b"two"),
        ("work", 0, "k", b"\xff\0three"),
        ("other", 4, None, b"four"),
    ]
    assert commits[0] > 0
    assert "exists" in shell.refused(4, "dump", shell.repository, "--sqlite", "dump.sqlite")
    assert [path.name for path in pathlib.Path(shell.directory).glob("*.partial")] == []


def test_dump_shows_the_log(shell: Shell) -> None:
    filled(shell)
    with rota.open(shell.repository, create=False) as repository:
        repository.queue("work").put(b"five")
        text = shell.ok("dump", shell.repository, "--log").decode()
        lines = shell.ok("dump", shell.repository, "--log", "--format", "jsonl").splitlines()
    assert "    put queue=" in text
    records = [json.loads(line) for line in lines]
    assert any(operation["kind"] == "put" for record in records for operation in record["operations"])
    assert [record["lsn"] for record in records] == sorted(record["lsn"] for record in records)


def test_verify_finds_a_sound_repository_sound(shell: Shell) -> None:
    filled(shell)
    assert shell.ok("verify", shell.repository).startswith(b"sound: ")
    report = json.loads(shell.ok("verify", shell.repository, "--json"))
    assert (report["verdict"], report["problems"]) == ("sound", [])
    assert shell.ok("verify", shell.repository, "--quiet") == b""


def test_verify_names_what_a_flipped_bit_costs_and_repair_saves_the_rest(shell: Shell) -> None:
    filled(shell)
    damaged(shell)
    done = shell.run("verify", shell.repository)
    assert done.returncode == 4
    assert done.stdout.startswith(b"damaged: ")
    assert b"message 2 cannot be read" in done.stdout
    done = shell.run("repair", shell.repository, "saved")
    assert (done.returncode, done.stderr) == (4, b"")
    assert b"lost messages: 2" in done.stdout
    assert shell.ok("verify", "saved").startswith(b"sound: ")
    assert shell.ok("drain", "saved", "-q", "work") == b"one\n\xff\0three\n"
    assert shell.ok("drain", "saved", "-q", "other") == b"four\n"


def test_dump_writes_the_others_when_one_is_damaged(shell: Shell) -> None:
    filled(shell)
    damaged(shell)
    done = shell.run("dump", shell.repository)
    assert done.returncode == 4
    assert done.stdout.count(b"\n") == 4


def test_repair_of_a_sound_repository_copies_it(shell: Shell) -> None:
    filled(shell)
    report = json.loads(shell.ok("repair", shell.repository, "copy", "--json"))
    assert report["complete"]
    assert shell.ok("drain", "copy", "-q", "work").splitlines() == [b"one", b"two", b"\xff\0three"]


def test_repair_writes_only_into_a_new_directory(shell: Shell) -> None:
    filled(shell)
    assert "not empty" in shell.refused(4, "repair", shell.repository, shell.repository)
    shell.refused(2, "repair")
    shell.refused(3, "repair", "nowhere", "copy")


@pytest.mark.parametrize("command", [("verify",), ("dump",), ("stat",), ("get", "-q", "work")])
@pytest.mark.parametrize("damage", ["empty", "noise", "other"])
def test_a_broken_manifest_is_named(shell: Shell, command: tuple[str, ...], damage: str) -> None:
    filled(shell)
    manifest = shell.repository / "manifest"
    contents = {"empty": b"", "noise": bytes(range(256)) * 64, "other": b"#!/bin/sh\n" + b"\0" * 16374}
    manifest.write_bytes(contents[damage])
    done = shell.run(command[0], shell.repository, *command[1:])
    assert done.returncode == 4, done.stderr
    assert b"manifest" in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["verify", "dump", "stat"])
def test_where_nothing_is_the_code_is_3(shell: Shell, command: str) -> None:
    shell.refused(3, command, "nowhere")
    (shell.directory / "empty").mkdir()
    shell.refused(3, command, "empty")
