"""Run the code blocks of one Markdown page: `python run_blocks.py PAGE`, in the current directory.

1. Blocks run in the order of the page; all Python blocks share one namespace.
2. Every ```python block runs. A ```sh or ```console block runs only where its fence says so: ```sh run.
3. A line of Python keeps its number in the page, so that a traceback points into the text.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,})(?P<language>\w*) *(?P<mark>.*)")


class Block(NamedTuple):
    """One fenced block: its language, the words after it, the line of its first code line, the code."""

    language: str
    mark: str
    line: int
    text: str


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page; one that is left open is an error of the page."""
    found: list[Block] = []
    opening: re.Match[str] | None = None
    start, body = 0, list[str]()
    for number, line in enumerate(page.splitlines(), 1):
        fence = FENCE.fullmatch(line)
        if opening is None and fence:
            opening, start, body = fence, number + 1, []
        elif opening is not None and line.strip() == opening["ticks"]:
            text = "\n".join(text.removeprefix(opening["indent"]) for text in body)
            found.append(Block(opening["language"], opening["mark"].strip(), start, text))
            opening = None
        elif opening is not None:
            body.append(line)
    if opening is not None:
        raise ValueError(f"line {start - 1}: this block is never closed")
    return found


def runs(block: Block) -> bool:
    """Tell whether a block is more than something to look at."""
    return block.language == "python" or (block.language in {"sh", "console"} and "run" in block.mark.split())


def commands(block: Block) -> str:
    """Return what a shell is to do: all of a sh block, the lines after a prompt of a console block."""
    if block.language == "sh":
        return block.text
    prompt = "$ "
    return "\n".join(line.removeprefix(prompt) for line in block.text.splitlines() if line.startswith(prompt))


def run(path: pathlib.Path) -> None:
    """Run a page; the first block that fails ends it."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path.read_text()):
        if not runs(block):
            continue
        if block.language == "python":
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, str(path), "exec"), namespace)
        else:
            shell = ["bash", "-euo", "pipefail", "-c", commands(block)]
            if subprocess.run(shell, stdin=subprocess.DEVNULL).returncode:
                sys.exit(f"{path}:{block.line}: the commands failed")


if __name__ == "__main__":
    run(pathlib.Path(sys.argv[1]))
