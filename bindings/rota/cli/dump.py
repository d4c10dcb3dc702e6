"""`rota dump`: messages that are not settled, or the log, as text, JSON Lines or a SQLite file."""

from __future__ import annotations

import os
import pathlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import click

from rota import inspection
from rota.cli.failures import DONE, REFUSED, Refused
from rota.cli.offline import inspected
from rota.cli.patience import write_out
from rota.cli.places import demand_repository, directory_argument, queue_option
from rota.cli.text import as_json, json_line, printable

TEXT_BODY = 100
ROWS = 1000
SCHEMA = """
CREATE TABLE message (
    id INTEGER PRIMARY KEY, queue TEXT NOT NULL, priority INTEGER NOT NULL, key, due_at REAL, expires_at REAL,
    attributes TEXT NOT NULL, body BLOB, damage TEXT NOT NULL);
CREATE INDEX message_queue ON message (queue, id);
CREATE TABLE commit_record (
    lsn INTEGER PRIMARY KEY, length INTEGER NOT NULL, epoch INTEGER NOT NULL, written_at REAL NOT NULL,
    durable_lsn INTEGER NOT NULL, file INTEGER NOT NULL, offset INTEGER NOT NULL);
CREATE TABLE operation (
    lsn INTEGER NOT NULL REFERENCES commit_record, place INTEGER NOT NULL, kind TEXT NOT NULL,
    queue INTEGER NOT NULL, fields TEXT NOT NULL, PRIMARY KEY (lsn, place));
"""


@click.command(short_help="Write messages or the log out, as text, JSON Lines or SQLite.")
@directory_argument
@queue_option("Only messages of this queue.", required=False)
@click.option("--log", "log", is_flag=True, help="The commits of the log instead of the messages.")
@click.option("--format", "form", type=click.Choice(["text", "jsonl"]), default="text", show_default=True)
@click.option(
    "--sqlite",
    "database",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    help="Write messages and log into tables of a new SQLite file.",
)
@click.option("--full", is_flag=True, help="Text: whole bodies, not only how they begin.")
def dump(
    directory: pathlib.Path,
    queue_name: str | None,
    log: bool,
    form: str,
    database: pathlib.Path | None,
    full: bool,
) -> int:
    """Write out what is in a repository, without opening it: it may be in use, or too damaged to open.

    Without --log these are the messages that are not settled: ready, delayed or claimed. With --log they
    are the commits with their operations, from the last checkpoint on. The exit code is 4 when a message
    is damaged; the others are written all the same.

    \b Examples: rota dump jobs rota dump jobs -q work --format jsonl > work.jsonl rota dump jobs --log |
    tail rota dump jobs --sqlite jobs.sqlite && sqlite3 jobs.sqlite 'SELECT queue, count(*) FROM message
    GROUP BY 1'
    """
    demand_repository(directory)
    if log and queue_name is not None:
        raise click.UsageError("--log shows all queues: a commit may touch several.")
    with inspected():
        if database is not None:
            return write_database(directory, queue_name, database)
        if log:
            writer = log_text if form == "text" else log_json
            for commit in inspection.commits(directory):
                write_out(writer(commit))
            return DONE
        return dump_messages(directory, queue_name, json_writer() if form == "jsonl" else text_writer(full))


def messages_of(
    directory: pathlib.Path, queue_name: str | None
) -> Iterator[tuple[str, inspection.Message, bytes | None]]:
    """Yield queue, message and body; no body for a damaged message."""
    for name, message in inspection.live(directory):
        if queue_name is None or name == queue_name:
            yield name, message, None if message.damage else inspection.body(directory, message)


def dump_messages(
    directory: pathlib.Path,
    queue_name: str | None,
    writer: Callable[[str, inspection.Message, bytes | None], bytes],
) -> int:
    """Write the messages; tell by the exit code whether one was damaged."""
    damaged = 0
    pending: list[bytes] = []
    for name, message, body in messages_of(directory, queue_name):
        damaged += body is None
        pending.append(writer(name, message, body))
        if len(pending) == ROWS:
            write_out(b"".join(pending))
            pending = []
    write_out(b"".join(pending))
    return REFUSED if damaged else DONE


def text_writer(full: bool) -> Callable[[str, inspection.Message, bytes | None], bytes]:
    """Return what makes a line for a person."""

    def write(name: str, message: inspection.Message, body: bytes | None) -> bytes:
        parts = [printable(name), str(message.id)]
        parts += [f"{key}={printable(str_or_bytes(value))}" for key, value in attributes(message).items()]
        parts.append(f"[{message.damage}]" if body is None else printable(body, None if full else TEXT_BODY))
        return (" ".join(parts) + "\n").encode("utf-8", "backslashreplace")

    return write


def str_or_bytes(value: Any) -> str | bytes:
    """Return a value as something that can be escaped."""
    return value if isinstance(value, str | bytes) else json_line(value)


