"""Servers: leases of long handlers, stopping and starting, processes that are killed."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import rota
from tests.asking import PATIENCE_S, answer, ask
from tests.crash.kit import Child, Link

OPTIONS: dict[str, Any] = {"capacity": "4 MiB", "durability": "none"}


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", **OPTIONS) as found:
        yield found


# --- leases -----------------------------------------------------------------------------------------------------------


def test_the_lease_of_a_long_handler_is_kept(repo: rota.Repository) -> None:
    """It runs for three leases while another one waits for the message in vain."""
    queue = repo.queue("orders", lease=0.2)
    handled = []

    def handle(message: rota.Message) -> bytes:
        handled.append(message.attempts)
        with contextlib.suppress(rota.Empty):
            other = queue.get(timeout=0.6)
            handled.append(-other.attempts)
        return b"done"

    ask(repo, b"long")
    with repo.server("orders", handle):
        assert answer(repo)[0] == b"done"
    assert handled == [1]


def test_a_lease_is_kept_for_no_longer_than_that(repo: rota.Repository) -> None:
    """A handler that hangs loses its request, another one gets it, and what the first returns at last is dropped."""
    queue = repo.queue("orders", lease=0.2)
    hanging = threading.Event()

    def handle(message: rota.Message) -> bytes:
        if message.attempts == 1:
            assert hanging.wait(PATIENCE_S)
            return b"hung"
        return b"answered"

    ask(repo, b"long")
    with repo.server("orders", handle, threads=2, keep=0.3) as server:
        assert answer(repo)[0] == b"answered"
        hanging.set()
        assert server.stop()
    assert (len(queue), len(repo.queue("replies"))) == (0, 0)


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_stop_finishes_what_is_in_hand_and_takes_nothing_new(repo: rota.Repository) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def handle(message: rota.Message) -> bytes:
        inside.set()
        assert go_on.wait(PATIENCE_S)
        return message.body

    ask(repo, b"first", b"1")
    ask(repo, b"second", b"2")
    server = repo.server("orders", handle)
    server.start()
    assert inside.wait(PATIENCE_S)
    stopper = threading.Thread(target=server.stop)
    stopper.start()
    go_on.set()
    stopper.join(PATIENCE_S)
    assert answer(repo)[0] == b"first"
    assert (len(repo.queue("orders")), repo.queue("orders").stats().claimed, server.running) == (1, 0, False)
    server.start()  # and it begins where it stopped
    assert answer(repo)[0] == b"second"
    assert server.stop() and server.stop()


def test_stop_tells_when_a_handler_does_not_end(repo: rota.Repository) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def handle(message: rota.Message) -> bytes:
        inside.set()
        assert go_on.wait(PATIENCE_S)
        return b"late"

    ask(repo, b"slow")
    server = repo.server("orders", handle)
    server.start()
    assert inside.wait(PATIENCE_S)
    assert not server.stop(grace=0)
    go_on.set()
    assert answer(repo)[0] == b"late"  # it ended all the same
    for thread in threading.enumerate():
        if thread.name.startswith("rota-"):
            thread.join(PATIENCE_S)


def test_a_stopped_queue_is_waited_for(repo: rota.Repository) -> None:
    queue = repo.queue("orders")
    ask(repo, b"a lamp")
    queue.stop()
    with repo.server("orders", lambda message: message.body):
        with pytest.raises(rota.Empty):
            repo.queue("replies").get(timeout=0.3)
        queue.start()
        assert answer(repo)[0] == b"a lamp"


def test_a_server_whose_repository_cannot_go_on_says_so(directory: pathlib.Path) -> None:
    repo = rota.open(directory / "r", **OPTIONS)
    server = repo.server("orders", lambda message: None)
    server.start()
    repo.close()
    with pytest.raises(rota.ClosedError):
        server.run()


def serve(link: Link, path: pathlib.Path) -> None:
    """Run a server; tell when a request is in hand, and answer when told to."""
    with rota.open(path, **OPTIONS) as repo:

        def handle(message: rota.Message) -> bytes:
            link.send("in hand")
            assert server._ended.wait(PATIENCE_S)
            return message.body

        server = repo.server("orders", handle)
        server.run()
        link.send("stopped")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_between_requests(repo: rota.Repository, number: signal.Signals) -> None:
    ask(repo, b"first", b"1")
    ask(repo, b"second", b"2")
    with Child(serve, pathlib.Path(repo.path)) as child:
        assert child.receive() == "in hand"
        child.signal(number)
        assert child.receive() == "stopped"
        assert child.wait() == 0
    assert answer(repo)[0] == b"first"
    assert (len(repo.queue("orders")), len(repo.queue("replies"))) == (1, 0)


def serve_and_interrupt(link: Link, path: pathlib.Path, moment: str) -> None:
    """Run a server whose main thread is asked to stop while it holds the lock of its event, or as it lets go of it."""
    waits = threading.Condition.wait
    asked: list[str] = []

    def wait(condition: threading.Condition, timeout: float | None = None) -> bool:
        if threading.current_thread() is not threading.main_thread() or asked:
            return waits(condition, timeout)
        asked.append(moment)
        if moment == "held":
            signal.raise_signal(signal.SIGTERM)
        else:  # the handler runs before the wait sleeps, which nothing interrupts then
            condition.release()
            signal.raise_signal(signal.SIGTERM)
            condition.acquire()
        return waits(condition, timeout)

    with rota.open(path, **OPTIONS) as repo:
        server = repo.server("orders", lambda message: message.body)
        with server:
            setattr(threading.Condition, "wait", wait)  # noqa: B010
            server.run()
        link.send("stopped" if asked else "never waited")


@pytest.mark.parametrize("moment", ["held", "before"])
def test_a_signal_at_the_wrong_moment_of_the_wait_stops_too(repo: rota.Repository, moment: str) -> None:
    with Child(serve_and_interrupt, pathlib.Path(repo.path), moment) as child:
        assert child.receive() == "stopped"
        assert child.wait() == 0


# --- processes --------------------------------------------------------------------------------------------------------


def tell_process(message: rota.Message) -> bytes:
    """A handler of the processes below: who serves; or to die of it."""
    if message.body == b"die" and message.attempts == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return b"%d" % os.getpid()


def test_killed_processes_are_replaced_and_their_requests_come_back(repo: rota.Repository) -> None:
    with repo.server("orders", tell_process, processes=2) as server:
        ask(repo, b"who", b"1")
        first = int(answer(repo)[0])
        assert first != os.getpid()
        ask(repo, b"die", b"2")
        assert answer(repo)[1:] == (b"2", "ok", None)  # at the second attempt
        workers: Any = server._workers
        for pid in workers.pids:
            os.kill(pid, signal.SIGKILL)
        ask(repo, b"who", b"3")
        assert answer(repo)[1] == b"3"
        pids = workers.pids
        assert server.stop()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_process_that_cannot_start_ends_the_server(repo: rota.Repository) -> None:
    with repo.server("orders", tell_process, processes=1) as server:
        workers: Any = server._workers
        repository, options, classes = workers._plan
        workers._plan = (repository, {**options, "threads": 0}, classes)
        os.kill(workers.pids[0], signal.SIGKILL)
        with pytest.raises(rota.StateError, match="ended before they served"):
            server.run()


def supervise(link: Link, path: pathlib.Path) -> None:
    """Start a server of processes and never stop it."""
    repo = rota.open(path, **OPTIONS)
    server = repo.server("orders", tell_process, processes=2)
    server.start()
    link.receive()


def test_processes_end_with_who_started_them(repo: rota.Repository) -> None:
    ask(repo, b"who")
    with Child(supervise, pathlib.Path(repo.path)) as child:
        pid = int(answer(repo)[0])
        handle = os.pidfd_open(pid)
        child.kill()
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:  # it is ours to reap now, or that of who adopted it
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            try:
                signal.pidfd_send_signal(handle, 0)
            except ProcessLookupError:
                break
            assert time.monotonic() < deadline, "an orphan serves on"
            threading.Event().wait(0.01)
    finally:
        os.close(handle)
