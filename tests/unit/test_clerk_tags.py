"""The two tags of a clerk: pairs that no history leaves are refused."""

from __future__ import annotations

import pathlib

import pytest

import rota
from rota import _tags
from rota._tags import Received, Request, Sent
from tests.clerks import bring, open_small

# --- tags that no history leaves -------------------------------------------------------------------------------------

A, B, C = Request(1, 1, b"a"), Request(2, 2, b"b"), Request(3, 3, b"c")
PAIRS: dict[str, tuple[Sent, Received, bool]] = {
    "nothing": (Sent(), Received(), True),
    "sent": (Sent((A,)), Received(), True),
    "received": (Sent((A,)), Received(1, b"a", None, (1,)), True),
    "the one before": (Sent((B,), 0, 1), Received(1, b"a", None, (1,)), True),
    "out of order in a window": (Sent((A, B)), Received(2, b"b", None, (2,)), True),
    "received, nothing sent": (Sent(), Received(1, b"a", None, (1,)), False),
    "received what was not sent": (Sent((A,)), Received(2, b"b", None, (2,)), False),
    "neither the last nor the one before": (Sent((C,), 0, 2), Received(1, b"a", None, (1,)), False),
    "another id": (Sent((A,)), Received(1, b"b", None, (1,)), False),
    "the one before was never received": (Sent((B,), 0, 1), Received(), False),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_of_tags_is_checked(directory: pathlib.Path, pair: str) -> None:
    sent, received, good = PAIRS[pair]
    with open_small(directory) as repo:
        clerk = bring(repo, "connected")
        for queue, tag, has in (("orders", sent, sent.number), ("teller-7.replies", received, received.number)):
            if has:
                with repo.transaction() as transaction:
                    transaction.tag(repo.queue(queue).register("teller-7"), tag.encode(), of=False)
        if good:
            assert clerk.connect().received_rid == received.rid
        else:
            with pytest.raises(rota.Corrupt, match="teller-7"):
                clerk.connect()
            assert clerk.state == "disconnected"


@pytest.mark.parametrize("tag", [b"", b"x", b"\1" * 20, b"\2" * 40, Sent((A,)).encode() + b"x"])
def test_a_tag_of_somebody_else_is_refused(directory: pathlib.Path, tag: bytes) -> None:
    with open_small(directory) as repo:
        clerk = bring(repo, "connected")
        repo.queue("orders").register("teller-7").put(b"x", tag=tag)
        with pytest.raises(rota.Corrupt):
            clerk.connect()


def test_tags_are_what_they_were() -> None:
    sent = Sent((A, Request(2, 0, b"r" * 200)), 41, 1)
    assert _tags.decode_sent(sent.encode(), 99) == sent._replace(requests=(A, Request(2, 99, b"r" * 200)))
    for checkpoint in (None, b"", b"p" * 4096):
        received = Received(7, b"r" * 200, checkpoint, tuple(range(64)))
        assert len(received.encode()) <= 4608
        assert _tags.decode_received(received.encode()) == received
