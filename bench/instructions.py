"""Instructions of one operation, counted by callgrind in a child that attaches to the repository.

The child runs uninstrumented until the operation is warm; a library of two functions, built from the header that
comes with valgrind, switches the counting on and off.  The child is
`python -m bench.instructions PATH TIMES DIRECTORY QUEUE`.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable

import rota
from bench.measure import bodies_of

__all__ = ["PATHS", "available", "each", "profile"]

SWITCH = """
#include <valgrind/callgrind.h>
void counting_begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void counting_end(void) { CALLGRIND_STOP_INSTRUMENTATION; CALLGRIND_DUMP_STATS_AT("counted"); }
"""


def put(queue: rota.Queue, times: int) -> None:
    function, body = queue.put, b"x" * 100
    for _ in range(times):
        function(body)


def get(queue: rota.Queue, times: int) -> None:
    function = queue.get
    for _ in range(times):
        function().ack()


def put_many(queue: rota.Queue, times: int) -> None:
    bodies = bodies_of(1000)
    for _ in range(times):
        queue.put_many(bodies)


def get_many(queue: rota.Queue, times: int) -> None:
    for _ in range(times):
        batch = queue.get_many(1000)
        _ = batch.bodies
        batch.ack()


def claim(size: int) -> Callable[[rota.Queue, int], None]:
    def run(queue: rota.Queue, times: int) -> None:
        for _ in range(times):
            queue.get_many(size)

    return run


def kill(queue: rota.Queue, times: int) -> None:
    for id in queue.ids(0, times):
        queue.kill(id)


def nothing(queue: rota.Queue, times: int) -> None:
    for _ in range(times):
        pass


PATHS: dict[str, Callable[[rota.Queue, int], None]] = {
    "put": put,
    "get": get,
    "put_many": put_many,
    "get_many": get_many,
    "claim_500": claim(500),
    "claim_1000": claim(1000),
    "kill": kill,
    "nothing": nothing,
}


@functools.cache
def switch() -> str | None:
    """Build the library once; None where that cannot be done."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or shutil.which("valgrind") is None:
        return None
    place = pathlib.Path(tempfile.mkdtemp(prefix="bench-switch-"))
    (place / "switch.c").write_text(SWITCH)
    command = [compiler, "-O1", "-shared", "-fPIC", str(place / "switch.c"), "-o", str(place / "switch.so")]
    done = subprocess.run(command, capture_output=True)
    return str(place / "switch.so") if done.returncode == 0 else None


def available() -> bool:
    """Whether instructions can be counted here."""
    return switch() is not None


def run(path: str, times: int, directory: str, queue: str, output: str) -> None:
    """Run one path under callgrind."""
    environment = {**os.environ, "BENCH_SWITCH": switch() or "", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    command = [
        "valgrind",
        "--tool=callgrind",
        "--instr-atstart=no",
        f"--callgrind-out-file={output}",
        sys.executable,
        "-m",
        "bench.instructions",
        path,
        str(times),
        directory,
        queue,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"the counted child failed: {done.stderr[-2000:]}")


def each(path: str, times: int, directory: str, queue: str) -> float:
    """Instructions of one operation, the loop of Python around it included."""
    with tempfile.TemporaryDirectory(prefix="bench-count-") as place:
        run(path, times, directory, queue, f"{place}/out")
        for name in sorted(glob.glob(f"{place}/out*")):
            found = re.search(r"^totals: (\d+)", pathlib.Path(name).read_text(), re.MULTILINE)
            if found and int(found[1]):
                return int(found[1]) / times
    raise RuntimeError("callgrind wrote no total")


def profile(path: str, times: int, directory: str, queue: str, limit: int = 30) -> list[tuple[str, float]]:
    """The functions that one operation spends most instructions in, with how many."""
    spent: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="bench-count-") as place:
        run(path, times, directory, queue, f"{place}/out")
        command = ["callgrind_annotate", "--threshold=100", sorted(glob.glob(f"{place}/out*"))[-1]]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        found = re.match(r"\s*([\d,]+) \(\s*[\d.]+%\)\s+\S+?:(\S+)", line)
        if found:
            name = re.sub(r"__pyx_\w*?4rota_5_core_\d+", "", found[2])
            spent[name] = spent.get(name, 0) + int(found[1].replace(",", ""))
    return [(name, count / times) for name, count in sorted(spent.items(), key=lambda pair: -pair[1])[:limit]]


def main() -> None:
    """The child: warm up, count, leave without a close that would be counted."""
    path, times, directory, name = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    library = ctypes.PyDLL(os.environ["BENCH_SWITCH"])
    with rota.open(directory, create=False, durability="none") as repo:
        queue = repo.queue(name)
        work = PATHS[path]
        work(queue, max(1, times // 20))
        library.counting_begin()
        work(queue, times)
        library.counting_end()


if __name__ == "__main__":
    main()
