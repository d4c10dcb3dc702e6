"""Producers whose process ends or forks: exit, fork, Ctrl-C, SIGTERM; what was cached is in the log."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

import rota


def bodies(queue: rota.Queue) -> list[bytes]:
    batch = queue.get_many(100_000)
    found = list(batch.bodies)
    batch.ack()
    return found


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
    )


BEGIN = """
import os, signal, rota, threading, time
repo = rota.open({path!r}, capacity="1 MiB", durability="none")
producer = repo.producer("q", flush_interval=3600)
assert producer.put(b"first").wait(20, visible=True)
producer.put(b"cached")
"""


def test_the_end_of_the_interpreter_writes_what_is_cached(directory: pathlib.Path) -> None:
    path = str(directory / "r")
    done = run(BEGIN.format(path=path))
    assert done.returncode == 0, done.stderr
    with rota.open(path) as repo:
        assert bodies(repo.queue("q")) == [b"first", b"cached"]


def test_a_fork_writes_what_is_cached_and_the_child_is_refused(directory: pathlib.Path) -> None:
    path = str(directory / "r")
    program = BEGIN + (
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        producer.put(b'from the child')\n"
        "    except rota.ForkedHandleError:\n"
        "        os._exit(7)\n"
        "    os._exit(1)\n"
        "assert len(repo.queue('q')) == 2\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "producer.put(b'after')\n"
    )
    done = run(program.format(path=path))
    assert done.returncode == 0, done.stderr
    with rota.open(path) as repo:
        assert bodies(repo.queue("q")) == [b"first", b"cached", b"after"]


@pytest.mark.parametrize("wait", ["receipt.wait()", "producer.flush()", "while True: producer.put(bytes(100))"])
def test_ctrl_c_ends_a_wait_and_the_rest_is_written(directory: pathlib.Path, wait: str) -> None:
    path = str(directory / "r")
    program = (
        "import os, signal, rota, threading\n"
        f"repo = rota.open({path!r}, capacity='1 MiB', durability='none')\n"
        "queue = repo.queue('q')\n"
        "queue.stop()\n"
        "producer = repo.producer(queue, cache_size=10)\n"
        "receipt = producer.put(b'cached')\n"
        "timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))\n"
        "timer.start()\n"
        "try:\n"
        f"    {wait}\n"
        "except KeyboardInterrupt:\n"
        "    queue.start()\n"
        "    repo.close()\n"
        "    print('interrupted')\n"
    )
    done = run(program)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
    with rota.open(path) as repo:
        assert bodies(repo.queue("q"))[0] == b"cached"


def test_sigterm_with_the_handler_of_a_service_loses_nothing(directory: pathlib.Path) -> None:
    path = str(directory / "r")
    program = "import sys, signal\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n" + BEGIN.format(path=path)
    done = run(program + "os.kill(os.getpid(), signal.SIGTERM)\n")
    assert done.returncode == 3, done.stderr
    with rota.open(path) as repo:
        assert bodies(repo.queue("q")) == [b"first", b"cached"]
