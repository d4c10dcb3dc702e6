"""`rota profile`: what deduplication would save, from a file of keys."""

from __future__ import annotations

import dataclasses
import json
from typing import BinaryIO

import click

import rota
from rota.cli.tables import print_facts


@click.command(short_help="Tell from a file of keys what deduplication would save.")
@click.argument("file", type=click.File("rb"))
@click.option("--queue-length", default=1000, show_default=True, type=click.IntRange(1, 32768), metavar="REQUESTS")
@click.option("--service-length", default=100, show_default=True, type=click.IntRange(1, 16384), metavar="REQUESTS")
@click.option("--json", "as_json", is_flag=True, help="Print the shares as a JSON object.")
def profile(file: BinaryIO, queue_length: int, service_length: int, as_json: bool) -> None:
    """Measure how soon keys come again in FILE, one key a line in the order of the requests; - is standard input.

    A repeat within --queue-length requests is high, a later one sparse; none is the last request of a key. Only
    high repeats gain from deduplication. --service-length is the time of one request, in requests that arrive
    meanwhile; saved is what a coordinator would decline.

    \b
    Examples:
      cut -d' ' -f7 access.log | rota profile -
      rota profile keys.txt --queue-length 5000 --json
    """
    repeats = rota.RepeatProfile(queue_length, service_length)
    for line in file:
        repeats.add(line.rstrip(b"\r\n"))
    shares = repeats.shares()
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(shares)))
        return
    figures = [(name, f"{getattr(shares, name):.1%}") for name in ("high", "sparse", "none", "saved")]
    print_facts("repeats", [("requests", f"{shares.requests:,}"), ("keys", f"{shares.distinct:,}"), *figures])
