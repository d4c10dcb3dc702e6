"""`rota errors` and `rota redrive`: what ended up in error queues, and back to work with it."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import click

import rota
from rota.cli.failures import DONE, NOTHING_THERE, NothingThere
from rota.cli.places import directory_argument, open_queue, open_repository, queue_option, split_arguments
from rota.cli.tables import print_table
from rota.cli.text import age_figure, counted, json_line, message_record, printable

COLUMNS = ("error queue", "id", "from", "why", "attempts", "age", "key", "body")
MOVES = 500  # in one commit
QUEUE_HELP = "The error queue, or the queue whose error queue is meant."


@click.command(short_help="List messages in error queues, and why they are there.")
@directory_argument
@queue_option(QUEUE_HELP + " [all]", required=False)
@click.option("-n", "--count", metavar="N", default=100, show_default=True, type=click.IntRange(1), help="How many.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each message, with its whole body.")
def errors(directory: pathlib.Path, queue_name: str | None, count: int, as_json: bool) -> int:
    """List the messages in error queues, the oldest first: where they come from, why, and how often tried.

    Nothing is claimed or changed. The exit code is 3 when there are none.

    \b
    Examples:
      rota errors jobs
      rota errors jobs -q work --json | jq -r .body
    """
    with open_repository(directory) as repository:
        figures = repository.stats().queues
        found = itertools.islice(error_messages(repository, figures, queue_name), count)
        records = [error_record(name, message, figures) for name, message in found]
    if as_json:
        for record in records:
            click.echo(json_line(record))
    elif records:
        print_table(None, COLUMNS, [error_row(record) for record in records])
    return DONE if records else NOTHING_THERE


def error_messages(
    repository: rota.Repository, figures: Sequence[rota.QueueStatistics], queue_name: str | None
) -> Iterator[tuple[str, rota.Message]]:
    """Yield the messages of the error queues that are meant."""
    if queue_name is not None:
        names = [error_queue_of(repository, queue_name).name]
    else:
        names = sorted({queue.error_queue for queue in figures if queue.error_queue is not None})
    for name in names:
        for message in repository.queue(name).browse():
            yield name, message


def error_queue_of(repository: rota.Repository, name: str) -> rota.Queue:
    """Return the queue of that name when it is an error queue, else the error queue it has."""
    queue = open_queue(repository, name)
    figures = repository.stats().queues
    if any(other.error_queue == name for other in figures):
        return queue
    target = queue.stats().error_queue
    if target is None:
        raise NothingThere(f"the queue {printable(name)} has no error queue")
    return repository.queue(target)


def error_record(name: str, message: rota.Message, figures: Sequence[rota.QueueStatistics]) -> dict[str, Any]:
    """Return what is known of a message in an error queue."""
    homes = [queue for queue in figures if queue.error_queue == name]
    record = message_record(message)
    return {
        "error_queue": name,
        "from": homes[0].name if len(homes) == 1 else None,
        "why": reason(message, homes),
        "error": message.error,
        **record,
    }


def reason(message: rota.Message, homes: Sequence[rota.QueueStatistics]) -> str:
    """Return why a message is here; what nobody noted follows from its attempts."""
    limits = [queue.max_attempts for queue in homes if queue.max_attempts is not None]
    if message.attempts == 0:
        return "expired"
    return "attempts used up" if limits and message.attempts >= min(limits) else "moved"


def error_row(record: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of one message."""
    return (
        printable(record["error_queue"], 30),
        str(record["id"]),
        "-" if record["from"] is None else printable(record["from"], 30),
        record["why"] if record["error"] is None else printable(f"{record['why']}: {record['error']}", 60),
        str(record["attempts"]),
        age_figure(record["enqueued_at"]),
        "-" if record["key"] is None else shown(record["key"], 20),
        shown(record["body"], 50),
    )


def shown(value: Any, limit: int) -> str:
    """Return a value of a JSON record as a cell."""
    return printable(value if isinstance(value, str) else json_line(value), limit)


@click.command(short_help="Send messages from an error queue back to work.")
@click.argument("arguments", metavar="[DIR] [ID]...", nargs=-1)
@queue_option(QUEUE_HELP)
@click.option("--all", "everything", is_flag=True, help="All messages of the error queue.")
@click.option("--to", "target", metavar="QUEUE", help="Where to. [the queue that the error queue belongs to]")
@click.option("--json", "as_json", is_flag=True, help="Print how many went, as a JSON object.")
def redrive(arguments: Sequence[str], queue_name: str, everything: bool, target: str | None, as_json: bool) -> int:
    """Move messages of an error queue back to where they came from; ids stay, attempts start anew.

    \b
    Examples:
      rota redrive jobs -q work --all
      rota redrive jobs -q work.errors 17 23
      rota redrive jobs -q work.errors --all --to triage
    """
    directory, texts = split_arguments(arguments)
    if bool(texts) == everything:
        raise click.UsageError("Give the ids of the messages, or --all.")
    if bad := [text for text in texts if not text.isdecimal()]:
        raise click.UsageError(f"{printable(bad[0])} is no id of a message.")
    with open_repository(directory) as repository:
        source = error_queue_of(repository, queue_name)
        queue = None if target is None else open_queue(repository, target)
        moved = 0
        for ids in groups(source, None if everything else list(map(int, texts))):
            moved += source.redrive(ids, queue)
    if as_json:
        click.echo(json_line({"messages": moved}))
    else:
        click.echo(f"{counted(moved, 'message')} back to work")
    return DONE if moved else NOTHING_THERE


def groups(source: rota.Queue, ids: list[int] | None) -> Iterator[list[int]]:
    """Yield the ids that one commit moves; without ids, those that are in the queue when it starts."""
    if ids is None:
        ids = [message.id for message in source.browse()]
    for start in range(0, len(ids), MOVES):
        yield ids[start : start + MOVES]
