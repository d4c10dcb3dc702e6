"""Figures as a table: drawn on a terminal, plain aligned columns in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

GAP = "  "


def is_number(text: str) -> bool:
    """Tell whether a cell looks better aligned to the right."""
    return text[:1].isdigit() or text in ("", "-")


def drawn(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table for a terminal; nothing in a cell is taken for markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for place, column in enumerate(columns):
        right = bool(rows) and all(is_number(row[place]) for row in rows)
        table.add_column(Text(column), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def print_table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table the way standard output wants it; without a title, and without rows only the heads."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(drawn(title, columns, rows))
        return
    if title is not None:
        click.echo(title)
    lines = [list(columns), *map(list, rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        click.echo(GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values, a line each."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        console = Console()
        console.print(Text(title, style="bold"))
        for name, value in facts:
            console.print(Text.assemble(("  " + name.ljust(14), "dim"), value))
        return
    click.echo(title)
    for name, value in facts:
        click.echo(f"  {name.ljust(14)}{value}")
