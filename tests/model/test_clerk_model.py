"""A clerk of any window against a model of plain lists: calls, servers, crashes and takeovers in any order.

What holds: a request of the model is waiting, answered or received, never two of these; what the clerk tells, before
and after each crash, is what the model has; no request is processed twice, and none is lost.
"""

from __future__ import annotations

import pathlib
import shutil
import tempfile

import hypothesis
import pytest
from hypothesis import stateful
from hypothesis import strategies as st

import rota
from tests.clerks import SMALL, facts, serve, teller
from tests.conftest import directory_base


class Clerks(stateful.RuleBasedStateMachine):
    """`outstanding` are ids in the order of the sends, `waiting` those of them that no server took, `answers` the rest.

    A body is never used twice, so what was processed tells whether anything was processed twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="rota-model-", dir=directory_base()))
        self.repo = rota.open(self.directory / "r", **SMALL)
        self.sends = 0
        self.processed: list[bytes] = []
        self.forget()

    def forget(self) -> None:
        self.outstanding: list[bytes] = []
        self.waiting: dict[bytes, bytes] = {}  # id -> body
        self.answers: list[tuple[bytes, str, bytes]] = []  # id, status, body of the reply
        self.last: tuple[bytes, str, bytes] | None = None
        self.last_sent: bytes | None = None
        self.checkpoint: bytes | None = None
        self.integer = 0

    @stateful.initialize(window=st.integers(1, 3))
    def begin(self, window: int) -> None:
        self.window = window
        self.clerk = teller(self.repo, window=window)
        self.clerk.connect()

    def take(self, answer: tuple[bytes, str, bytes], checkpoint: bytes | None) -> None:
        self.outstanding.remove(answer[0])
        self.last, self.checkpoint = answer, checkpoint

    @stateful.rule(named=st.booleans())
    def send(self, named: bool) -> None:
        self.sends += 1
        rid, body = b"name-%d" % self.sends, b"body-%d" % self.sends
        if len(self.outstanding) >= self.window:
            with pytest.raises(rota.StateError):
                self.clerk.send(body, rid if named else None)
            return
        self.clerk.send(body, rid if named else None)
        if not named:
            self.integer += 1
            rid = b"%d" % self.integer
        self.outstanding.append(rid)
        self.waiting[rid] = body
        self.last_sent = rid

    @stateful.rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        before = len(self.repo.queue("orders"))
        if self.outstanding:
            self.clerk.send(b"not this", data.draw(st.sampled_from(self.outstanding)))
        elif self.last is not None:
            with pytest.raises(rota.StateError):
                self.clerk.send(b"not this", self.last[0])
        assert len(self.repo.queue("orders")) == before

    @stateful.rule()
    def process(self) -> None:
        if self.waiting:
            rid, body = next(iter(self.waiting.items()))
            del self.waiting[rid]
            assert serve(self.repo) == [body]
            self.processed.append(body)
            self.answers.append((rid, "ok", b"done " + body))

    @stateful.rule(checkpoint=st.one_of(st.none(), st.binary(max_size=8)))
    def receive(self, checkpoint: bytes | None) -> None:
        if self.answers:
            reply = self.clerk.receive(checkpoint, timeout=5)
            self.take(self.answers.pop(0), checkpoint)
            assert (reply.rid, reply.status, reply.body) == self.last
        else:
            with pytest.raises(rota.Empty if self.waiting else rota.StateError):
                self.clerk.receive(checkpoint, timeout=0)

    @stateful.rule()
    def rereceive(self) -> None:
        if self.last is None:
            with pytest.raises(rota.StateError):
                self.clerk.rereceive()
        else:
            reply = self.clerk.rereceive()
            assert (reply.rid, reply.status, reply.body) == self.last

    @stateful.rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if not self.outstanding:
            with pytest.raises(rota.StateError):
                self.clerk.cancel()
            return
        rid = data.draw(st.sampled_from(self.outstanding))
        assert self.clerk.cancel(rid) == (rid in self.waiting)
        if self.waiting.pop(rid, None) is not None:
            answer = (rid, "cancelled", b"")
            if len(self.outstanding) == 1:
                self.take(answer, None)
            else:
                self.answers.append(answer)

    @stateful.rule()
    def disconnect(self) -> None:
        if self.outstanding:
            with pytest.raises(rota.StateError):
                self.clerk.disconnect()
            return
        self.clerk.disconnect()
        self.forget()
        assert facts(self.clerk.connect()) == (None, None, None, ())

    @stateful.rule(how=st.sampled_from(["the same", "another", "after opening again"]))
    def crash(self, how: str) -> None:
        old = self.clerk
        if how == "after opening again":
            self.repo.close()
            self.repo = rota.open(self.directory / "r", **SMALL)
        if how != "the same":
            self.clerk = teller(self.repo, window=self.window)
        received = self.last[0] if self.last else None
        assert facts(self.clerk.connect()) == (self.last_sent, received, self.checkpoint, tuple(self.outstanding))
        if how == "another":
            with pytest.raises(rota.StaleClerk):
                old.receive(timeout=0)

    @stateful.invariant()
    def the_clerk_tells_what_the_model_has(self) -> None:
        assert self.clerk.outstanding == tuple(self.outstanding)
        assert len(self.repo.queue("orders")) == len(self.waiting)
        assert len(self.repo.queue("teller-7.replies")) == len(self.answers)
        assert len(self.repo.queue("teller-7.replies.kept")) == (self.last is not None)
        assert len(self.processed) == len(set(self.processed))

    def teardown(self) -> None:
        self.repo.close()
        shutil.rmtree(self.directory)


TestClerks = Clerks.TestCase
TestClerks.settings = hypothesis.settings(max_examples=25, stateful_step_count=25)
