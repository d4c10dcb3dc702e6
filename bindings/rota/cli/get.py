"""`rota get`: messages to standard output, settled once they are written."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import click

import rota
from rota.cli.failures import DONE, NOTHING_THERE
from rota.cli.framing import chosen_delimiter, framed, framing_options
from rota.cli.patience import write_out
from rota.cli.places import directory_argument, open_queue, open_repository, queue_option
from rota.cli.text import json_line, message_record

BATCH = 256
Writer = Callable[[rota.Batch], bytes]


@click.command(short_help="Take messages out of a queue, to standard output.")
@directory_argument
@queue_option("The queue to take from.")
@click.option("-n", "--count", metavar="N", type=click.IntRange(1), help="How many at most. [1]")
@click.option("--all", "everything", is_flag=True, help="All that are ready.")
@click.option("--follow", is_flag=True, help="Go on for ever: print each message when it comes.")
@click.option("--ack/--no-ack", default=True, help="Settle what was printed (the default), or give it back.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    default=0.0,
    type=click.FloatRange(0),
    help="Wait so long for a message. [0]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["raw", "json", "length-prefixed"]),
    default="raw",
    show_default=True,
)
@framing_options
def get(
    directory: pathlib.Path,
    queue_name: str,
    count: int | None,
    everything: bool,
    follow: bool,
    ack: bool,
    timeout: float,
    form: str,
    delimiter: str | None,
    null: bool,
    length_prefixed: bool,
) -> int:
    """Take messages out of a queue and print them.

    A message is settled after it was written to standard output: when the command is stopped in between,
    the message comes again (at least once). With --no-ack all are given back at the end, as if never
    taken. The exit code is 3 when there was nothing to take. --format json tells id, key, headers and
    attempts too.

    \b
    Examples:
      rota get jobs -q work
      rota get jobs -q work -n 100 --format json | jq .key
      rota get jobs -q work --all --no-ack | head
      rota get jobs -q thumbnails --all --null | xargs -0 convert-them
      rota get jobs -q clicks --follow > clicks.log
    """
    if (count is not None) + everything + follow > 1:
        raise click.UsageError("-n, --all and --follow exclude each other.")
    if follow and not ack:
        raise click.UsageError("--follow needs --ack: it never comes to the end at which messages are given back.")
    limit = None if everything or follow else count or 1
    mark = chosen_delimiter(delimiter, null, length_prefixed or form == "length-prefixed")
    writer = json_writer if form == "json" else raw_writer(mark)
    with open_repository(directory) as repository:
        queue = open_queue(repository, queue_name)
        taken = copy_out(queue, writer, limit, None if follow else timeout, ack)
    return DONE if taken else NOTHING_THERE


def raw_writer(delimiter: bytes | None) -> Writer:
    """Return what turns a batch into framed bodies."""
    return lambda batch: b"".join([framed(body, delimiter) for body in batch.bodies])


def json_writer(batch: rota.Batch) -> bytes:
    """Return a batch as lines of JSON."""
    return b"".join([json_line(message_record(message)).encode() + b"\n" for message in batch])


def copy_out(queue: rota.Queue, writer: Writer, limit: int | None, timeout: float | None, ack: bool) -> int:
    """Write messages until the limit, or until none comes in time; return how many."""
    kept: list[rota.Batch] = []
    taken, written = 0, False
    try:
        while limit is None or taken < limit:
            written = False
            size = BATCH if limit is None else min(BATCH, limit - taken)
            batch = queue.get_many(size, timeout=timeout)
            if not batch:
                break
            kept.append(batch)
            write_out(writer(batch))
            written = True
            taken += len(batch)
            if ack:
                batch.ack()
                kept.clear()
    finally:
        # After a closed pipe or Ctrl-C: what was not written whole goes back, not counted as an attempt.
        for batch in kept:
            if ack and written:
                batch.ack()
            else:
                batch.release()
    return taken
