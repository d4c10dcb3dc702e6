"""A producer's process dies: what its receipts told durable or visible is there, and what may be gone is counted."""

from __future__ import annotations

import contextlib
import pathlib
import random
from typing import Any

import pytest

import rota
from tests.crash.kit import PATIENCE_S, Child, Died, Link

CACHE = 500
REPORT_EACH = 64


def put_and_tell(link: Link, path: pathlib.Path, options: dict[str, Any]) -> None:
    """Put numbers for ever, and tell now and then how many puts returned and how far the receipts say what."""
    repo = rota.open(path, capacity="8 MiB", durability="interval", sync_interval=0.005)
    producer = repo.producer("q", cache_size=CACHE, batch_size=32, **options)
    queue = repo.queue("q")
    receipts: list[rota.CachedReceipt] = []
    visible = durable = 0
    while True:
        receipts.append(producer.put(b"%d" % len(receipts), timeout=PATIENCE_S))
        if len(receipts) % REPORT_EACH:
            continue
        while visible < len(receipts) and receipts[visible].visible:
            visible += 1
        while durable < visible and receipts[durable].durable:
            durable += 1
        link.send((len(receipts), visible, durable))
        if len(receipts) % 4096 == 0 and len(queue) > 50_000:
            receipts[-1].wait(PATIENCE_S)
            return


@pytest.mark.parametrize("options", [{}, {"flush_interval": 0.0}, {"process": bytes.strip, "workers": 1}], ids=str)
def test_what_was_told_visible_is_there_after_a_kill(
    directory: pathlib.Path, seed: int, options: dict[str, Any]
) -> None:
    draw = random.Random(seed)
    path = directory / "r"
    for number in range(4):
        with rota.open(path / str(number), capacity="8 MiB", durability="none") as repo:
            repo.queue("q")
            told = (0, 0, 0)
            with Child(put_and_tell, path / str(number), options) as child:
                for _ in range(draw.randrange(1, 200)):
                    told = child.receive()
                child.kill()
                with contextlib.suppress(Died):
                    while True:
                        told = child.receive()
            count, visible, durable = told
            found = sorted(int(body) for body in repo.queue("q").get_many(1_000_000).bodies)
            assert found == list(range(len(found))), "in order, none twice, no gap"
            assert durable <= visible <= len(found) <= count + CACHE + REPORT_EACH
            assert count - len(found) <= CACHE, "more is gone than can have been cached"
