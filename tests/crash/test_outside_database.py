"""Money in an SQLite database, moved by messages: processes are killed around both commits, each moves once."""

from __future__ import annotations

import os
import pathlib
import signal
import sqlite3
from contextlib import closing
from typing import Any

import pytest

import rota
from tests.crash.kit import Child, Link

OPTIONS: dict[str, Any] = {"capacity": "1 MiB", "durability": "none"}
AMOUNTS = [1, 10, 100, 1000]
WHERE = ["looked", "written", "committed"]


def balance(directory: pathlib.Path) -> list[int]:
    with closing(sqlite3.connect(directory / "bank")) as bank:
        return [row[0] for row in bank.execute("SELECT amount FROM entries ORDER BY rowid")]


def work(link: Link, directory: pathlib.Path, where: str, nth: int) -> None:
    """Book what waits, and die at that place of the nth message."""
    with closing(sqlite3.connect(directory / "bank")) as bank, rota.open(directory / "r", **OPTIONS) as repo:
        memory = rota.SqlMemory(bank)
        for number in range(1, len(repo.queue("entries")) + 1):

            def die(at: str, number: int = number) -> None:
                if (at, number) == (where, nth):
                    os.kill(os.getpid(), signal.SIGKILL)

            message = repo.queue("entries").get(timeout=0)
            with memory.once(message) as first:
                die("looked")
                if first:
                    bank.execute("INSERT INTO entries VALUES (?)", (int(message.body),))
                die("written")
            die("committed")
            message.ack()


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("nth", [1, 2, 4])
def test_killed_around_both_commits(directory: pathlib.Path, where: str, nth: int) -> None:
    with closing(sqlite3.connect(directory / "bank")) as bank:
        bank.execute("CREATE TABLE entries (amount INTEGER)")
    with rota.open(directory / "r", **OPTIONS) as repo:
        for amount in AMOUNTS:
            repo.queue("entries").put(b"%d" % amount)
    with Child(work, directory, where, nth) as child:
        assert child.wait() == -signal.SIGKILL
    assert balance(directory) == AMOUNTS[: nth if where == "committed" else nth - 1]
    with Child(work, directory, "", 0) as child:
        child.finish()
    assert sorted(balance(directory)) == AMOUNTS
    with rota.open(directory / "r", **OPTIONS) as repo:
        assert len(repo.queue("entries")) == 0


def test_what_it_refuses_and_rolls_back(directory: pathlib.Path) -> None:
    with closing(sqlite3.connect(directory / "bank")) as bank, rota.open(directory / "r", **OPTIONS) as repo:
        memory = rota.SqlMemory(bank)
        repo.queue("a").put(b"")
        message = repo.queue("a").get(timeout=0)
        with pytest.raises(sqlite3.OperationalError, match="no such table"), memory.once(message) as first:
            bank.execute("INSERT INTO absent VALUES (?)", (int(first),))
        for expected in (True, False):
            with memory.once(message) as first:
                assert first is expected
        bank.execute("INSERT INTO rota_processed VALUES ('other', 1)")
        with pytest.raises(rota.StateError, match="in a transaction"), memory.once(message):
            pass
        bank.rollback()
        with pytest.raises(ValueError, match="name of a table"):
            rota.SqlMemory(bank, "a; DROP TABLE b")
        message.ack()
    with (
        closing(sqlite3.connect(directory / "bank", isolation_level=None)) as bank,
        pytest.raises(ValueError, match="commits each statement"),
    ):
        rota.SqlMemory(bank)


def test_of_two_that_looked_at_once_one_is_refused(directory: pathlib.Path) -> None:
    """The second one wrote its effect before it saw the first one's note: it is rolled back as a whole."""
    with closing(sqlite3.connect(directory / "bank")) as bank, rota.open(directory / "r", **OPTIONS) as repo:
        memory = rota.SqlMemory(bank)
        repo.queue("a").put(b"")
        message = repo.queue("a").get(timeout=0)
        with memory.once(message):
            pass
        memory._find = "SELECT 1 WHERE 0 AND ? = ?"  # as if it had looked before
        with pytest.raises(sqlite3.IntegrityError), memory.once(message):
            pass
        message.ack()
