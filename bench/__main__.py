"""`python -m bench`: the table of figures with target, result and verdict; `--json` for machines."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench import instructions
from bench.machine import describe
from bench.measure import Outcome, Row, Setting
from bench.rows import ROWS
from bench.rows.depth import filled

VERDICTS = {True: "[green]met[/]", False: "[red]missed[/]", None: "[yellow]not measured[/]"}


def number(value: float | None) -> str:
    """Return a figure with three digits that mean something."""
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def note(outcome: Outcome) -> str:
    """Return the numbers behind a figure on one line."""
    return ", ".join(
        f"{name} {number(value) if isinstance(value, float) else value}" for name, value in outcome.detail.items()
    )


def table(results: list[tuple[Row, Outcome]]) -> Table:
    """Lay the results out."""
    made = Table("measure", "target", "got", "", "from")
    for row, outcome in results:
        bound = "≥" if row.at_least else "≤"
        made.add_row(
            row.title,
            f"{bound} {row.target:g} {row.unit}",
            f"{number(outcome.got)} {row.unit}",
            VERDICTS[row.passes(outcome)],
            note(outcome),
        )
    return made


def as_json(machine: dict[str, Any], results: list[tuple[Row, Outcome]]) -> str:
    """The same for machines."""
    rows = [
        {
            "key": row.key,
            "title": row.title,
            "target": row.target,
            "unit": row.unit,
            "at_least": row.at_least,
            "got": outcome.got,
            "met": row.passes(outcome),
            **outcome.detail,
        }
        for row, outcome in results
    ]
    return json.dumps({"machine": machine, "rows": rows}, indent=2)


def measure(row: Row, setting: Setting, console: Console) -> Outcome:
    """Measure one row; a failure is a result too."""
    try:
        outcome = row.measure(setting)
    except Exception as error:
        outcome = Outcome(None, {"error": f"{type(error).__name__}: {error}"})
    console.print(f"{row.key}: {number(outcome.got)} {row.unit} {VERDICTS[row.passes(outcome)]}", highlight=False)
    return outcome


def show_profile(path: str, setting: Setting, console: Console) -> None:
    """Print where the instructions of one path go."""
    with filled(setting, 0, setting.pick(60_000, 60_000)) as repo:
        times = 10 if path.endswith("many") else 2000
        found = instructions.profile(path, times, repo.path, "many", 40)
    made = Table("function", "instructions of one call")
    for name, count in found:
        made.add_row(name, number(count))
    console.print(made)


@click.command()
@click.argument("keys", nargs=-1)
@click.option(
    "--directory",
    type=click.Path(path_type=pathlib.Path),
    default=pathlib.Path("build/bench"),
    show_default=True,
    help="Where repositories are made: the file system that is measured.",
)
@click.option("--json", "output", type=click.File("w"), help="Write the results there as JSON.")
@click.option("--small", is_flag=True, help="Sizes that only prove that each row runs.")
@click.option("--rounds", default=101, show_default=True, help="Rounds of each ratio, at least 5.")
@click.option("--waiting", default=5_000_000, show_default=True, help="Messages that wait in the rows about depth.")
@click.option("--capacity", default="1 GiB", show_default=True, help="Size of the log that is written around.")
@click.option("--profile", type=click.Choice(sorted(instructions.PATHS)), help="Print instructions by function.")
def main(
    keys: tuple[str, ...],
    directory: pathlib.Path,
    output: Any,
    small: bool,
    rounds: int,
    waiting: int,
    capacity: str,
    profile: str | None,
) -> None:
    """Measure the rows of these KEYS, or all."""
    console = Console(stderr=output is not None and output.name == "-")
    setting = Setting(directory, small, max(5, rounds) if not small else 1, waiting, capacity)
    if profile:
        show_profile(profile, setting, console)
        return
    unknown = set(keys) - {row.key for row in ROWS}
    if unknown:
        raise click.UsageError(
            f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(row.key for row in ROWS)}"
        )
    machine = describe(setting)
    console.print(
        ", ".join(f"{name} {number(value) if isinstance(value, float) else value}" for name, value in machine.items()),
        highlight=False,
    )
    results = [(row, measure(row, setting, console)) for row in ROWS if not keys or row.key in keys]
    console.print(table(results))
    if output is not None:
        output.write(as_json(machine, results) + "\n")


if __name__ == "__main__":
    main()
