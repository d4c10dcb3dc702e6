"""The list of commands, and how each of them ends.

1. A command's module is imported when the command is called, so `rota put` never waits for tables and bars.
2. Whatever happens ends in one of the exit codes of `failures`, with one sentence on standard error.
3. Ctrl-C ends with 130, SIGTERM with 143, a reader that went away as SIGPIPE would; each unwinds the stack
   first, so messages that were handed out and not settled go back before the process ends.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from rota.cli.failures import DONE, FAILED, explain
from rota.cli.patience import listen_for_signals

# command: where it lives, and what `rota --help` says of it. In the order of a message's life.
COMMANDS: dict[str, tuple[str, str]] = {
    "put": ("rota.cli.put:put", "Put lines or records into a queue."),
    "get": ("rota.cli.get:get", "Take messages out of a queue, to standard output."),
    "ingest": ("rota.cli.ingest:ingest", "Load files into a queue; goes on where it stopped."),
    "drain": ("rota.cli.drain:drain", "Empty a queue, to standard output or into another queue."),
    "stat": ("rota.cli.stat:stat", "Show the figures of a repository and its queues."),
    "top": ("rota.cli.top:top", "Watch depths and rates live."),
    "profile": ("rota.cli.profile:profile", "Tell from a file of keys what deduplication would save."),
    "errors": ("rota.cli.error_queues:errors", "List messages in error queues, and why they are there."),
    "redrive": ("rota.cli.error_queues:redrive", "Send messages from an error queue back to work."),
    "verify": ("rota.cli.offline:verify", "Check every byte of a repository."),
    "repair": ("rota.cli.offline:repair", "Copy what can be read into a new repository."),
    "dump": ("rota.cli.dump:dump", "Write messages or the log out, as text, JSON Lines or SQLite."),
}

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
DEBUG_VARIABLE = "ROTA_DEBUG"
COMPLETION_VARIABLE = "_ROTA_COMPLETE"


class Terminated(BaseException):
    """SIGTERM arrived; raised in the main thread, so that everything unwinds as for Ctrl-C."""


class Program(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, or return None when there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="rota", message="%(prog)s %(version)s")
def program() -> None:
    """Durable queues in a directory.

    Every command takes the directory of a repository first; it may be left out when ROTA_DIR names it.

    \b
    Examples:
      seq 1000 | rota put jobs -q work --create
      rota get jobs -q work -n 10
      rota ingest jobs orders.csv.gz --queue orders --create
      rota stat jobs

    \b
    Exit codes:
      0 done, 1 failed, 2 usage, 3 nothing there, 4 refused or damaged
    """


def terminate(signum: int, frame: FrameType | None) -> NoReturn:
    """Turn SIGTERM into an exception; a second one ends the process at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; KeyboardInterrupt, Terminated and a closed pipe pass."""
    try:
        with program.make_context("rota", list(arguments)) as context:
            code = program.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        error.show()
        return error.exit_code
    except click.exceptions.Abort:
        raise KeyboardInterrupt from None
    except BrokenPipeError:
        raise
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        code, message = explain(error)
        click.echo(f"rota: {message}", err=True)
        return code


def leave(code: int) -> NoReturn:
    """End without complaints about a standard output that cannot take what is left in its buffer."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = code or FAILED
    sys.exit(code)


def leave_as_by_signal(number: int) -> NoReturn:
    """End as a program ends that the signal killed, so that a shell sees what it is used to."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    sys.exit(128 + number)


def fill_standard_files() -> None:
    """Let no file of a repository become standard output: a closed one is filled with what refuses writes."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process."""
    if COMPLETION_VARIABLE in os.environ:
        program.main(prog_name="rota")
    fill_standard_files()
    listen_for_signals()
    signal.signal(signal.SIGTERM, terminate)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Terminated:
        code = TERMINATED
    except BrokenPipeError:
        leave_as_by_signal(signal.SIGPIPE)
    leave(code)
