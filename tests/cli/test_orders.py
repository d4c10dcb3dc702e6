"""The orders example: its books balance although servers are killed, and a false entry is told."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
from types import ModuleType

import pytest

import rota

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples" / "orders.py"

pytestmark = pytest.mark.tree


def test_the_books_balance(directory: pathlib.Path, seed: int) -> None:
    environment = {**os.environ, "TMPDIR": str(directory)}
    command = [sys.executable, str(EXAMPLE), "--orders", "300", "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the books balance" in done.stdout
    assert int(re.findall(r"(\d+) servers were killed", done.stdout)[0]) > 0
    assert os.listdir(directory) == [], "something was left behind"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("orders_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("false", [False, True])
def test_a_false_entry_is_told(directory: pathlib.Path, false: bool) -> None:
    example = load()
    with rota.open(directory / "r", **example.OPTIONS) as repo:
        repo.queue("stock").put(b"item 0")
        clerk = repo.clerk("customer", "orders")
        clerk.connect()
        clerk.send(b"please")
        with example.orders.server(repo):
            reply = clerk.receive(timeout=20)
        if false:
            repo.queue("books").put(b"7", key="customer/1", headers={"what": "money"})
        assert len(example.differences(repo, {"customer/1": reply}, 1)) == int(false)
        assert len(example.differences(repo, {"customer/1": reply}, 2)) == int(false) + 1