def json_writer() -> Callable[[str, inspection.Message, bytes | None], bytes]:
    """Return what makes a line of JSON."""

    def write(name: str, message: inspection.Message, body: bytes | None) -> bytes:
        record = {
            "queue": name,
            "id": message.id,
            **{key: as_json(value) for key, value in attributes(message).items()},
        }
        record.update({"damage": message.damage} if body is None else {"body": as_json(body)})
        return json_line(record).encode() + b"\n"

    return write


def attributes(message: inspection.Message) -> dict[str, Any]:
    """Return what is known of a message beside its body, times in seconds."""
    found: dict[str, Any] = {"priority": message.priority} if message.priority else {}
    for name, value in message.attributes.items():
        if name.endswith("_ns"):
            found[name.removesuffix("_ns") + "_at"] = value / 1e9
        else:
            found[name] = value
    return found


def instant(time_ns: int) -> str:
    """Return a time for a person, in UTC."""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def plain_fields(operation: inspection.Operation) -> dict[str, Any]:
    """Return the fields of an operation as JSON can hold them."""
    return {
        name: list(value) if isinstance(value, tuple) else as_json(value) for name, value in operation.fields.items()
    }


def log_text(commit: inspection.Commit) -> bytes:
    """Return a commit as lines for a person: where and when, then its operations."""
    token = f" token {commit.token[0]}.{commit.token[1]}" if commit.token else ""
    kind = " close" if commit.is_close else " mark" if commit.is_mark else ""
    head = f"{commit.lsn} +{commit.length} epoch {commit.epoch}.{commit.sub_epoch} {instant(commit.time_ns)}"
    lines = [head + f" durable {commit.durable_lsn}{token}{kind}"]
    for operation in commit.operations:
        shown = " ".join(f"{name}={printable(str_or_bytes(value))}" for name, value in plain_fields(operation).items())
        lines.append(f"    {operation.kind} queue={operation.queue} {shown}")
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")


def log_json(commit: inspection.Commit) -> bytes:
    """Return a commit as a line of JSON."""
    record = {
        "lsn": commit.lsn,
        "length": commit.length,
        "epoch": commit.epoch,
        "sub_epoch": commit.sub_epoch,
        "time": commit.time_ns / 1e9,
        "durable_lsn": commit.durable_lsn,
        "operations": [
            {"kind": operation.kind, "queue": operation.queue, **plain_fields(operation)}
            for operation in commit.operations
        ],
        "messages": [message.id for message in commit.messages],
    }
    return json_line(record).encode() + b"\n"


def write_database(directory: pathlib.Path, queue_name: str | None, database: pathlib.Path) -> int:
    """Write messages and log into a new SQLite file, which appears only when it is whole."""
    if database.exists():
        raise Refused(f"{printable(str(database))} exists; give the name of a new file")
    partial = database.with_name(f"{database.name}.{os.getpid()}.partial")
    try:
        connection = sqlite3.connect(partial)
        try:
            connection.executescript(SCHEMA)
            with connection:
                rows = messages_of(directory, queue_name)
                connection.executemany("INSERT INTO message VALUES (?,?,?,?,?,?,?,?,?)", map(message_row, rows))
                fill_log(connection, inspection.commits(directory))
            (damaged,) = connection.execute("SELECT count(*) FROM message WHERE damage != ''").fetchone()
        finally:
            connection.close()
        # link and not rename: a file that came into being meanwhile is not overwritten.
        os.link(partial, database)
    finally:
        partial.unlink(missing_ok=True)
    return REFUSED if damaged else DONE


def message_row(found: tuple[str, inspection.Message, bytes | None]) -> tuple[Any, ...]:
    """Return the columns of a message."""
    name, message, body = found
    rest = attributes(message)
    key, due, expiry = rest.pop("key", None), rest.pop("due_at", None), rest.pop("expiry_at", None)
    rest.pop("priority", None)
    text = json_line({name: as_json(value) for name, value in rest.items()})
    return message.id, printable(name), message.priority, key, due, expiry, text, body, message.damage


def fill_log(connection: sqlite3.Connection, commits: Iterable[inspection.Commit]) -> None:
    """Insert commits and operations."""
    for commit in commits:
        connection.execute(
            "INSERT INTO commit_record VALUES (?,?,?,?,?,?,?)",
            (
                commit.lsn,
                commit.length,
                commit.epoch,
                commit.time_ns / 1e9,
                commit.durable_lsn,
                commit.file,
                commit.offset,
            ),
        )
        connection.executemany(
            "INSERT INTO operation VALUES (?,?,?,?,?)",
            [
                (commit.lsn, place, operation.kind, operation.queue, json_line(plain_fields(operation)))
                for place, operation in enumerate(commit.operations)
            ],
        )
