"""`rota put` and `rota get`: what goes in comes out, and the exit codes say what happened."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from rota.cli.framing import framed
from tests.cli.conftest import Shell


def test_lines_go_in_and_come_out_in_order(shell: Shell) -> None:
    shell.ok("put", shell.repository, "-q", "work", "--create", stdin=b"one\ntwo\n\nlast")
    assert shell.ok("get", shell.repository, "-q", "work") == b"one\n"
    assert shell.ok("get", shell.repository, "-q", "work", "--all") == b"two\n\nlast\n"


def test_nothing_there_is_exit_code_3(shell: Shell) -> None:
    assert "no repository" in shell.refused(3, "get", shell.repository, "-q", "work")
    shell.ok("put", shell.repository, "-q", "work", "--create")
    assert "queues: work" in shell.refused(3, "get", shell.repository, "-q", "wrok")
    done = shell.run("get", shell.repository, "-q", "work")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")


def test_nothing_comes_into_being_without_create(shell: Shell) -> None:
    assert "--create" in shell.refused(3, "put", shell.repository, "-q", "work", stdin=b"x")
    assert not shell.repository.exists()
    shell.ok("put", shell.repository, "-q", "work", "--create", stdin=b"x")
    assert "--create" in shell.refused(3, "put", shell.repository, "-q", "other", stdin=b"x")


def test_a_directory_of_other_things_is_left_alone(shell: Shell) -> None:
    shell.repository.mkdir()
    (shell.repository / "letter.txt").write_text("mine")
    shell.refused(3, "get", shell.repository, "-q", "work")
    assert "letter.txt" in shell.refused(4, "put", shell.repository, "-q", "work", "--create", stdin=b"1")
    assert os.listdir(shell.repository) == ["letter.txt"]


def test_files_and_standard_input_are_read_in_turn(shell: Shell) -> None:
    (shell.directory / "a").write_bytes(b"1\n2")
    (shell.directory / "b").write_bytes(b"4\n")
    shell.ok("put", shell.repository, "a", "-", "b", "-q", "work", "--create", stdin=b"3\n")
    assert shell.ok("get", shell.repository, "-q", "work", "--all") == b"1\n2\n3\n4\n"


def test_a_missing_file_is_named(shell: Shell) -> None:
    assert "nowhere.txt" in shell.refused(3, "put", shell.repository, "nowhere.txt", "-q", "w", "--create")


@pytest.mark.parametrize("options", [("--null",), ("--delimiter", r"\0"), ("--length-prefixed",)])
def test_any_bytes_go_through(shell: Shell, options: tuple[str, ...]) -> None:
    bodies = [b"", b"\n\xff", b"a" * 70_000, bytes(range(1, 256))]
    prefixed = options == ("--length-prefixed",)
    stream = b"".join(framed(body, None if prefixed else b"\0") for body in bodies)
    shell.ok("put", shell.repository, "-q", "work", "--create", *options, stdin=stream)
    assert shell.ok("get", shell.repository, "-q", "work", "--all", *options) == stream


def test_json_tells_everything(shell: Shell) -> None:
    options = ["--key", "k", "--priority", "7", "--header", "kind=a", "--header", "n=3"]
    figures = json.loads(shell.ok("put", shell.repository, "-q", "w", "--create", "--json", *options, stdin=b"\xff\n"))
    assert (figures["messages"], figures["bytes"]) == (1, 1)
    record = json.loads(shell.ok("get", shell.repository, "-q", "w", "--format", "json"))
    assert record["id"] == figures["first_id"] == figures["last_id"]
    assert (record["key"], record["priority"], record["headers"]) == ("k", 7, {"kind": "a", "n": 3})
    assert (record["attempts"], record["body"]) == (1, {"base64": "/w=="})


def test_what_is_given_back_is_as_if_never_taken(shell: Shell) -> None:
    shell.ok("put", shell.repository, "-q", "work", "--create", stdin=b"1\n2\n3\n")
    assert shell.ok("get", shell.repository, "-q", "work", "--all", "--no-ack") == b"1\n2\n3\n"
    lines = shell.ok("get", shell.repository, "-q", "work", "--all", "--format", "json").splitlines()
    assert [(record["body"], record["attempts"]) for record in map(json.loads, lines)] == [
        ("1", 1),
        ("2", 1),
        ("3", 1),
    ]


def test_higher_priorities_come_first(shell: Shell) -> None:
    for priority in ("0", "9", "5"):
        shell.ok("put", shell.repository, "-q", "w", "--create", "--priority", priority, stdin=priority.encode())
    assert shell.ok("get", shell.repository, "-q", "w", "-n", "5") == b"9\n5\n0\n"


def test_the_directory_may_come_from_the_environment(shell: Shell) -> None:
    env = {"ROTA_DIR": str(shell.repository)}
    (shell.directory / "a").write_bytes(b"from a file\n")
    shell.ok("put", "-q", "work", "--create", stdin=b"1\n", env=env)
    shell.ok("put", "a", "-q", "work", env=env)
    other = shell.directory / "other"
    shell.ok("put", other, "-q", "work", "--create", stdin=b"x\n")
    shell.ok("put", other, "a", "-q", "work", env=env)
    assert shell.ok("get", "-q", "work", "--all", env=env) == b"1\nfrom a file\n"
    assert shell.ok("get", other, "-q", "work", "--all", env=env) == b"x\nfrom a file\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("put",),
        ("put", "-q", "work"),
        ("get", "-q", "work"),
        ("get", "x", "-q", "work", "--all", "-n", "3"),
        ("get", "x", "-q", "work", "--follow", "--no-ack"),
        ("put", "x", "-q", "work", "--null", "--length-prefixed"),
        ("put", "x", "-q", "work", "--priority", "10"),
        ("put", "x", "-q", "work", "--header", "nothing"),
        ("no-such-command",),
        ("stat", "x", "y"),
    ],
)
def test_wrong_usage_is_exit_code_2(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert "Usage" in shell.refused(2, *arguments)


def test_a_file_in_the_place_of_the_directory_is_explained(shell: Shell) -> None:
    (shell.directory / "a").write_bytes(b"x")
    assert "directory of a repository first" in shell.refused(2, "put", "a", "-q", "work")


def test_every_command_has_a_help_with_examples(shell: Shell) -> None:
    listing = shell.ok("--help").decode()
    commands = [line.split()[0] for line in listing.partition("Commands:")[2].splitlines() if line.strip()]
    assert len(commands) == 12
    for command in commands:
        text = shell.ok(command, "--help").decode()
        assert f"rota {command} " in text.partition("Examples:")[2].partition("Options:")[0], text


def test_the_package_loads_no_part_of_the_command_line(shell: Shell) -> None:
    script = shell.directory / "look.py"
    script.write_text("import sys, rota; print(*sorted({'click', 'rich', 'rota.cli', 'kazoo'} & set(sys.modules)))")
    import subprocess
    import sys

    assert subprocess.run([sys.executable, script], capture_output=True, check=True).stdout == b"\n"


def test_names_of_any_bytes_are_printed_escaped(shell: Shell) -> None:
    """C64: a key that is no text, and names with a NUL or a lone surrogate, kill nothing on their way."""
    shell.ok("put", shell.repository, "-q", "work", "--create", "--key", os.fsdecode(b"\xff"), stdin=b"1\n")
    record = json.loads(shell.ok("get", shell.repository, "-q", "work", "--format", "json"))
    assert record["key"] == {"base64": "/w=="}
    done = shell.run("put", shell.repository, "-q", os.fsdecode(b"w\xff\x1b"), "--create", stdin=b"1\n")
    assert b"Traceback" not in done.stderr
    listing = shell.run("stat", shell.repository)
    assert listing.returncode == 0
    assert b"\x1b" not in listing.stdout + done.stderr
    if done.returncode == 0:
        assert rb"w\xff\x1b" in listing.stdout


def test_a_path_of_any_bytes_is_a_directory_like_others(directory: pathlib.Path) -> None:
    shell = Shell(directory)
    name = directory / os.fsdecode(b"re\xffpo")
    shell.ok("put", name, "-q", "work", "--create", stdin=b"1\n")
    assert rb"re\xffpo" in shell.ok("stat", name)
    assert shell.ok("get", name, "-q", "work") == b"1\n"
