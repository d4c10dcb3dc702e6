"""`rota stat`: the figures of a repository and its queues."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import click

import rota
from rota.cli.places import directory_argument, open_queue, open_repository, queue_option
from rota.cli.tables import print_facts, print_table
from rota.cli.text import age_figure, byte_figure, duration_figure, printable

COLUMNS = (
    "queue",
    "ready",
    "delayed",
    "claimed",
    "parked",
    "oldest",
    "puts",
    "acks",
    "nacks",
    "bytes",
    "errors to",
)


@click.command(short_help="Show the figures of a repository and its queues.")
@directory_argument
@queue_option("Only this queue.", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print all figures as a JSON object; times in seconds.")
def stat(directory: pathlib.Path, queue_name: str | None, as_json: bool) -> None:
    """Show what is in a repository: size, positions in the log, syncs, processes, and each queue.

    Ready messages wait to be handed out, delayed ones are not due yet, claimed ones are being worked on,
    parked ones wait for an error queue that cannot take them.

    \b
    Examples:
      rota stat jobs
      rota stat jobs -q work --json | jq .ready
    """
    with open_repository(directory) as repository:
        if queue_name is not None:
            figures = open_queue(repository, queue_name).stats()
            if as_json:
                click.echo(json.dumps(dataclasses.asdict(figures), default=str))
            else:
                print_queues([figures])
            return
        total = repository.stats()
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(total), default=str))
        return
    print_facts(f"repository {printable(str(total.path))}", repository_facts(total))
    click.echo()
    print_queues(total.queues)


def repository_facts(total: rota.RepositoryStatistics) -> list[tuple[str, str]]:
    """Return what there is to say of a repository, in words."""
    facts = [
        ("messages", f"{sum(queue.total for queue in total.queues):,} not settled"),
        ("room", room_figure(total)),
        ("log", f"tail at {total.tail_lsn:,}, on disk to {total.durable_lsn:,}, epoch {total.epoch}"),
        ("commits", f"{total.commits:,}, {total.checkpoints:,} checkpoints, next id {total.next_id:,}"),
        ("syncs", sync_figure(total.syncs, total.sync_seconds)),
        ("processes", " ".join(map(str, total.processes)) or "none"),
    ]
    if total.raw_bytes:
        saved = 100 - 100 * total.compressed_bytes / total.raw_bytes
        facts.append(("compression", f"{byte_figure(total.raw_bytes)} of bodies, {saved:.0f} % saved"))
    if total.owner_deaths or total.reaped_claims:
        facts.append(("deaths", f"{total.owner_deaths:,} in the lock, {total.reaped_claims:,} claims taken back"))
    if total.failed:
        facts.append(("state", "FAILED: a sync failed; stop all programs that use it, then open it again"))
    return facts


def room_figure(total: rota.RepositoryStatistics) -> str:
    """Return how much of the capacity holds the log, files that are made when they are needed."""
    used = (total.segments - total.free_segments) * total.segment_size
    return f"{byte_figure(used)} of {byte_figure(total.capacity)} in use"


def sync_figure(count: int, seconds: float) -> str:
    """Return a number of syncs with their mean."""
    return f"{count:,}, {duration_figure(seconds / count)} each" if count else "0"


def print_queues(queues: list[rota.QueueStatistics] | tuple[rota.QueueStatistics, ...]) -> None:
    """Print a line for each queue."""
    print_table(None, COLUMNS, [queue_row(figures) for figures in queues])


def queue_row(figures: rota.QueueStatistics) -> tuple[str, ...]:
    """Return the cells of one queue."""
    name = printable(figures.name, 40) + ("" if figures.state == "open" else f" ({figures.state})")
    counts = (figures.ready, figures.delayed, figures.claimed, figures.parked)
    return (
        name,
        *(f"{count:,}" for count in counts),
        age_figure(figures.oldest_at),
        *(f"{count:,}" for count in (figures.puts, figures.acks, figures.nacks)),
        byte_figure(figures.bytes),
        "-" if figures.error_queue is None else printable(figures.error_queue, 30),
    )
