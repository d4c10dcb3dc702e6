"""`rota ingest`: files into a queue, each record once, going on where it stopped."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

import rota
from rota.cli.framing import unescape
from rota.cli.ingestion import Ingestion, Outcome, Settings
from rota.cli.patience import STANDARD_INPUT
from rota.cli.places import (
    create_options,
    durability_option,
    open_queue,
    open_repository,
    queue_option,
    split_arguments,
)
from rota.cli.progress import Bar
from rota.cli.records import FORMATS, Plan, format_of
from rota.cli.sources import Source
from rota.cli.text import counted, duration_figure, json_line, rate_figure

CHECK_BYTES = 1 << 20


@click.command(short_help="Load files into a queue; goes on where it stopped.")
@click.argument("arguments", metavar="[DIR] FILE...", nargs=-1, required=True)
@queue_option("The queue to put into.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", *FORMATS]),
    default="auto",
    show_default=True,
    help="What a record is; auto goes by the ending of the name, and else takes lines.",
)
@click.option(
    "--as",
    "shape",
    type=click.Choice(["raw", "json"]),
    default="raw",
    show_default=True,
    help="The body: the record as it stands, or JSON (of a CSV row an object by the header).",
)
@click.option("--key-column", metavar="NAME", help="The column or field whose value is the key of the message.")
@click.option("--separator", metavar="CHAR", help=r"Between CSV fields. [a comma; a tab for .tsv]")
@click.option("--header/--no-header", default=True, help="The first CSV record names the columns, and is no message.")
@click.option("--member", metavar="NAME", help="Which member of a zip file that has several.")
@click.option("--source", "name", metavar="NAME", help="What its position is remembered by. [its real path]")
@click.option("--part", metavar="I/N", help="Only part I of N: for several processes with one source.")
@click.option(
    "--batch",
    metavar="N",
    default=1000,
    show_default=True,
    type=click.IntRange(1),
    help="Records in one commit.",
)
@click.option("--skip-bad", is_flag=True, help="Pass over records that are no JSON or lack fields; else they stop it.")
@click.option("--hold-partial", is_flag=True, help="Leave a last record without a newline for the next time.")
@click.option("--check", is_flag=True, help="Read the whole file once before anything of it is put.")
@click.option("--again", is_flag=True, help="From the start, whatever was ingested before.")
@click.option("--wait", is_flag=True, help="If another process is ingesting the same source: wait, then go on.")
@durability_option
@create_options
@click.option("--quiet", is_flag=True, help="No bar and no closing line.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures of each file as a JSON object.")
def ingest(arguments: Sequence[str], queue_name: str, name: str | None, member: str | None, **options: Any) -> None:
    """Put the records of files into a queue: CSV, JSON Lines or lines, plain or compressed.

    The position in each file is committed with its records, so the command may be killed at any time: the
    next run goes on behind the last record that is in the queue, none missing and none twice. A file that
    has grown is taken from its old end on; one whose start has changed is refused (exit code 4).
    Positions are remembered for each queue by the real path of the file or by --source. gzip, zip, lz4,
    bzip2 and xz are recognised by content. A file named - is standard input, and needs --source.

    Most compressed files have their checksum at the end, so that damage in the middle may be found only
    after some of it was put; --check reads the file once before. A CSV record with quoted newlines is one
    record. Blank lines of CSV and JSON Lines are passed over.

    \b
    Examples:
      rota ingest jobs orders.csv --queue orders --create
      rota ingest jobs flights.csv.zip --queue flights --key-column carrier --as json
      zcat /var/log/app.log.*.gz | rota ingest jobs - --source app-log --queue log --format lines
      rota ingest jobs big.jsonl.gz --queue q --part 1/2 &  rota ingest jobs big.jsonl.gz --queue q --part 2/2
    """
    directory, files = split_arguments(arguments)
    if not files:
        raise click.UsageError("Give at least one file to ingest, or - for standard input.")
    if name is not None and len(files) > 1:
        raise click.UsageError("--source names one source; give one file with it.")
    settings = chosen_settings(options)
    with open_repository(
        directory, create=options["create"], capacity=options["capacity"], durability=options["durability"]
    ) as repository:
        queue = open_queue(repository, queue_name, create=options["create"])
        for file in files:
            if options["check"]:
                check(file, member)
            with Source(file, name=name, member=member) as source:
                plan = chosen_plan(source, options)
                outcome = ingest_source(repository, queue, source, plan, settings, quiet=options["quiet"])
            report(source, queue_name, outcome, options)


def check(file: str, member: str | None) -> None:
    """Read a file to its end; one that is damaged is refused."""
    if file == STANDARD_INPUT:
        raise click.UsageError("--check reads the source twice, which standard input does not allow.")
    with Source(file, member=member) as source:
        while source.read(CHECK_BYTES):
            pass


def chosen_settings(options: dict[str, Any]) -> Settings:
    """Return the options that do not depend on the source."""
    part = None
    if options["part"] is not None:
        number, slash, count = options["part"].partition("/")
        if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise click.UsageError(f"--part takes I/N, as 1/4, not {options['part']!r}.")
        part = (int(number), int(count))
    names = ("batch", "skip_bad", "hold_partial", "again", "wait")
    return Settings(part=part, **{name: options[name] for name in names})


def chosen_plan(source: Source, options: dict[str, Any]) -> Plan:
    """Return what a record of this source is."""
    form = format_of(source.inner_name) if options["form"] == "auto" else options["form"]
    separator = options["separator"]
    if separator is None:
        separator = "\t" if source.inner_name.lower().endswith((".tsv", ".tab")) else ","
    else:
        separator = unescape(separator).decode("utf-8", "surrogateescape")
    if len(separator) != 1 or not separator.isascii() or separator in '"\n\r':
        raise click.UsageError("--separator takes one ASCII character that is no quote and no newline.")
    if form == "lines" and (options["shape"] == "json" or options["key_column"] is not None):
        raise click.UsageError(f"{source} is taken as lines, which have no fields; give --format csv or jsonl.")
    return Plan(form, separator, options["header"], options["shape"] == "json", options["key_column"])


def ingest_source(
    repository: rota.Repository,
    queue: rota.Queue,
    source: Source,
    plan: Plan,
    settings: Settings,
    *,
    quiet: bool,
) -> Outcome:
    """Ingest one source under a bar."""
    ingestion = Ingestion(repository, queue, plan, settings)
    with Bar(str(source), source.size, "records", quiet=quiet) as bar:
        ingestion.progress = bar.show
        ingestion.complaints = lambda text: click.echo(f"rota: {text}", err=True)
        return ingestion.run(source)


def report(source: Source, queue_name: str, outcome: Outcome, options: dict[str, Any]) -> None:
    """Print what was done with one source."""
    if options["as_json"]:
        figures = {
            "source": source.name,
            "queue": queue_name,
            "records": outcome.records,
            "skipped": outcome.skipped,
            "bytes": outcome.bytes,
            "seconds": outcome.seconds,
            "resumed_at": outcome.resumed_at,
            "offset": outcome.offset,
            "records_total": outcome.records_total,
            "skipped_total": outcome.skipped_total,
        }
        click.echo(json_line(figures))
        return
    if options["quiet"]:
        return
    before = outcome.records_total - outcome.records
    if not outcome.records and before:
        click.echo(f"{source}: nothing new; its {counted(before, 'record')} had been taken before")
        return
    text = f"{source}: {counted(outcome.records, 'record')} in {duration_figure(outcome.seconds)}"
    text += f", {rate_figure(outcome.records, outcome.seconds)}"
    text += f", after {before:,} before" if before else ""
    text += f"; {counted(outcome.skipped, 'bad record')} passed over" if outcome.skipped else ""
    click.echo(text)
    sys.stdout.flush()
