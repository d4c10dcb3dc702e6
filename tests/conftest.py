"""What every test may ask for: a seed, a directory on a real file system, and no process left behind.

1. The seed is ROTA_SEED or drawn once; the report header tells it, and all workers share it.
2. `directory` is never on tmpfs: syncing there proves nothing.
3. A test that leaves a child process running fails, and the child is killed, orphans included.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pathlib
import random
import select
import shutil
import signal
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs", "devtmpfs"}
PR_SET_CHILD_SUBREAPER = 36
CHILD_GRACE_MS = 2000

# Deadlines measure the machine, not the code.
hypothesis.settings.register_profile("rota", deadline=None, print_blob=True)
hypothesis.settings.load_profile("rota")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Fix the seed before the workers start, so that they inherit it."""
    seed = int(os.environ.setdefault("ROTA_SEED", str(random.SystemRandom().randrange(2**32))))
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(seed)
    # A grandchild whose parent was killed comes to us, and is found.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def pytest_report_header() -> list[str]:
    """Say how to repeat this very run, and where its files are."""
    return [f"seed: ROTA_SEED={os.environ['ROTA_SEED']}", f"directories: below {directory_base()}"]


def file_system(path: pathlib.Path) -> str:
    """Return the type of the file system that holds a path, from the longest mount point above it."""
    longest, kind = "", "unknown"
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, origin = line.partition(" - ")
        point = mount.split()[4]
        if path.is_relative_to(point) and len(point) >= len(longest):
            longest, kind = point, origin.split()[0]
    return kind


def directory_base() -> pathlib.Path:
    """Return ROTA_TEST_DIRECTORY, or a place for temporary files that is no memory, or build/."""
    chosen = os.environ.get("ROTA_TEST_DIRECTORY")
    if chosen:
        return pathlib.Path(chosen).resolve()
    for base in (tempfile.gettempdir(), "/var/tmp"):
        path = pathlib.Path(base).resolve()
        if file_system(path) not in MEMORY_FILE_SYSTEMS:
            return path
    return ROOT / "build"


@pytest.fixture
def seed() -> int:
    """The seed of this run; the same for every test and worker."""
    return int(os.environ["ROTA_SEED"])


@pytest.fixture
def directory() -> Iterator[pathlib.Path]:
    """A fresh directory on a real file system; removed afterwards, unless ROTA_KEEP is set."""
    base = directory_base()
    base.mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(tempfile.mkdtemp(prefix="rota-test-", dir=base))
    yield path
    if not os.environ.get("ROTA_KEEP"):
        shutil.rmtree(path, ignore_errors=True)


def children() -> dict[int, str]:
    """Return pid and command of each child of this process, those of multiprocessing itself left out."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            _, _, fields = (entry / "stat").read_text().rpartition(")")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields.split()[1]) == os.getpid() and "multiprocessing.resource_tracker" not in command:
            found[int(entry.name)] = command
    return {pid: command for pid, command in found.items() if "multiprocessing.forkserver" not in command}


def outlives_grace(pid: int) -> bool:
    """Reap a child that ends within the grace; kill and reap one that does not, and tell."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        late = not poll.poll(CHILD_GRACE_MS)
        if late:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.waitid(os.P_PIDFD, handle, os.WEXITED)
    except ChildProcessError:
        return False
    finally:
        os.close(handle)
    return late


@pytest.fixture(autouse=True)
def no_child_left() -> Iterator[None]:
    """Fail a test that leaves a process running which was not there before it."""
    before = children()
    yield
    multiprocessing.active_children()
    left = [f"{pid} {command}" for pid, command in children().items() if pid not in before]
    running = [line for line in left if outlives_grace(int(line.split()[0]))]
    if running:
        pytest.fail("child processes were left: " + "; ".join(running))
