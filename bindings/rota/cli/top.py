"""`rota top`: depths, rates, ages and sync latency, live."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

import rota
from rota.cli.places import directory_argument, open_repository
from rota.cli.stat import room_figure
from rota.cli.tables import drawn, print_table
from rota.cli.text import age_figure, byte_figure, counted, duration_figure, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

COLUMNS = (
    "queue",
    "ready",
    "delayed",
    "claimed",
    "parked",
    "oldest",
    "puts/s",
    "gets/s",
    "acks/s",
    "nacks/s",
)
QUIT = {b"", b"q", b"Q", b"\x1b"}  # nothing: the terminal is gone


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of one instant."""

    at: float
    figures: rota.RepositoryStatistics

    @classmethod
    def of(cls, repository: rota.Repository) -> Sample:
        """Take the figures now."""
        return cls(time.monotonic(), repository.stats())


@click.command(short_help="Watch depths and rates live.")
@directory_argument
@click.option("--interval", metavar="SECONDS", default=1.0, show_default=True, type=click.FloatRange(0.05))
@click.option("--once", is_flag=True, help="Print one reading, measured over one interval, and leave.")
def top(directory: pathlib.Path, interval: float, once: bool) -> None:
    """Watch a repository: depth, rates and age of the oldest message of each queue, and what a sync takes.

    q or Ctrl-C leaves. Where standard output is no terminal it prints one reading, as with --once.

    \b
    Examples:
      rota top jobs
      rota top jobs --once --interval 5
    """
    with open_repository(directory) as repository:
        before = Sample.of(repository)
        if once or not sys.stdout.isatty():
            time.sleep(interval)
            print_once(before, Sample.of(repository))
        else:
            watch(repository, before, interval)


def print_once(before: Sample, after: Sample) -> None:
    """Print one reading as text."""
    click.echo(headline(before, after))
    print_table(None, COLUMNS, rows(before, after))


def watch(repository: rota.Repository, before: Sample, interval: float) -> None:
    """Draw one reading after another, until someone has seen enough."""
    from rich.live import Live

    with keys() as wait_for_key, Live(screen=True, auto_refresh=False) as live:
        live.update(view(before, before), refresh=True)
        # The first reading comes soon, so that nobody looks at zeros for long.
        pause = min(0.25, interval)
        while not wait_for_key(pause):
            after = Sample.of(repository)
            live.update(view(before, after), refresh=True)
            before, pause = after, interval


def view(before: Sample, after: Sample) -> RenderableType:
    """Return one reading as it is drawn."""
    from rich.console import Group
    from rich.text import Text

    title = Text.assemble(("rota ", "bold"), printable(str(after.figures.path)), ("   q leaves", "dim"))
    alarm = Text("FAILED: a sync failed", style="bold red") if after.figures.failed else Text("")
    return Group(title, Text(headline(before, after)), alarm, drawn(None, COLUMNS, rows(before, after)))


def headline(before: Sample, after: Sample) -> str:
    """Return the line about the whole repository."""
    old, new = before.figures, after.figures
    seconds = max(after.at - before.at, 1e-9)
    syncs = new.syncs - old.syncs
    latency = duration_figure((new.sync_seconds - old.sync_seconds) / syncs) if syncs > 0 else "-"
    return (
        f"{counted(sum(queue.total for queue in new.queues), 'message')}, {room_figure(new)}, "
        f"{counted(len(new.processes), 'process')}; "
        f"{per_second(new.commits - old.commits, seconds)} commits/s, "
        f"{per_second(syncs, seconds)} syncs/s of {latency}, "
        f"{byte_figure(new.tail_lsn - new.durable_lsn)} not on disk yet"
    )


def per_second(count: int, seconds: float) -> str:
    """Return a rate; below ten with a decimal."""
    rate = max(count, 0) / seconds
    return f"{rate:,.1f}" if 0 < rate < 10 else f"{rate:,.0f}"


def rows(before: Sample, after: Sample) -> list[tuple[str, ...]]:
    """Return the lines about the queues, those with most messages first."""
    earlier = {figures.name: figures for figures in before.figures.queues}
    seconds = max(after.at - before.at, 1e-9)
    found = []
    for new in sorted(after.figures.queues, key=lambda figures: (-figures.total, figures.name)):
        old = earlier.get(new.name, new)
        name = printable(new.name, 40) + ("" if new.state == "open" else f" ({new.state})")
        counts = (new.ready, new.delayed, new.claimed, new.parked)
        changes = (new.puts - old.puts, new.gets - old.gets, new.acks - old.acks, new.nacks - old.nacks)
        found.append(
            (
                name,
                *(f"{count:,}" for count in counts),
                age_figure(new.oldest_at),
                *(per_second(change, seconds) for change in changes),
            )
        )
    return found


class Waiter:
    """Waits for the time of one reading, or for a key that means enough."""

    def __call__(self, seconds: float) -> bool:
        """Tell whether such a key was pressed within the time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not sys.stdin.isatty():
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0] and os.read(sys.stdin.fileno(), 64) in QUIT:
                return True
        return False


@contextlib.contextmanager
def keys() -> Iterator[Waiter]:
    """Have keys come one by one and unseen while the view is up."""
    if not sys.stdin.isatty():
        yield Waiter()
        return
    saved = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield Waiter()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)
