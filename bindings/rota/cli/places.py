"""DIR, and the queues in it.

1. A directory comes from the command line, else from ROTA_DIR. Where a command takes files or ids as
   well, the first argument is the directory unless ROTA_DIR is set and it is no directory: a file never
   is one.
2. Nothing comes into being by a slip of the keyboard: only --create makes a repository or a queue.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

import rota
from rota.cli.failures import NothingThere, Refused
from rota.cli.text import printable

VARIABLE = "ROTA_DIR"
COMMIT_BYTES = 1 << 20
FILES = {"manifest", "seg", "control", "claims", "lock", "failed", "limiter"}
TRACES = ("manifest", "seg.")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def directory_argument(function: Decorated) -> Decorated:
    """Add DIR to a command that takes no other arguments."""
    return click.argument("directory", metavar="[DIR]", required=False, callback=lambda _, __, value: chosen(value))(
        function
    )


def queue_option(help_text: str, *, required: bool = True) -> Callable[[Decorated], Decorated]:
    """Add -q to a command."""
    return click.option("-q", "--queue", "queue_name", metavar="QUEUE", required=required, help=help_text)


def create_options(function: Decorated) -> Decorated:
    """Add --create and the options that go with it."""
    function = click.option("--capacity", metavar="SIZE", help="With --create: room on disk, as '4 GiB'.")(function)
    return click.option("--create", is_flag=True, help="Make the repository and the queue if need be.")(function)


def durability_option(function: Decorated) -> Decorated:
    """Add --durability to a command that puts."""
    return click.option(
        "--durability",
        type=click.Choice(["sync", "interval", "none"]),
        default="sync",
        show_default=True,
        help="A put is done when it is: on disk; in the log and soon on disk; in the log.",
    )(function)


def chosen(argument: str | None) -> pathlib.Path:
    """Return the directory that was given, or the one of ROTA_DIR."""
    name = argument or os.environ.get(VARIABLE)
    if not name:
        raise click.UsageError(f"Give the directory of a repository, or set {VARIABLE}.")
    return pathlib.Path(name)


def split_arguments(arguments: Sequence[str]) -> tuple[pathlib.Path, list[str]]:
    """Return the directory and the rest of the arguments of a command that takes both."""
    variable = os.environ.get(VARIABLE)
    if variable and not (arguments and pathlib.Path(arguments[0]).is_dir()):
        return pathlib.Path(variable), list(arguments)
    if arguments and pathlib.Path(arguments[0]).is_file():
        raise click.UsageError(
            f"{printable(arguments[0])} is a file. Give the directory of a repository first or in {VARIABLE}."
        )
    return chosen(arguments[0] if arguments else None), list(arguments[1:])


def demand_repository(directory: pathlib.Path) -> None:
    """Refuse a directory without a trace of a repository; what is damaged is for the engine to judge."""
    if not directory.is_dir() or not any(path.name.startswith(TRACES) for path in directory.iterdir()):
        name = printable(os.fsencode(directory))
        raise NothingThere(f"{name}: there is no repository (`rota put --create` makes one)")


def demand_no_other_use(directory: pathlib.Path) -> None:
    """Refuse to make a repository among files of something else."""
    if directory.is_dir() and (others := [path for path in directory.iterdir() if not is_ours(path)]):
        name = printable(os.fsencode(directory))
        raise Refused(f"{name} is in use for other things ({printable(others[0].name)}); give a new directory")


def is_ours(path: pathlib.Path) -> bool:
    """Tell whether a file is one that a repository consists of."""
    return path.name.partition(".")[0] in FILES


def open_repository(
    directory: pathlib.Path,
    *,
    create: bool = False,
    capacity: str | None = None,
    durability: str | None = None,
) -> rota.Repository:
    """Open a repository; one that is missing is an error that names --create where that would help."""
    if create:
        demand_no_other_use(directory)
    else:
        demand_repository(directory)
    options: dict[str, Any] = {} if durability is None else {"durability": durability}
    if capacity is not None:
        options["capacity"] = capacity
    try:
        return rota.open(directory, create=create, **options)
    except ValueError as error:
        if isinstance(error, rota.RotaError):
            raise
        raise click.UsageError(f"{printable(str(error))}.") from None


def open_queue(repository: rota.Repository, name: str, *, create: bool | None = None) -> rota.Queue:
    """Return a queue; one that is missing is an error that says which there are, and --create if it helps."""
    names = list(repository.queues())
    if name not in names and not create:
        known = ", ".join(printable(known) for known in sorted(names)[:10]) or "none yet"
        hint = "" if create is None else "; --create makes one"
        raise NothingThere(f"there is no queue {printable(name)} (queues: {known}){hint}")
    try:
        return repository.queue(name)
    except ValueError as error:
        if isinstance(error, rota.RotaError):
            raise
        raise click.UsageError(f"{printable(str(error))}.") from None


def commit_bytes(repository: rota.Repository) -> int:
    """Return how many bytes of bodies one commit should take: far from the limit, and worth a sync."""
    return min(COMMIT_BYTES, repository.stats().segment_size // 8)
