"""The record of who leads, in the log: a queue NAME.leader, whose fence is the last token and whose one message tells.

What holds:

1. The fence is written, durable, before the message; a record under an older token is refused like any other commit.
2. A message that is not what a leader of this version writes counts as none.
"""

from __future__ import annotations

import json
import os
import time
from typing import NamedTuple

from rota._core.queue import Queue
from rota.errors import Empty, NotFound
from rota.repository import Repository

SUFFIX = ".leader"


class Office(NamedTuple):
    """Who leads: its token and name, its process on this machine, since when (seconds since the epoch)."""

    token: int
    identity: str
    pid: int
    since: float


def office_queue(repository: Repository, name: str) -> Queue:
    """The queue of the record, made when there is none."""
    return repository.queue(name + SUFFIX, max_attempts=None)


def take_office(repository: Repository, name: str, token: int, identity: str) -> None:
    """Write the record of a new leader.  Raises StaleLeader when a later one wrote its own."""
    queue = office_queue(repository, name)
    queue.fence(token)
    body = {"token": token, "identity": identity, "pid": os.getpid(), "since": time.time()}
    with repository.transaction(token, durability="none") as transaction:
        transaction.get_many(queue, 16)
        transaction.put(queue, json.dumps(body).encode())


def holder_of(repository: Repository, name: str) -> Office | None:
    """Who wrote the record last; None when nobody did."""
    if name + SUFFIX not in repository.queues():
        return None
    queue = office_queue(repository, name)
    last = None
    try:
        for message in queue.browse():
            last = message
        if last is None:
            return None
        told = json.loads(last.body)
        return Office(int(told["token"]), str(told["identity"]), int(told["pid"]), float(told["since"]))
    except (ValueError, KeyError, TypeError, Empty, NotFound):
        return None
