"""Child processes that start together and hand back one result each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["CONTEXT", "run_together"]

CONTEXT = multiprocessing.get_context("spawn")


def child(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Say ready, wait for the word, work, send the result."""
    pipe.send("ready")
    pipe.recv()
    pipe.send(work(*arguments))


def run_together(works: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
    """Run each work in a process of its own, all from the same moment on; the results in order."""
    pipes, children = [], []
    for work, arguments in works:
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=child, args=(theirs, work, arguments))
        process.start()
        theirs.close()
        pipes.append(ours)
        children.append(process)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    results = [pipe.recv() for pipe in pipes]
    for process in children:
        process.join()
    return results
