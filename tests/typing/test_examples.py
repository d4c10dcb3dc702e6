"""A checker that a user runs sees the types of the package, and refuses what is wrong."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.tree


def test_mypy_sees_the_types() -> None:
    if not (ROOT / "bindings/rota/__init__.py").exists():
        pytest.skip("there is no package to check yet")
    command = [sys.executable, "-m", "mypy", "--no-incremental", "tests/typing/examples.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
