"""`rota drain`: every message that is ready, to standard output or into another queue, until there is none.

Within one repository taking and putting are one commit. Between two repositories they are two, in this order:

1. The messages are put into the target, together with a tag that holds their ids.
2. They are acknowledged in the source.

A crash in between leaves messages that are in both. The next run finds their ids in the tag, acknowledges
them when it meets them, and does not put them again; ids it has not met yet stay in the tag.
"""

from __future__ import annotations

import pathlib
import struct
import sys
import time
from collections.abc import Iterable, Iterator

import click

import rota
from rota.cli.framing import OVERHEAD_BYTES, chosen_delimiter, framing_options
from rota.cli.get import copy_out, json_writer, raw_writer
from rota.cli.places import (
    commit_bytes,
    create_options,
    directory_argument,
    durability_option,
    open_queue,
    open_repository,
    queue_option,
)
from rota.cli.position import held, registrant
from rota.cli.text import counted, json_line, printable, rate_figure

BATCH = 128
ID_BYTES = 8


@click.command(short_help="Empty a queue, to standard output or into another queue.")
@directory_argument
@queue_option("The queue to empty.")
@click.option("--to", "target", metavar="QUEUE", help="Put the messages into this queue instead of printing them.")
@click.option("--to-dir", metavar="DIR2", help="The repository of that queue. [the same one]")
@click.option("--timeout", metavar="SECONDS", default=0.0, type=click.FloatRange(0), help="Wait so long for more. [0]")
@click.option("--format", "form", type=click.Choice(["raw", "json", "length-prefixed"]), default="raw")
@framing_options
@durability_option
@create_options
@click.option("--json", "as_json", is_flag=True, help="With --to: print how many were moved, as a JSON object.")
def drain(
    directory: pathlib.Path,
    queue_name: str,
    target: str | None,
    to_dir: str | None,
    timeout: float,
    form: str,
    delimiter: str | None,
    null: bool,
    length_prefixed: bool,
    durability: str,
    create: bool,
    capacity: str | None,
    as_json: bool,
) -> None:
    """Hand out and settle every message that is ready, until there is none.

    Without --to the messages are printed, and each is settled after it was written. With --to they go
    into another queue with key, headers and priority, under new ids: in the same repository each batch
    moves in one commit; into another one (--to-dir) a batch that was moved when the command was killed is
    not put again by the next run. Messages that are delayed or that others hold stay.

    \b
    Examples:
      rota drain jobs -q work > work.txt
      rota drain jobs -q old --to new --create
      rota drain jobs -q work --to work --to-dir archive --create
    """
    if target is None and to_dir is not None:
        target = queue_name
    mark = chosen_delimiter(delimiter, null, length_prefixed or form == "length-prefixed")
    started = time.monotonic()
    with open_repository(directory, durability=durability) as repository:
        source = open_queue(repository, queue_name)
        if target is None:
            copy_out(source, json_writer if form == "json" else raw_writer(mark), None, timeout, True)
            return
        if to_dir is None or same_directory(directory, to_dir):
            if target == queue_name:
                raise click.UsageError("A queue cannot be drained into itself.")
            moved = move_within(repository, source, open_queue(repository, target, create=create), timeout)
        else:
            other = pathlib.Path(to_dir)
            with open_repository(other, create=create, capacity=capacity, durability=durability) as archive:
                moved = move_across(source, archive, open_queue(archive, target, create=create), directory, timeout)
    if as_json:
        click.echo(json_line({"messages": moved, "seconds": time.monotonic() - started}))
    elif sys.stderr.isatty():
        click.echo(f"{counted(moved, 'message')} moved, {rate_figure(moved, time.monotonic() - started)}", err=True)


def same_directory(first: pathlib.Path, second: str) -> bool:
    """Tell whether two names are one repository."""
    return pathlib.Path(second).exists() and first.samefile(second)


def carry(transaction: rota.Transaction, target: rota.Queue, message: rota.Message) -> None:
    """Put a copy of a message, with all that its sender gave it."""
    transaction.put(target, message.body, key=message.key, headers=message.headers or None, priority=message.priority)


def move_within(repository: rota.Repository, source: rota.Queue, target: rota.Queue, timeout: float) -> int:
    """Move all that is ready to another queue of the repository; return how many."""
    moved, size = 0, BATCH
    while True:
        try:
            with repository.transaction() as transaction:
                batch = transaction.get_many(source, size, timeout=timeout)
                carry_all(transaction, target, batch)
        except rota.TransactionTooLarge:
            if size == 1:
                raise
            size = 1
            continue
        if not batch:
            return moved
        moved += len(batch)
        size = min(2 * size, BATCH)


def carry_all(transaction: rota.Transaction, target: rota.Queue, batch: Iterable[rota.Message]) -> None:
    """Put copies; when they do not fit, give the messages back, which is not their fault."""
    try:
        for message in batch:
            carry(transaction, target, message)
    except rota.TransactionTooLarge:
        transaction.rollback()
        raise


def move_across(
    source: rota.Queue, archive: rota.Repository, target: rota.Queue, directory: pathlib.Path, timeout: float
) -> int:
    """Move all that is ready to a queue of another repository; return how many this run has put."""
    name = registrant(f"{directory.resolve()}:{printable(source.name)}", kind="drain")
    moved, size = 0, commit_bytes(archive)
    with held(pathlib.Path(archive.path), target.name, name, wait=False):
        registration = target.register(name, stable=True)
        # In both repositories, and not met yet by this run.
        doubled = still_there(source, registration.last.tag if registration.last else b"")
        while batch := source.get_many(BATCH, timeout=timeout):
            fresh = [message for message in batch if message.id not in doubled]
            doubled -= set(batch.ids)
            known = set(doubled)
            for group in weighed(fresh, size):
                known |= {message.id for message in group}
                with archive.transaction() as transaction:
                    for message in group:
                        carry(transaction, target, message)
                    transaction.tag(registration, ids_tag(known))
            batch.ack()
            moved += len(fresh)
    return moved


def weighed(messages: Iterable[rota.Message], size: int) -> Iterator[list[rota.Message]]:
    """Yield messages in groups of so many bytes at most, unless one alone has more."""
    group: list[rota.Message] = []
    weight = 0
    for message in messages:
        own = len(message.body) + OVERHEAD_BYTES
        if group and weight + own > size:
            yield group
            group, weight = [], 0
        group.append(message)
        weight += own
    if group:
        yield group


def ids_tag(ids: set[int]) -> bytes:
    """Return ids as a tag."""
    return struct.pack(f"<{len(ids)}Q", *sorted(ids))


def still_there(source: rota.Queue, tag: bytes) -> set[int]:
    """Return the ids of a tag whose messages are not settled in the source: they are in both repositories."""
    present = set()
    for (number,) in struct.iter_unpack("<Q", tag[: len(tag) // ID_BYTES * ID_BYTES]):
        try:
            source.read(number)
        except rota.NotFound:
            continue
        present.add(number)
    return present
