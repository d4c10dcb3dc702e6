"""Real runs of the command line, in processes of their own."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "rota"]
SECONDS_MAX = 60


class Shell:
    """Runs `rota` below a directory; what it starts does not outlive the test."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.repository = directory / "repository"
        self.started: list[subprocess.Popen[bytes]] = []

    def environment(self, variables: dict[str, str] | None = None) -> dict[str, str]:
        """Return the variables of a run: none of those that change what rota does, but the given."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "COLUMNS"))}
        return {**kept, **(variables or {})}

    def run(
        self, *arguments: Any, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end."""
        return subprocess.run(
            [*COMMAND, *(os.fsencode(str(argument)) for argument in arguments)],
            input=stdin,
            capture_output=True,
            cwd=self.directory,
            env=self.environment(env),
            timeout=SECONDS_MAX,
        )

    def ok(self, *arguments: Any, stdin: bytes = b"", env: dict[str, str] | None = None) -> bytes:
        """Run a command that must succeed without a word on standard error; return its output."""
        done = self.run(*arguments, stdin=stdin, env=env)
        assert (done.returncode, done.stderr) == (0, b""), done.stdout + done.stderr
        return done.stdout

    def refused(self, code: int, *arguments: Any, stdin: bytes = b"", env: dict[str, str] | None = None) -> str:
        """Run a command that must end with a code and a sentence; return the sentence."""
        done = self.run(*arguments, stdin=stdin, env=env)
        text = done.stderr.decode()
        assert done.returncode == code, (done.returncode, text)
        assert text, "an error without a word"
        assert "Traceback" not in text
        return text

    def start(self, *arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command."""
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen(
            [*COMMAND, *(os.fsencode(str(argument)) for argument in arguments)],
            cwd=self.directory,
            env=self.environment(),
            **options,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        """End what is still running."""
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait()


@pytest.fixture
def shell(directory: pathlib.Path) -> Iterator[Shell]:
    """A shell in a fresh directory."""
    shell = Shell(directory)
    yield shell
    shell.close()


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool], subprocess.Popen[bytes]], None]:
    """A wait for something that another process brings about, as long as it lives."""

    def wait(happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        while not happened():
            try:
                code = process.wait(timeout=0.002)
            except subprocess.TimeoutExpired:
                continue
            assert happened(), f"the process ended with {code} before"

    return wait
