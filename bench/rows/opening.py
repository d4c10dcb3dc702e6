"""The rows about starting: the import, the first open of a new repository, the open of one closed in order."""

from __future__ import annotations

import statistics
import subprocess
import sys

from bench.measure import Outcome, Row, Setting, scratch

IMPORT = "import time, numpy; t = time.perf_counter(); import rota; print(time.perf_counter() - t)"
OPEN = (
    "import sys, time, numpy, rota; t = time.perf_counter(); repo = rota.open(sys.argv[1], capacity=sys.argv[2]);"
    " print(time.perf_counter() - t); repo.close()"
)


def run(program: str, *arguments: str) -> float:
    """Return the milliseconds that a fresh interpreter measured."""
    command = [sys.executable, "-c", program, *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) * 1e3


def importing(setting: Setting) -> Outcome:
    """Milliseconds of `import rota` once NumPy is there."""
    times = [run(IMPORT) for _ in range(setting.pick(11, 1))]
    return Outcome(statistics.median(times), {"least": min(times)})


def opening(setting: Setting, clean: bool) -> Outcome:
    """Milliseconds of rota.open()."""
    capacity = "4 GiB" if not setting.small else "1 MiB"
    times = []
    for _ in range(setting.pick(7, 1)):
        with scratch(setting) as path:
            first = run(OPEN, str(path / "log"), capacity)
            times.append(run(OPEN, str(path / "log"), capacity) if clean else first)
    return Outcome(statistics.median(times), {"least": min(times), "most": max(times), "capacity": capacity})


ROWS = (
    Row("import", "import rota beyond NumPy", 40, "ms", False, importing),
    Row("open_new", "first open of a new repository", 200, "ms", False, lambda setting: opening(setting, False)),
    Row(
        "open_clean",
        "open of a repository that was closed in order",
        10,
        "ms",
        False,
        lambda setting: opening(setting, True),
    ),
)
