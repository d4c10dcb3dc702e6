"""`rota verify` and `rota repair`: the files of a repository, without the engine."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from rota import inspection
from rota.cli.failures import DONE, REFUSED, Refused
from rota.cli.places import chosen, demand_repository, directory_argument
from rota.cli.progress import Bar
from rota.cli.tables import print_table
from rota.cli.text import byte_figure, counted, printable
from rota.errors import error_for

SHOWN_MAX = 50


@contextmanager
def inspected() -> Iterator[None]:
    """Turn what an inspection says of unreadable files into the error that an open would raise."""
    try:
        yield
    except inspection.InspectionError as error:
        status, file, offset, _, _, detail, _ = error.args
        raise error_for(status, detail, file=file, offset=offset) from None


@click.command(short_help="Check every byte of a repository.")
@directory_argument
@click.option("--quiet", is_flag=True, help="Print nothing; the exit code tells.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as a JSON object.")
def verify(directory: pathlib.Path, quiet: bool, as_json: bool) -> int:
    """Check everything in a repository that has a checksum, without changing anything.

    The exit code is 0 when all is sound, or when only the end of the log is torn, which the next open
    cuts: nothing in there was acknowledged. It is 4 when something is damaged; `rota repair` then saves
    what is left. Stop the programs that use the repository first, or the end of the log may look torn.

    \b
    Examples:
      rota verify jobs
      rota verify jobs --json | jq '.problems[].consequence'
    """
    demand_repository(directory)
    with inspected(), Bar("verify", None, "bytes", quiet=quiet or as_json) as bar:
        report = inspection.verify(directory, lambda done, total: bar.show(done, done, total))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report), default=str))
    elif not quiet:
        print_verdict(report)
    return DONE if report.ok else REFUSED


def print_verdict(report: inspection.VerifyReport) -> None:
    """Print the verdict and what it rests on."""
    seen = [counted(report.commits, "commit"), counted(report.messages, "message"), byte_figure(report.bytes)]
    place = f"{counted(report.files, 'file')}, log ends at {report.end_lsn:,}"
    click.echo(f"{report.verdict}: {', '.join(seen)} in {place}")
    rows = [
        (problem.file, f"{problem.offset:,}", problem.what, problem.consequence)
        for problem in report.problems[:SHOWN_MAX]
    ]
    if rows:
        print_table(None, ("file", "byte", "what", "what it costs"), rows)
    if len(report.problems) > SHOWN_MAX:
        click.echo(f"and {len(report.problems) - SHOWN_MAX:,} more; --json lists them all")


@click.command(short_help="Copy what can be read into a new repository.")
@click.argument("arguments", metavar="[DIR] OUTPUT", nargs=-1, required=True)
@click.option("--quiet", is_flag=True, help="Print nothing; the exit code tells.")
@click.option("--json", "as_json", is_flag=True, help="Print what was saved and lost as a JSON object.")
def repair(arguments: Sequence[str], quiet: bool, as_json: bool) -> int:
    """Write a new repository from all that is valid in a damaged one, which is left as it is.

    Messages keep their ids and queues. A message is saved only if its checksum is right. When an
    acknowledgement was lost, its message is in the new repository again: it may be handed out a second
    time, but is never lost silently. The exit code is 4 when something could not be saved; what it was is
    printed.

    \b
    Examples:
      rota repair jobs jobs.repaired && mv jobs jobs.damaged && mv jobs.repaired jobs
    """
    directory, output = two_directories(arguments)
    demand_repository(directory)
    with inspected(), Bar("repair", None, "bytes", quiet=quiet or as_json) as bar:
        report = inspection.repair(directory, output, lambda done, total: bar.show(done, done, total))
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(report), "complete": report.complete}, default=str))
    elif not quiet:
        print_saved(report)
    return DONE if report.complete else REFUSED


def two_directories(arguments: Sequence[str]) -> tuple[pathlib.Path, pathlib.Path]:
    """Return the damaged repository and the new one, which must not be there yet."""
    if len(arguments) not in (1, 2):
        raise click.UsageError("Give the damaged repository and a new directory.")
    directory = chosen(arguments[0] if len(arguments) == 2 else None)
    output = pathlib.Path(arguments[-1])
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise Refused(f"{printable(str(output))} exists and is not empty; repair writes only into a new directory")
    return directory, output


def print_saved(report: inspection.RepairReport) -> None:
    """Print what was saved, and what was not."""
    saved = f"{counted(report.messages, 'message')} in {counted(report.commits, 'commit')}"
    click.echo(f"saved {saved} to {printable(report.output)}")
    if report.salvaged:
        click.echo(f"{counted(report.salvaged, 'message')} of these came out of damaged commits")
    for start, end in report.gaps[:SHOWN_MAX]:
        click.echo(f"lost: the log from {start:,} to {end:,}")
    if report.lost_ids:
        shown = ", ".join(map(str, report.lost_ids[:SHOWN_MAX]))
        more = f" and {len(report.lost_ids) - SHOWN_MAX:,} more" if len(report.lost_ids) > SHOWN_MAX else ""
        click.echo(f"lost messages: {shown}{more}")
    for note in report.notes[:SHOWN_MAX]:
        click.echo(f"note: {printable(note)}")
