"""Model of the log: append, sync of several files, checkpoint, copy-forward, reuse, recovery, a second crash.

A power cut keeps any one version of each cell, header and manifest pair; a pair may also come out torn.
A sync covers what was dirty when it began.  A dying writer leaves one or two commits that are copied
and not published; `kill` ends everybody in the same boot.  A cell may read as bad once and as good
after the next crash; one proven cell may be damaged for good, and must be refused.  A lazy reader loads
a slot, copies the frame later, returns or retries.  The harshest reading of durability is judged:
whatever lies below `durable` was acknowledged.

What the states are made of: log_state.py; the disk: disk.py; recovery: log_recovery.py.
Excluded: more than two crashes, two deaths in one epoch together with reuse, more than three segments
in use, two leaders (leader model), cells that share a sector (unit model), failed syncs (failed model),
operations beyond put, ack, copy, checkpoint (replay model), growth of the pool.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.disk import crashes, headed, shown, stored, synced
from tests.model.explore import Label, Step, Violation
from tests.model.log_recovery import Recovery
from tests.model.log_state import (
    SKIP,
    Commit,
    File,
    Ghost,
    Header,
    Job,
    Manifest,
    Memory,
    Op,
    Reader,
    State,
    current,
    newest,
    pack,
)

Copied = tuple[tuple[File, ...], tuple[tuple[int, int], ...], Commit]


class LogModel(Recovery):
    quick = ("jobdeath", "border", "twofile", "recover", "twocrash")
    groups = (("reader_verify", "reader_reload"), ("job_lock", "copy_always"))
    second_lines = ("sub_epoch", "lsn_in_commit")  # the chain covers them
    slow = (("checkpoint_bits",), ("free_last",), ("copy_admit",), *groups)
    looked: set[object]  # what a crash was tried on

    def initial(self) -> State:
        self.looked = set()
        nobody: frozenset[int] = frozenset()
        files = (File((None,), ((None,),) * self.cells),) * self.bounds.files
        manifest = ((Manifest(1, ((1, 0),), None, 1),), (None,))
        ghost = Ghost((), nobody, (), nobody, nobody, nobody, 0)
        s = State(files, manifest, "run", Memory(0, 0, (), 1, 1, 0, (), 0), ghost, self.bounds.budget)
        for _ in range(self.bounds.prefill):
            s = self.put(s)
        assert s.memory
        return self.durable_at(s._replace(files=tuple(map(synced, s.files))), s.memory, s.memory.tail)

    def show(self, state: State) -> str:
        return shown(state)

    # ---- append ----
    def free_files(self, m: Memory) -> list[int]:
        used = {f for _, f in m.segments}
        return [f for f in range(self.bounds.files) if f not in used]

    def room(self, m: Memory) -> bool:
        return bool(m.tail % self.cells or self.free_files(m))

    def copy(self, s: State, op: Op, last_file: bool = False, after: Commit | None = None) -> Copied:
        """Stamp and copy one commit to the tail, or behind an unpublished one."""
        m, files = s.memory, s.files
        assert m
        lsn = after.lsn + 1 if after else m.tail
        segments, first = m.segments, lsn - lsn % self.cells
        if lsn == first and lsn not in dict(segments):
            f = self.free_files(m)[-1 if last_file else 0]
            files = headed(files, f, Header(lsn, m.epoch, m.sub))
            segments = (*segments, (lsn, f))
        n = s.ghost.n + (2 if after else 1)
        commit = Commit(lsn, m.epoch, m.sub, n, after.n if after else m.last, m.durable, op)
        return stored(files, dict(segments)[first], lsn % self.cells, commit), segments, commit

    def publish(self, s: State, copied: Copied) -> State:
        m, ghost = s.memory, s.ghost
        assert m
        files, segments, commit = copied
        op, live, next_id = commit.op, {i: (n, at) for i, n, at in m.live}, m.next_id
        if op.kind == "put":
            if op.message in dict(ghost.seen):
                raise Violation(f"id {op.message} is given twice")
            live[op.message], next_id = (commit.n, commit.lsn), op.message + 1
            ghost = ghost._replace(seen=(*ghost.seen, (op.message, commit.n)))
        elif op.kind == "ack":
            live.pop(op.message, None)
            ghost = ghost._replace(visible_acks=ghost.visible_acks | {op.message})
        elif op.kind == "copy":
            live[op.message] = (op.origin, commit.lsn)
        m = m._replace(tail=commit.lsn + 1, live=pack(live), next_id=next_id, segments=segments, last=commit.n)
        ghost = ghost._replace(published=(*ghost.published, commit.n), n=commit.n)
        return s._replace(files=files, memory=m, ghost=ghost)

    def put(self, s: State, last_file: bool = False) -> State:
        assert s.memory
        return self.publish(s, self.copy(s, Op("put", s.memory.next_id), last_file))

    @staticmethod
    def durable_at(s: State, m: Memory, durable: int) -> State:
        """Publish durable; the ghost notes what that acknowledges."""
        ghost = s.ghost
        puts, acks = set(ghost.puts), set(ghost.acks)
        for file in s.files:
            for c in map(current, file.cells):
                if c and c.lsn < min(durable, len(ghost.published)) and ghost.published[c.lsn] == c.n:
                    if c.op.kind == "put":
                        puts.add(c.op.message)
                    elif c.op.kind == "ack":
                        acks.add(c.op.message)
        ghost = ghost._replace(puts=frozenset(puts), acks=frozenset(acks))
        return s._replace(memory=m._replace(durable=max(durable, m.durable)), ghost=ghost)

    # ---- steps ----
    def steps(self, s: State) -> Iterator[Step[State]]:
        if s.left.crashes:
            yield from self.crash(s)
        if s.memory is None:
            yield from self.recover(s)
            return
        self.frames(s, s.memory)
        if self.room(s.memory):
            yield from self.append(s, s.memory)
        yield from self.leader(s, s.memory)
        yield from self.copying(s, s.memory)
        yield from self.checkpoint(s, s.memory)
        yield from self.reader(s, s.memory)

    def crash(self, s: State) -> Iterator[Step[State]]:
        """Nothing but files, manifest and ghosts survives, so each of them is cut once."""
        key = (s.files, s.manifest, s.ghost, s.left, s.mode, s.memory and s.memory.durable)
        if key in self.looked:
            return
        self.looked.add(key)
        for label, t in crashes(s):
            if t.left.crashes:
                yield label, t
            elif t not in self.looked:  # the last one: recover at once, then stop
                self.looked.add(t)
                self.finish(label, t)

    def finish(self, label: Label, t: State) -> None:
        trail = [label]
        try:
            while t.memory is None and not self.scan(t.files, t.manifest).refused:
                ((step, t),) = self.recover(t)
                trail.append(step)
            if t.memory is None:
                self.judge(t)
            else:
                self.frames(t, t.memory)
        except Violation as violation:
            violation.tail = tuple(trail)
            raise

    def frames(self, s: State, m: Memory) -> None:
        """Every live message has its frame, and no settled one is live."""
        for i, _, lsn in m.live:
            f = dict(m.segments).get(lsn - lsn % self.cells, 0)
            c = current(s.files[f].cells[lsn % self.cells])
            if c is None or c.lsn != lsn or c.op.message != i:
                raise Violation(f"the frame of live message {i} was overwritten")
            if i in s.ghost.visible_acks or i in s.ghost.acks:
                raise Violation(f"settled message {i} is live again")

    def append(self, s: State, m: Memory) -> Iterator[Step[State]]:
        left = s.left
        died = left.deaths < self.bounds.budget.deaths or m.epoch > 1
        choice = died and len(self.free_files(m)) > 1 and m.tail % self.cells == 0
        for last_file in (False, True) if choice else (False,):
            if left.puts:
                t = s._replace(left=left._replace(puts=left.puts - 1))
                yield f"put {m.next_id} at LSN {m.tail}", self.put(t, last_file)
            for i, _, _ in m.live if left.acks else ():
                t = s._replace(left=left._replace(acks=left.acks - 1))
                yield f"ack {i} at LSN {m.tail}", self.publish(t, self.copy(t, Op("ack", i), last_file))
        if left.deaths and left.puts:
            yield from self.dying_writer(s, m)

    def dying_writer(self, s: State, m: Memory) -> Iterator[Step[State]]:
        """One or two commits are copied; the writer dies before it publishes them."""
        files, segments, first = self.copy(s, Op("put", m.next_id))
        next_id = m.next_id + (SKIP if self.on["death_ids"] else 0)
        t = s._replace(
            files=files,
            memory=m._replace(sub=m.sub + 1, next_id=next_id),
            left=s.left._replace(deaths=s.left.deaths - 1),
            ghost=s.ghost._replace(dead=s.ghost.dead | {first.n}, n=first.n),
        )
        yield f"a writer copies put {m.next_id} to LSN {m.tail} and dies", t
        if (m.tail + 1) % self.cells:
            u = s._replace(files=files, memory=m._replace(segments=segments))
            files, _, second = self.copy(u, Op("put", m.next_id + 1), after=first)
            ghost = t.ghost._replace(dead=t.ghost.dead | {second.n}, n=second.n)
            yield f"a writer copies two puts to LSN {m.tail} and dies", t._replace(files=files, ghost=ghost)

    def leader(self, s: State, m: Memory) -> Iterator[Step[State]]:
        on = self.on
        if m.leader is None:
            if m.tail > m.durable:
                todo = tuple(at for at, _ in sorted(m.segments) if at < m.tail and at + self.cells > m.durable)
                todo = todo if on["all_files"] else todo[-1:]
                todo = todo if on["durable_order"] else todo[::-1]
                yield f"the leader reads tail {m.tail}", s._replace(memory=m._replace(leader=(m.tail, todo)))
            return
        target, todo = m.leader
        if todo:
            f = dict(m.segments)[todo[0]]
            files = (*s.files[:f], synced(s.files[f]), *s.files[f + 1 :])
            t = s._replace(files=files, memory=m._replace(leader=(target, todo[1:])))
            yield f"the leader syncs the segment at LSN {todo[0]}", t
        early = not on["durable_order"] and len(todo) == 1 and todo[0] + self.cells < target
        if not todo or early:
            durable = target if on["entry_snapshot"] else m.tail
            yield f"the leader publishes {durable}", self.durable_at(s, m._replace(leader=None), durable)

    def copying(self, s: State, m: Memory) -> Iterator[Step[State]]:
        """Copy-forward: read in one hold of the lock, commit in a later one."""
        left, job = s.left, m.job
        if job and left.deaths:
            t = s._replace(left=left._replace(deaths=left.deaths - 1))
            yield "the job dies", t._replace(memory=m._replace(job=None))
        beside = job and job.kind == "walk" and not self.on["job_lock"]
        if (not job or beside) and left.copies and m.live and self.room(m):
            i, n, lsn = m.live[0]
            t = s._replace(left=left._replace(copies=left.copies - 1))
            if job:
                moved = self.publish(t, self.copy(t, Op("copy", i, n, lsn)))
                yield f"copy-forward moves {i} beside the checkpoint", moved
            else:
                after = t._replace(memory=m._replace(job=Job("copy", m.live[0])))
                yield f"copy-forward reads {i} at LSN {lsn}", after
        if job and job.kind == "copy" and self.room(m):
            i, n, lsn = job.place
            t = s._replace(memory=m._replace(job=None))
            if job.place in m.live or not self.on["copy_admit"]:
                t = self.publish(t, self.copy(t, Op("copy", i, n, lsn)))
                yield f"COPY of {i} at LSN {m.tail}", t
            else:
                yield f"copy-forward gives {i} up: it was settled", t

    def checkpoint(self, s: State, m: Memory) -> Iterator[Step[State]]:
        job, left = m.job, s.left
        if job is None:
            if left.checkpoints:
                walk = Job("walk", begin=m.tail, previous=m.last)
                t = s._replace(left=left._replace(checkpoints=left.checkpoints - 1))
                yield f"a checkpoint begins at {m.tail}", t._replace(memory=m._replace(job=walk))
        elif job.kind == "walk" and job.chunk < 2:  # the first message, then all others
            part = [at for i, _, at in m.live if (i == 1) == (job.chunk == 0) and at < job.begin]
            walk = job._replace(chunk=job.chunk + 1, bits=tuple(sorted([*job.bits, *part])))
            yield f"the checkpoint walks chunk {job.chunk}", s._replace(memory=m._replace(job=walk))
        elif job.kind == "walk" and self.room(m):
            if not self.on["begin_first"]:
                job = job._replace(begin=m.tail, previous=m.last)
            op = Op("checkpoint", old=job.begin, bits=job.bits, next_id=m.next_id)
            t = self.publish(s, self.copy(s, op))
            assert t.memory
            named = t.memory._replace(job=job._replace(kind="sync", at=m.tail))
            yield f"the checkpoint is appended at {m.tail}, bits {job.bits}", t._replace(memory=named)
        elif job.kind == "sync" and (m.durable > job.at or not self.on["checkpoint_sync"]):
            old = newest(s.manifest)
            assert old
            new = old._replace(checkpoint=(job.begin, job.at, job.previous), next_id=m.next_id)
            t = s._replace(memory=m._replace(job=job._replace(kind="named")))
            t = self.write_manifest(t, new)
            yield "the manifest names the checkpoint", t
            if not self.on["free_last"]:
                yield "segments are freed before the manifest's sync", self.freed(t, job)
        elif job.kind == "named":
            t = s._replace(manifest=tuple((pair[-1],) for pair in s.manifest))
            t = t._replace(memory=m._replace(job=None))
            yield "the manifest is synced, segments are freed", self.freed(t, job)

    def freed(self, s: State, job: Job) -> State:
        assert s.memory
        keep = {bit - bit % self.cells for bit in job.bits}
        segments = tuple(x for x in s.memory.segments if x[0] + self.cells > job.begin or x[0] in keep)
        return s._replace(memory=s.memory._replace(segments=segments))

    def reader(self, s: State, m: Memory) -> Iterator[Step[State]]:
        """A lazy batch: load the slot, copy the frame, look again."""
        r = m.reader
        if r is None:
            for place in m.live if s.left.reads else ():
                i, _, lsn = place
                loaded = Reader(place, dict(m.segments)[lsn - lsn % self.cells])
                t = s._replace(left=s.left._replace(reads=s.left.reads - 1))
                yield f"a reader loads the slot of {i}", t._replace(memory=m._replace(reader=loaded))
        elif r.got is None:
            c = current(s.files[r.file].cells[r.place[2] % self.cells])
            got = r._replace(got=c.op.message if c else -1)
            yield "the reader copies the frame", s._replace(memory=m._replace(reader=got))
        else:
            i = r.place[0]
            verified = r.got == i or not self.on["reader_verify"]
            reloaded = r.place in m.live or not self.on["reader_reload"]
            if verified and reloaded and r.got != i:
                raise Violation(f"the reader of message {i} returns another frame")
            yield "the reader returns or retries", s._replace(memory=m._replace(reader=None))
