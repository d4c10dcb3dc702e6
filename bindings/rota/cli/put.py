"""`rota put`: records of standard input or files, one message each."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

import rota
from rota.cli.framing import chosen_delimiter, cut, framing_options, read_records
from rota.cli.patience import open_patiently
from rota.cli.places import (
    commit_bytes,
    create_options,
    durability_option,
    open_queue,
    open_repository,
    queue_option,
    split_arguments,
)
from rota.cli.records import plain
from rota.cli.text import counted, json_line, rate_figure


@click.command(short_help="Put lines or records into a queue.")
@click.argument("arguments", metavar="[DIR] [FILE]...", nargs=-1)
@queue_option("The queue to put into.")
@framing_options
@click.option(
    "--batch",
    metavar="N",
    default=1000,
    show_default=True,
    type=click.IntRange(1),
    help="Messages in one commit.",
)
@click.option("--key", metavar="TEXT", help="The key of every message.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header of every message.")
@click.option("--priority", default=0, type=click.IntRange(0, 9), help="0 to 9; higher ones are handed out first.")
@click.option("--delay", metavar="SECONDS", default=0.0, type=click.FloatRange(0), help="Not visible before.")
@click.option("--ttl", metavar="SECONDS", type=click.FloatRange(0, min_open=True), help="Expired afterwards.")
@click.option("--timeout", metavar="SECONDS", type=click.FloatRange(0), help="Give up when full for so long. [wait]")
@durability_option
@create_options
@click.option("--json", "as_json", is_flag=True, help="Print what was put, as a JSON object.")
def put(
    arguments: Sequence[str],
    queue_name: str,
    delimiter: str | None,
    null: bool,
    length_prefixed: bool,
    batch: int,
    headers: Sequence[str],
    durability: str,
    create: bool,
    capacity: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Put each line of standard input, or of the files, into a queue as one message.

    Nothing is changed in a record; the delimiter is not part of it. What was put when the command is stopped
    stays put: a batch is one commit. A file named - is standard input.

    \b
    Examples:
      echo hello | rota put jobs -q work --create
      find . -name '*.png' -print0 | rota put jobs -q thumbnails --null --priority 5
      tail -F access.log | rota put jobs -q clicks --durability interval
      rota put jobs -q work orders.txt returns.txt --key batch-7 --ttl 3600
      rota put jobs -q frames --length-prefixed < frames.bin
    """
    directory, files = split_arguments(arguments)
    mark = chosen_delimiter(delimiter, null, length_prefixed)
    options["headers"] = dict(map(parsed_header, headers))
    options["key"] = None if options["key"] is None else plain(options["key"])
    started, count, size = time.monotonic(), 0, 0
    first = last = None
    with open_repository(directory, create=create, capacity=capacity, durability=durability) as repository:
        queue = open_queue(repository, queue_name, create=create)
        putter = Putter(repository, queue, options)
        for bodies in batches(files, mark, batch, commit_bytes(repository)):
            ids = putter.put(bodies)
            first, last = ids[0] if first is None else first, ids[-1]
            count += len(bodies)
            size += sum(map(len, bodies))
    seconds = time.monotonic() - started
    if as_json:
        figures = {"messages": count, "bytes": size, "first_id": first, "last_id": last, "seconds": seconds}
        click.echo(json_line(figures))
    elif sys.stderr.isatty():
        click.echo(f"{counted(count, 'message')} put, {rate_figure(count, seconds)}", err=True)


def parsed_header(text: str) -> tuple[str, str | int | float | bool]:
    """Return name and value of NAME=VALUE; a number, true or false is one, anything else is text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.UsageError(f"--header takes NAME=VALUE, not {text!r}.")
    try:
        parsed = json.loads(value)
    except ValueError:
        return name, value
    return name, parsed if isinstance(parsed, bool | int | float) else value


def batches(files: Sequence[str], delimiter: bytes | None, count: int, size: int) -> Iterator[list[bytes]]:
    """Yield what one commit takes: so many records and bytes at most, and never a wait for more of them."""
    for name in files or ["-"]:
        with open_patiently(name) as stream:
            for records in read_records(stream, delimiter):
                yield from cut(records, count, size)


class Putter:
    """Puts bodies with the same key, headers and times, a batch in one commit."""

    def __init__(self, repository: rota.Repository, queue: rota.Queue, options: dict[str, Any]) -> None:
        self.repository, self.queue = repository, queue
        self.priority, self.timeout = options.pop("priority"), options.pop("timeout")
        self.attributes = {name: value for name, value in options.items() if value not in (None, {}, 0.0)}

    def put(self, bodies: list[bytes]) -> range:
        """Put a batch; return the ids."""
        if not self.attributes:
            return self.queue.put_many(bodies, priority=self.priority, timeout=self.timeout).ids
        if self.timeout is not None:
            return self.put_singly(bodies)
        with self.repository.transaction() as transaction:
            for body in bodies:
                transaction.put(self.queue, body, priority=self.priority, **self.attributes)
        assert transaction.receipt is not None
        return transaction.receipt.ids

    def put_singly(self, bodies: list[bytes]) -> range:
        """Put each body in a commit of its own: only such a put can give up when there is no room."""
        options = {"priority": self.priority, "timeout": self.timeout, **self.attributes}
        ids = [self.queue.put(body, **options).id for body in bodies]
        return range(ids[0], ids[-1] + 1)
