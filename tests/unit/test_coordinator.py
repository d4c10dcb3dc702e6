"""The coordinator as programs use it: threads, tasks, guards, timeouts, interrupts, keys of all kinds."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

import rota
from rota import Action, Turn


def run(work: Callable[[], object]) -> Future[object]:
    """Start a thread and hand back what becomes of it."""
    future: Future[object] = Future()

    def body() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=body, daemon=True).start()
    return future


def other(work: Callable[[], object]) -> object:
    """Do it in another thread, now."""
    return run(work).result(20)


def test_one_works_one_waits_the_others_are_declined() -> None:
    coordinator = rota.Coordinator(timeout=None)
    assert coordinator.enqueue("k") is Action.ACCEPT
    blocked = threading.Event()

    def second() -> object:
        action = coordinator.enqueue("k")
        blocked.set()
        return action, coordinator.wait("k"), coordinator.dequeue("k"), coordinator.dequeue("k")

    waiting = run(second)
    assert blocked.wait(20)
    assert other(lambda: coordinator.enqueue(b"k")) is Action.DECLINE
    assert coordinator.dequeue("k")
    assert waiting.result(20) == (Action.BLOCK, Turn.ENDED, True, False)
    figures = coordinator.stats()
    assert (figures.live, figures.accepted, figures.blocked, figures.declined, figures.evicted) == (0, 1, 1, 1, 0)


def test_the_words_are_true_but_for_decline() -> None:
    assert [action for action in Action if not action] == [Action.DECLINE]
    assert all(Turn)


def test_one_that_hangs_is_evicted_and_its_dequeue_does_nothing() -> None:
    coordinator = rota.Coordinator(timeout=0.01)
    assert coordinator.enqueue(1) is Action.ACCEPT

    def second() -> object:
        assert coordinator.enqueue(1) is Action.BLOCK
        return coordinator.wait(1)

    assert other(second) is Turn.EVICTED
    assert not coordinator.dequeue(1)
    assert coordinator.enqueue(1) is Action.BLOCK
    assert coordinator.give_up(1)
    assert not coordinator.give_up(1)
    assert coordinator.stats().evicted == 1


def test_misuse_is_told() -> None:
    coordinator = rota.Coordinator()
    coordinator.enqueue(b"k")
    with pytest.raises(rota.StateError, match="already"):
        coordinator.enqueue(b"k")
    with pytest.raises(rota.StateError, match="BLOCK"):
        coordinator.wait(b"k")
    for wrong in ({"timeout": -1.0}, {"capacity": 0}, {"timeout": float("nan")}):
        with pytest.raises(ValueError):
            rota.Coordinator(**wrong)
    with pytest.raises(TypeError, match="float"):
        coordinator.enqueue(1.5)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        coordinator.enqueue(2**64)


def test_keys_of_all_kinds_are_apart_or_the_same() -> None:
    coordinator = rota.Coordinator()
    apart: list[bytes | int | str] = [
        b"",
        b"\0",
        b"7",
        7,
        -1,
        2**64 - 1,
        2**63,
        -(2**63),
        "ü",
        b"eight by",
        b"eight by\0",
        b"a longer key " * 9,
    ]
    assert [coordinator.enqueue(key) for key in apart] == [Action.ACCEPT] * len(apart)
    assert coordinator.dequeue("ü".encode())
    assert coordinator.dequeue(bytearray(b"7"))
    assert coordinator.dequeue(memoryview(b"eight by"))
    assert coordinator.stats().live == len(apart) - 3


def test_guards_pass_a_key_from_thread_to_thread() -> None:
    coordinator = rota.Coordinator(timeout=None)
    order: list[str] = []
    inside, blocked = threading.Event(), threading.Event()

    def first() -> None:
        with coordinator.guard(b"k") as action:
            assert action is Action.ACCEPT
            inside.set()
            assert blocked.wait(20)
            order.append("first")

    def second() -> object:
        guard = coordinator.guard(b"k")
        with guard as action:
            order.append("second")
        return action, guard.turn

    one = run(first)
    assert inside.wait(20)
    two = run(second)
    while coordinator.stats().blocked == 0:
        os.sched_yield()
    with coordinator.guard(b"k") as action:
        assert not action
    blocked.set()
    one.result(20)
    assert two.result(20) == (Action.BLOCK, Turn.ENDED)
    assert order == ["first", "second"]
    assert coordinator.stats().live == 0


def test_a_guard_of_an_evicted_head_leaves_the_next_one_alone() -> None:
    coordinator = rota.Coordinator(timeout=0.0)
    stale = coordinator.guard(b"k")
    with stale:

        def second() -> object:
            coordinator.enqueue(b"k")
            return coordinator.wait(b"k")

        assert other(second) is Turn.EVICTED
    assert coordinator.stats().live == 1


def test_many_threads_work_on_few_keys_one_at_a_time() -> None:
    coordinator = rota.Coordinator(timeout=None)
    busy = [0] * 3

    def work() -> int:
        done = 0
        for turn in range(300):
            key = turn % 3
            with coordinator.guard(key) as action:
                if action:
                    busy[key] += 1
                    assert busy[key] == 1
                    os.sched_yield()
                    busy[key] -= 1
                    done += 1
        return done

    workers = [run(work) for _ in range(6)]
    assert sum(int(str(worker.result(60))) for worker in workers) >= 300
    assert coordinator.stats().live == 0


def test_tasks_are_owners_of_their_own() -> None:
    coordinator = rota.Coordinator(timeout=None)

    async def first(blocked: asyncio.Event) -> bool:
        assert coordinator.enqueue("k") is Action.ACCEPT
        await blocked.wait()
        return coordinator.dequeue("k")

    async def second(blocked: asyncio.Event) -> tuple[Action, Turn | None]:
        guard = coordinator.guard("k")
        assert coordinator.enqueue("other") is Action.ACCEPT
        blocked.set()
        with pytest.raises(rota.StateError, match="event loop"):
            coordinator.wait("k")
        async with guard as action:
            return action, guard.turn

    async def main() -> None:
        blocked = asyncio.Event()
        one = asyncio.create_task(first(blocked))
        two = asyncio.create_task(second(blocked))
        assert await one
        assert await two in [(Action.BLOCK, Turn.ENDED), (Action.ACCEPT, None)]

    asyncio.run(main())
    assert coordinator.stats().live == 1


def test_a_thread_hands_a_key_to_a_task_and_a_cancelled_task_gives_up() -> None:
    coordinator = rota.Coordinator(timeout=None)
    coordinator.enqueue("k")

    async def main() -> object:
        async def wait() -> Turn:
            assert coordinator.enqueue("k") is Action.BLOCK
            return await coordinator.wait_async("k")

        cancelled = asyncio.create_task(wait())
        while coordinator.stats().blocked == 0:
            await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        waiting = asyncio.create_task(wait())
        while coordinator.stats().blocked == 1:
            await asyncio.sleep(0)
        loop_blocked.set()
        return await waiting

    loop_blocked = threading.Event()
    task = run(lambda: asyncio.run(main()))
    assert loop_blocked.wait(20)
    assert coordinator.dequeue("k")
    assert task.result(20) is Turn.ENDED


def test_a_task_evicts_when_its_time_is_over() -> None:
    coordinator = rota.Coordinator(timeout=0.01)
    coordinator.enqueue("k")

    async def main() -> Turn:
        coordinator.enqueue("k")
        return await coordinator.wait_async("k")

    assert other(lambda: asyncio.run(main())) is Turn.EVICTED


INTERRUPTED = """
import os, signal, threading, rota
coordinator = rota.Coordinator(timeout=None)
held = threading.Event()
def hold():
    coordinator.enqueue("k")
    held.set()
    while not coordinator._sleepers():
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=hold).start()
held.wait()
assert coordinator.enqueue("k") is rota.Action.BLOCK
try:
    coordinator.wait("k")
except KeyboardInterrupt:
    print("interrupted", coordinator.give_up("k"), coordinator.enqueue("k").name)
"""


def test_an_interrupt_ends_a_wait_and_gives_up_the_place() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True, timeout=20)
    assert done.stdout == "interrupted False BLOCK\n"


def in_child(coordinator: rota.Coordinator, answer: object) -> None:
    try:
        coordinator.enqueue(1)
    except rota.ForkedHandleError:
        os._exit(7)


def test_a_forked_child_is_refused() -> None:
    child = multiprocessing.get_context("fork").Process(target=in_child, args=(rota.Coordinator(), None))
    child.start()
    child.join(20)
    assert child.exitcode == 7
