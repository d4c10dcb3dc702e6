"""Careers and the local elector, with real processes: phases, ends, failover, what a forked child may do."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import threading
import time
from collections.abc import Iterator

import pytest

import rota
from rota._office import holder_of
from tests.crash.kit import Child, Died, Link

CANCEL_S = 1.0


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", capacity="8 MiB", durability="none") as repository:
        yield repository


class Diary(rota.LeaderCareer):
    """Writes down what happens to it; executes so often, and raises or refuses where it is told to."""

    def __init__(self, times: int = 2, fails: str = "") -> None:
        self.times, self.fails = times, fails
        self.lines: list[str] = []

    def note(self, phase: str) -> None:
        self.lines.append(phase)
        if self.fails == phase:
            raise RuntimeError(phase)

    def prepare(self) -> None:
        self.note("prepare")

    def inaugurate(self, leadership: rota.Leadership) -> bool:
        assert leadership.valid and not leadership.lost
        self.note("inaugurate")
        return self.fails != "refuse"

    def execute(self, leadership: rota.Leadership) -> bool:
        assert leadership.valid
        self.note("execute")
        self.times -= 1
        return self.times > 0

    def hand_over(self, leadership: rota.Leadership) -> None:
        assert leadership.valid, "the office is given up last"
        self.note("hand_over")

    def learn(self, leadership: rota.Leadership) -> None:
        self.note(f"learn {leadership.token} {leadership.identity}")


def test_the_phases_in_their_order(repo: rota.Repository) -> None:
    diary = Diary(times=3)
    assert rota.lead(diary, rota.LocalElector(repo, "q"))
    assert diary.lines == ["prepare", "inaugurate", "execute", "execute", "execute", "hand_over"]


@pytest.mark.parametrize("phase", ["prepare", "inaugurate", "execute", "hand_over"])
def test_what_a_phase_raises_is_raised_after_the_office_is_given_up(repo: rota.Repository, phase: str) -> None:
    diary = Diary(fails=phase)
    with pytest.raises(RuntimeError, match=phase):
        rota.lead(diary, rota.LocalElector(repo, "q"))
    assert ("hand_over" in diary.lines) == (phase != "prepare")
    assert rota.lead(Diary(), rota.LocalElector(repo, "q")), "the office is free"


def test_an_office_can_be_refused(repo: rota.Repository) -> None:
    diary = Diary(fails="refuse")
    assert not rota.lead(diary, rota.LocalElector(repo, "q"))
    assert diary.lines == ["prepare", "inaugurate"]
    assert rota.lead(lambda leadership: False, rota.LocalElector(repo, "q"))


def test_tokens_rise_and_the_office_is_recorded(repo: rota.Repository) -> None:
    seen: list[int] = []

    def execute(leadership: rota.Leadership) -> bool:
        seen.append(leadership.token)
        return False

    for _ in range(3):
        rota.lead(execute, rota.LocalElector(repo, "q", "me"))
    assert seen == [1, 2, 3]
    holder = holder_of(repo, "q")
    assert holder is not None and (holder.token, holder.identity, holder.pid) == (3, "me", os.getpid())
    assert holder_of(repo, "another") is None
    assert len(repo.queue("q.leader", max_attempts=None)) == 1


def test_to_stand_again_until_cancelled(repo: rota.Repository) -> None:
    elector = rota.LocalElector(repo, "q")
    tokens = []

    def execute(leadership: rota.Leadership) -> bool:
        tokens.append(leadership.token)
        if len(tokens) == 5:
            elector.cancel()
        return False

    assert rota.lead(execute, elector, stand_again=True)
    assert tokens == [1, 2, 3, 4, 5]
    assert not rota.lead(execute, elector), "a cancelled elector stands no more"


def test_cancel_while_leading_and_while_waiting(repo: rota.Repository) -> None:
    first, second = rota.LocalElector(repo, "q", "first"), rota.LocalElector(repo, "q", "second")
    leads, learnt = threading.Event(), threading.Event()

    def execute(leadership: rota.Leadership) -> bool:
        leads.set()
        leadership.stop.wait(30)
        return True

    class Learner(Diary):
        def learn(self, leadership: rota.Leadership) -> None:
            super().learn(leadership)
            assert not leadership.valid
            learnt.set()

    learner = Learner()
    threads = [threading.Thread(target=rota.lead, args=(execute, first))]
    threads[0].start()
    assert leads.wait(5)
    threads.append(threading.Thread(target=rota.lead, args=(learner, second)))
    threads[1].start()
    assert learnt.wait(5)
    for elector, thread in ((second, threads[1]), (first, threads[0])):
        begun = time.monotonic()
        elector.cancel()
        thread.join(5)
        assert not thread.is_alive() and time.monotonic() - begun < CANCEL_S
    assert learner.lines == ["prepare", "learn 1 first"]


def worker(link: Link, path: pathlib.Path, name: str) -> None:
    """A leader that settles messages in order, each by one commit, and tells."""
    with rota.open(path, durability="none") as repo:
        queue, done = repo.queue("q"), repo.queue("done")

        class Career(rota.LeaderCareer):
            def inaugurate(self, leadership: rota.Leadership) -> None:
                leadership.fence(queue)
                link.send((name, leadership.token))

            def execute(self, leadership: rota.Leadership) -> bool:
                with repo.transaction(leadership.token) as transaction:
                    message = transaction.get(queue, timeout=0.5)
                    transaction.put(done, message.body, key=name)
                link.send(time.monotonic())
                return True

        link.send("stands")
        rota.lead(Career(), rota.LocalElector(repo, "q", name))


def test_a_killed_leader_is_followed_at_once_and_in_order(directory: pathlib.Path) -> None:
    """The new one commits next what the old one had in its hands; the time of the failover is printed."""
    path = directory / "r"
    failovers = []
    with rota.open(path, capacity="64 MiB", durability="none") as repo, contextlib.ExitStack() as stack:
        queue = repo.queue("q")
        for first in range(0, 20_000, 2000):
            queue.put_many([b"%d" % i for i in range(first, first + 2000)])
        repo.queue("done")
        leader = stack.enter_context(Child(worker, path, "0"))
        assert leader.receive() == "stands"
        assert leader.receive() == ("0", 1)
        for token in range(2, 8):
            standby = stack.enter_context(Child(worker, path, str(token)))
            assert standby.receive() == "stands"
            for _ in range(3):
                leader.receive()
            killed = time.monotonic()
            leader.kill()
            assert standby.receive() == (str(token), token)
            failovers.append(standby.receive() - killed)
            leader = standby
        leader.kill()
        print("failover in ms:", sorted(round(1000 * each, 1) for each in failovers))
        bodies = [int(message.body) for message in repo.queue("done").browse()]
        assert bodies == list(range(len(bodies)))
        assert len(bodies) + len(queue) == 20_000
    assert min(failovers) < 0.5


def test_a_stopped_leader_is_not_followed_and_goes_on(directory: pathlib.Path) -> None:
    """On one machine a lock is not broken: who is stopped is waited for."""
    path = directory / "r"
    with rota.open(path, capacity="8 MiB") as repo:
        repo.queue("done")
        repo.queue("q").put_many([b"%d" % i for i in range(3)])
        with Child(worker, path, "a") as child:
            assert child.receive() == "stands"
            assert child.receive() == ("a", 1)
            child.signal(signal.SIGSTOP)
            elector = rota.LocalElector(repo, "q", "b")
            thread = threading.Thread(target=rota.lead, args=(lambda leadership: False, elector))
            thread.start()
            thread.join(0.3)
            assert thread.is_alive()
            child.signal(signal.SIGCONT)
            child.kill()
            thread.join(5)
            assert not thread.is_alive()
            assert repo.queue("q.leader", max_attempts=None).fencing_token == 2


def test_a_forked_child_keeps_no_office(directory: pathlib.Path) -> None:
    """It may not use the elector, its copy of the leadership is not valid, and the lock ends with the parent."""
    path = directory / "r"

    def grandchild(link: Link, elector: rota.LocalElector, leadership: rota.Leadership) -> None:
        assert not leadership.valid
        with pytest.raises(rota.ForkedHandleError):
            rota.lead(Diary(), elector)
        link.send("refused")
        link.receive(60)

    def parent(link: Link) -> None:
        repo = rota.open(path)
        elector = rota.LocalElector(repo, "q")

        def execute(leadership: rota.Leadership) -> bool:
            child = Child(grandchild, elector, leadership)
            assert child.receive() == "refused"
            assert leadership.valid
            link.send(child.pid)
            link.receive(60)
            return False

        rota.lead(execute, elector)

    with rota.open(path, capacity="8 MiB") as repo:
        with Child(parent) as child:
            orphan = child.receive()
            child.kill()
            try:
                assert rota.lead(lambda leadership: False, rota.LocalElector(repo, "q"))
            finally:
                os.kill(orphan, signal.SIGKILL)
                with pytest.raises(Died):
                    child.receive()
