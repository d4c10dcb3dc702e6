"""The command line, `rota COMMAND DIR ...`; the only part of rota that loads click and rich.

    program    the list of commands, exit codes, signals, pipes that close early
    failures   what each error means to a person, and its exit code
    places     DIR and ROTA_DIR, queues by name
    text       keys, names and figures as they are printed; messages as JSON
    tables     figures on a terminal, in a pipe, as JSON
    patience   waits for standard input and output that a signal ends
    framing    records from a stream and back: delimiters, length prefixes

One module for each command or small group of them; `program` imports it when the command is called.
"""

from __future__ import annotations

from rota.cli.program import main as main

__all__ = ["main"]
