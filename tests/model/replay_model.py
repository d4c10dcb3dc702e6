"""Model of replay: absolute operations over a fuzzy checkpoint give what the memory had.

Modelled: messages with a queue, a count of hand-outs, an expiry; RETURN, MOVE, EXPIRE, ACK, COPY in the
log; a checkpoint that reads `begin`, walks the messages one per hold of the lock while others commit,
and writes a bit for each live frame below begin and an override for what differs from its frame.
Copy-forward reads a message in one hold and commits in a later one.  In every state, a replay of the
newest complete checkpoint and the log from its begin, under any clock, must give the memory.

Excluded: the disk (log model), unlogged returns and lanes (range model), registrations, dedup windows,
sagas, limiters (they are carried whole in each checkpoint and in each operation), several chunks of
blocks in one checkpoint beyond complete or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import Model, Step, Violation, put


class Message(NamedTuple):
    place: int  # where its frame is
    queue: str = "a"
    handouts: int = 0


class Op(NamedTuple):
    kind: str  # put, return, move, expire, ack, copy
    message: int
    queue: str = "a"
    handouts: int = 0


class Entry(NamedTuple):
    """A live frame in a checkpoint, and what differs from it."""

    message: int
    place: int
    override: Message | None


class Job(NamedTuple):
    kind: str  # walk, copy
    begin: int
    walked: int = 0
    entries: tuple[Entry, ...] = ()
    was: Message | None = None


class Budget(NamedTuple):
    puts: int
    changes: int  # RETURN and MOVE
    ends: int  # ACK and EXPIRE
    copies: int
    checkpoints: int


class State(NamedTuple):
    log: tuple[Op, ...]
    memory: tuple[Message | None, ...]
    job: Job | None
    begin: int  # of the checkpoint that a replay starts from
    image: tuple[Entry, ...]
    left: Budget


Live = dict[int, Message]


class ReplayModel(Model[State]):
    guards = {
        "absolute": "RETURN carries the count that results, not a difference",
        "overrides": "a checkpoint carries what differs from the frame",
        "begin_first": "begin is read before the walk, not after it",
        "complete": "a checkpoint counts only when its last block is there",
        "unknown_skipped": "replay skips a RETURN or MOVE of a message that ended before the walk came by",
        "copy_carries": "COPY carries the count and the queue",
        "copy_at_admit": "and it reads them in the hold in which it is committed",
        "copy_if_there": "COPY is admitted only while the message is live at its old place",
        "expire_logged": "an expiry is a commit, or a clock set back revives the message",
    }
    profiles = {
        "changes": Budget(1, 2, 1, 0, 1),
        "copies": Budget(1, 1, 1, 1, 1),
        "two": Budget(2, 2, 1, 1, 1),
        "again": Budget(2, 2, 2, 1, 2),
    }
    quick = ("changes", "copies", "two")

    def initial(self) -> State:
        return State((), (), None, 0, (), self.profiles[self.profile])

    # ---- replay ----
    @staticmethod
    def frame(log: tuple[Op, ...], place: int) -> Message:
        """The message as its frame tells it: a COPY has counts of its own."""
        op = log[place]
        return Message(place, op.queue, op.handouts)

    def replay(self, s: State) -> Live:
        live: Live = {e.message: e.override or self.frame(s.log, e.place) for e in s.image}
        for place in range(s.begin, len(s.log)):
            op = s.log[place]
            if op.kind in ("put", "copy"):
                live[op.message] = self.frame(s.log, place)
            elif op.kind in ("ack", "expire"):
                live.pop(op.message, None)
            elif op.message not in live:
                if not self.on["unknown_skipped"]:
                    raise Violation(f"an intact log is refused: {op.kind} of {op.message}, which is unknown")
            else:
                now = live[op.message]
                if op.kind == "move":
                    live[op.message] = now._replace(queue=op.queue)
                else:
                    handouts = op.handouts if self.on["absolute"] else now.handouts + 1
                    live[op.message] = now._replace(handouts=handouts)
        return live

    def check(self, s: State) -> None:
        memory = {i: m for i, m in enumerate(s.memory) if m}
        replayed = self.replay(s)
        if replayed != memory:
            raise Violation(f"a replay from {s.begin} gives {replayed}, the memory has {memory}")

    # ---- steps ----
    def steps(self, s: State) -> Iterator[Step[State]]:
        left = s.left
        if left.puts:
            t = self.commit(s, Op("put", len(s.memory)), Message(len(s.log)))
            yield f"put {len(s.memory)}", t._replace(left=left._replace(puts=left.puts - 1))
        for i, m in enumerate(s.memory):
            if m is None:
                continue
            if left.changes:
                t = s._replace(left=left._replace(changes=left.changes - 1))
                returned = m._replace(handouts=m.handouts + 1)
                yield f"RETURN {i}", self.commit(t, Op("return", i, m.queue, returned.handouts), returned)
                moved = m._replace(queue="b" if m.queue == "a" else "a")
                yield f"MOVE {i} to {moved.queue}", self.commit(t, Op("move", i, moved.queue), moved)
            if left.ends:
                t = s._replace(left=left._replace(ends=left.ends - 1))
                yield f"ACK {i}", self.commit(t, Op("ack", i), None)
                if self.on["expire_logged"]:
                    yield f"EXPIRE {i}", self.commit(t, Op("expire", i), None)
                else:
                    yield (
                        f"{i} is past its time, nothing is logged",
                        t._replace(memory=put(s.memory, i, None)),
                    )
        yield from self.jobs(s)

    @staticmethod
    def commit(s: State, op: Op, after: Message | None) -> State:
        memory = (*s.memory, None) if op.message == len(s.memory) else s.memory
        return s._replace(log=(*s.log, op), memory=put(memory, op.message, after))

    def jobs(self, s: State) -> Iterator[Step[State]]:
        left, job = s.left, s.job
        if job is None:
            if left.checkpoints:
                t = s._replace(left=left._replace(checkpoints=left.checkpoints - 1))
                yield f"a checkpoint begins at {len(s.log)}", t._replace(job=Job("walk", len(s.log)))
            for i, m in enumerate(s.memory):
                if m and left.copies:
                    t = s._replace(left=left._replace(copies=left.copies - 1))
                    yield f"copy-forward reads {i}", t._replace(job=Job("copy", 0, i, (), m))
        elif job.kind == "walk":
            yield from self.walk(s, job)
        else:
            yield self.copy(s, job)

    def walk(self, s: State, job: Job) -> Iterator[Step[State]]:
        if job.walked == len(s.memory):
            begin = job.begin if self.on["begin_first"] else len(s.log)
            yield "the checkpoint is complete", s._replace(job=None, begin=begin, image=job.entries)
            return
        m = s.memory[job.walked]
        entries = job.entries
        if m and (m.place < job.begin or not self.on["begin_first"]):
            differs = m != self.frame(s.log, m.place) and self.on["overrides"]
            entries = (*entries, Entry(job.walked, m.place, m if differs else None))
        t = s._replace(job=job._replace(walked=job.walked + 1, entries=entries))
        if not self.on["complete"]:
            t = t._replace(begin=job.begin, image=entries)
        yield f"the checkpoint walks {job.walked}", t

    def copy(self, s: State, job: Job) -> Step[State]:
        i, was, now = job.walked, job.was, s.memory[job.walked]
        assert was
        t = s._replace(job=None)
        there = now is not None and now.place == was.place
        if not there and self.on["copy_if_there"]:
            return f"copy-forward gives {i} up", t
        source = now if now and self.on["copy_at_admit"] else was
        op = Op("copy", i, source.queue, source.handouts)
        if not self.on["copy_carries"]:
            op = Op("copy", i)
        after = now._replace(place=len(s.log)) if now else None
        return f"COPY {i}", self.commit(t, op, after)
