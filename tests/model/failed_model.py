"""Model of failed syncs: pages that are clean in the cache and missing on the disk.

Modelled: one file of pages, a commit to a page, each with what the disk has, what the cache has, and
whether it is dirty; two processes with a descriptor each; leadership of the sync as a lock that a death
frees.  Write-back fails inside a sync or behind everyone's back: the page is clean from then on.  The
kernel tells each descriptor of an error once, and a descriptor opened later only if nobody was told.
Clean pages may be dropped at any time.  Death at every step of a failing sync and of an open; power
cuts; failures of the open's own syncs.  An open after a failure takes the valid prefix, writes it to a
fresh file, syncs, starts an epoch there, removes the file `failed`.

Excluded: torn pages and the sync unit (unit model), several files, an open while old processes live
(here it comes when all are dead), failures of the manifest's sync.  Epoch and manifest are atomic.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from tests.model.explore import Model, Step, Violation, put


class Commit(NamedTuple):
    n: int
    previous: int
    epoch: int


class Page(NamedTuple):
    disk: Commit | None = None
    cache: Commit | None = None
    dirty: bool = False

    def written(self, ok: bool = True) -> Page:
        return Page(self.cache, self.cache) if ok else self._replace(dirty=False)


class File(NamedTuple):
    pages: tuple[Page, ...]
    errors: int = 0  # failed write-backs
    told: bool = True  # some descriptor reported the last one


class Process(NamedTuple):
    alive: bool = True
    saw: int = -1  # errors that its descriptor has reported; -1: it has none
    step: str = ""  # of the sync that it leads: syncing, told, word, marked
    target: int = 0
    late: bool = False  # unguarded: has yet to set the word


class Budget(NamedTuple):
    puts: int
    failures: int
    kills: int  # of everybody
    deaths: int  # of one process
    cuts: int


class State(NamedTuple):
    file: File
    fresh: File | None
    mode: str  # run, off; steps of an open: accepted, error, marked, copied, synced, named
    processes: tuple[Process, ...]
    durable: int
    word: bool  # `failed`, in control
    sync_word: bool  # a sync is under way, in control
    mark: bool  # the file `failed`
    epochs: tuple[tuple[int, int], ...]
    published: tuple[int, ...]  # ghost: the log
    acked: int  # ghost: so many of it were acknowledged as durable
    n: int
    left: Budget


DEAD = (Process(alive=False), Process(alive=False))


class FailedModel(Model[State]):
    guards = {
        "sticky": "once `failed` is set nobody leads a sync: it is never retried",
        "word_first": "the word `failed` is set before leadership passes on and waiters are woken",
        "sync_word": "a word stands while a sync is under way; one left by a dead leader means failed",
        "mark_file": "the file `failed` is there before control is rebuilt",
        "remove_last": "it is removed after the new epoch is durable, not before",
        "read_disk": "the open after a failure reads the disk, not the cache",
        "write_first": "before it reads the disk it writes back what is dirty: no failure, no loss",
        "fresh_file": "it writes what it accepts to a fresh file and does not go on in the old one",
        "fresh_last": "the fresh file counts only after its sync",
        "own_descriptor": "a process opens the file before anyone stores to it, not when it first leads",
    }
    groups = (("read_disk", "fresh_file"),)
    profiles = {
        "one": Budget(1, 1, 1, 0, 1),
        "leaders": Budget(2, 1, 0, 1, 1),
        "reopen": Budget(1, 1, 2, 0, 1),
        "again": Budget(2, 2, 2, 0, 1),
        "deep": Budget(2, 2, 2, 1, 2),
    }
    quick = ("one", "leaders", "reopen")

    def initial(self) -> State:
        budget: Budget = self.profiles[self.profile]
        first = Commit(1, 0, 1)
        file = File((Page(first, first),) + (Page(),) * budget.puts)
        return State(file, None, "run", self.attached(file), 1, False, False, False, ((1, 0),), (1,), 1, 1, budget)

    # ---- the file ----
    def attached(self, file: File) -> tuple[Process, Process]:
        first = Process(saw=self.sampled(file))
        return first, first if self.on["own_descriptor"] else Process()

    @staticmethod
    def sampled(file: File) -> int:
        """What a new descriptor takes as reported already."""
        return file.errors if file.told or not file.errors else file.errors - 1

    @staticmethod
    def outcomes(file: File, failures: int) -> Iterator[tuple[str, File, int]]:
        """Every way of writing the dirty pages, and the failures then left."""
        dirty = [k for k, page in enumerate(file.pages) if page.dirty]
        for good in product((True, False), repeat=len(dirty)):
            pages = file.pages
            for k, ok in zip(dirty, good, strict=True):
                pages = put(pages, k, pages[k].written(ok))
            if all(good):
                yield "all written", file._replace(pages=pages), failures
            elif failures:
                lost = [k for k, ok in zip(dirty, good, strict=True) if not ok]
                yield f"pages {lost} fail", File(pages, file.errors + 1, False), failures - 1

    @staticmethod
    def prefix(s: State, commits: list[Commit | None]) -> tuple[int, ...]:
        """What a scan accepts, by chain and epoch."""
        taken: list[int] = []
        for k, c in enumerate(commits):
            epoch = max(e for e, start in s.epochs if start <= k)
            if c is None or c.previous != (taken[-1] if taken else 0) or c.epoch != epoch:
                break
            taken.append(c.n)
        return tuple(taken)

    @staticmethod
    def judge(s: State, taken: tuple[int, ...]) -> None:
        if taken[: s.acked] != s.published[: s.acked]:
            proven = s.published[: s.acked]
            raise Violation(f"commits {proven} were acknowledged as durable, a scan finds {taken}")

    # ---- steps ----
    def steps(self, s: State) -> Iterator[Step[State]]:
        left = s.left
        clean = tuple(p if p.dirty else Page(p.disk, p.disk) for p in s.file.pages)
        if clean != s.file.pages:
            yield "the kernel drops the clean pages", s._replace(file=s.file._replace(pages=clean))
        unheld = all(p.saw < 0 for p in s.processes) and not any(p.dirty for p in s.file.pages)
        if unheld and s.file.errors:
            yield "the kernel forgets the file and its error", s._replace(file=File(clean))
        if s.mode == "run":
            yield from self.running(s)
        else:
            yield from self.opening(s)
        if left.kills and s.mode != "off":
            t = self.off(s._replace(left=left._replace(kills=left.kills - 1)))
            yield "everybody is killed", t
        if left.cuts:
            yield from self.power_cut(s)

    def off(self, s: State) -> State:
        file = s.file
        if s.fresh and not self.on["fresh_last"]:
            file = s.fresh
        return s._replace(mode="off", processes=DEAD, file=file, fresh=None)

    def power_cut(self, s: State) -> Iterator[Step[State]]:
        t = self.off(s._replace(left=s.left._replace(cuts=s.left.cuts - 1)))
        pages = t.file.pages
        for kept in product(*({page.disk, page.cache} if page.dirty else {page.disk} for page in pages)):
            file = File(tuple(Page(c, c) for c in kept))
            u = t._replace(file=file, word=False, sync_word=False, mark=False)
            self.judge(u, self.prefix(u, list(kept)))
            yield f"power cut, {[c.n if c else None for c in kept]} is left", u

    def running(self, s: State) -> Iterator[Step[State]]:
        left, tail = s.left, len(s.published)
        if left.puts and not s.word:
            commit = Commit(s.n + 1, s.published[-1], s.epochs[-1][0])
            page = s.file.pages[tail]._replace(cache=commit, dirty=True)
            t = s._replace(file=s.file._replace(pages=put(s.file.pages, tail, page)), n=s.n + 1)
            t = t._replace(published=(*s.published, commit.n), left=left._replace(puts=left.puts - 1))
            yield f"put {commit.n}", t
        for what, file, failures in self.outcomes(s.file, left.failures):
            if failures < left.failures:
                t = s._replace(file=file, left=left._replace(failures=failures))
                yield f"write-back behind everyone's back: {what}", t
        for p, me in enumerate(s.processes):
            if not me.alive:
                continue
            if left.deaths:
                t = s._replace(left=left._replace(deaths=left.deaths - 1))
                t = t._replace(processes=put(s.processes, p, Process(alive=False)))
                alive = any(q.alive for q in t.processes)
                yield f"process {p} is killed", t if alive else self.off(t)
            if me.late:
                t = s._replace(word=True, mark=True)
                yield f"process {p} sets `failed`", self.with_process(t, p, me._replace(late=False))
            yield from self.lead(s, p, me)

    @staticmethod
    def with_process(s: State, p: int, me: Process) -> State:
        return s._replace(processes=put(s.processes, p, me))

    def lead(self, s: State, p: int, me: Process) -> Iterator[Step[State]]:
        """One process's steps as the leader of a sync."""
        if me.step == "":
            free = not any(q.alive and q.step for q in s.processes)
            if not free or s.durable == len(s.published) or (s.word and self.on["sticky"]):
                return
            if s.sync_word and self.on["sync_word"]:
                t = s._replace(word=True, mark=self.on["mark_file"])
                yield f"process {p} finds the sync word of a dead leader: failed", t
                return
            saw = me.saw if me.saw >= 0 else self.sampled(s.file)
            t = s._replace(sync_word=self.on["sync_word"])
            me = me._replace(saw=saw, step="syncing", target=len(s.published))
            yield f"process {p} leads a sync to {me.target}", self.with_process(t, p, me)
        elif me.step == "syncing":
            yield from self.sync_ends(s, p, me)
        elif me.step == "told":
            t = s._replace(word=True)
            yield f"process {p} sets the word", self.with_process(t, p, me._replace(step="word"))
        elif me.step == "word":
            t = s._replace(mark=self.on["mark_file"])
            yield f"process {p} creates the file", self.with_process(t, p, me._replace(step="marked"))
        else:
            t = s._replace(sync_word=False)
            yield f"process {p} wakes the waiters", self.with_process(t, p, me._replace(step=""))

    def sync_ends(self, s: State, p: int, me: Process) -> Iterator[Step[State]]:
        for what, file, failures in self.outcomes(s.file, s.left.failures):
            t = s._replace(file=file, left=s.left._replace(failures=failures))
            if me.saw == file.errors:
                t = t._replace(sync_word=False, durable=max(s.durable, me.target))
                t = t._replace(acked=max(s.acked, t.durable))
                yield f"the sync of process {p} ends well", self.with_process(t, p, me._replace(step=""))
                continue
            t = t._replace(file=file._replace(told=True))
            me_told = me._replace(saw=file.errors, step="told")
            if not self.on["word_first"]:
                me_told = me_told._replace(step="", late=True)
                t = t._replace(sync_word=False)
            yield f"the sync of process {p} fails: {what}", self.with_process(t, p, me_told)

    # ---- open ----
    def opening(self, s: State) -> Iterator[Step[State]]:
        if s.mode == "off":
            yield from self.begin(s)
        elif s.mode == "accepted":
            yield from self.plain_sync(s)
        elif s.mode == "error":
            yield "the open creates `failed`", s._replace(mode="off", mark=True)
        elif s.mode == "marked":
            yield from self.copies(s)
        elif s.mode == "copied":
            assert s.fresh
            for what, file, failures in self.outcomes(s.fresh, s.left.failures):
                t = s._replace(left=s.left._replace(failures=failures))
                if file.errors:
                    yield f"the sync of the fresh file: {what}", t._replace(mode="off", fresh=None)
                else:
                    yield "the fresh file is synced", t._replace(fresh=file, mode="synced")
        elif s.mode == "synced":
            file = s.fresh or s.file
            taken = self.prefix(s, [page.cache for page in file.pages])[: s.durable]
            yield "the fresh file takes over, new epoch", self.named(s._replace(file=file, fresh=None), taken)
        elif s.mode == "named":
            yield "`failed` is removed; open", self.run(s._replace(mark=False))

    def begin(self, s: State) -> Iterator[Step[State]]:
        if s.mark or s.word or (s.sync_word and self.on["sync_word"]):
            t = s._replace(mode="marked", mark=s.mark or self.on["mark_file"])
            yield "the next open finds a failure, rebuilds control", t._replace(word=False, sync_word=False)
            return
        taken = self.prefix(s, [page.cache for page in s.file.pages])
        self.judge(s, taken)
        opener = Process(saw=self.sampled(s.file))
        t = s._replace(mode="accepted", published=taken, sync_word=self.on["sync_word"])
        yield f"the next open accepts {taken} from the cache", t._replace(processes=(opener, DEAD[1]))

    def plain_sync(self, s: State) -> Iterator[Step[State]]:
        for what, file, failures in self.outcomes(s.file, s.left.failures):
            t = s._replace(file=file, left=s.left._replace(failures=failures))
            if s.processes[0].saw == file.errors:
                yield "the open's sync ends well, new epoch", self.run(self.named(t, s.published))
            else:
                t = t._replace(file=file._replace(told=True), mode="error")
                yield f"the open's sync fails: {what}", t

    def copies(self, s: State) -> Iterator[Step[State]]:
        """Write back once more (a read past the cache does), then take what is there."""
        if not self.on["write_first"]:
            yield self.copy(s)
            return
        for what, file, failures in self.outcomes(s.file, s.left.failures):
            t = s._replace(file=file, left=s.left._replace(failures=failures))
            label, after = self.copy(t)
            yield f"{what}; {label}", after

    def copy(self, s: State) -> Step[State]:
        """Take the valid prefix; write it to a fresh file, or trust the old one."""
        source = [page.disk if self.on["read_disk"] else page.cache for page in s.file.pages]
        taken = self.prefix(s, source)
        self.judge(s, taken)
        if taken != s.published and s.left.failures == self.profiles[self.profile].failures:
            raise Violation(f"no write failed, {s.published} were visible, {taken} are left by a kill")
        t = s._replace(published=taken, durable=len(taken))
        if not self.on["remove_last"]:
            t = t._replace(mark=False)
        if not self.on["fresh_file"]:
            return f"the open accepts {taken}", t._replace(mode="synced")
        pages = [Page(None, c, True) if k < len(taken) else Page() for k, c in enumerate(source)]
        return f"the open writes {taken} to a fresh file", t._replace(fresh=File(tuple(pages)), mode="copied")

    @staticmethod
    def named(s: State, taken: tuple[int, ...]) -> State:
        cut = len(taken)
        epochs = tuple(x for x in s.epochs if x[1] < cut or x[0] == 1)
        epochs = (*epochs, (s.epochs[-1][0] + 1, cut))
        return s._replace(mode="named", epochs=epochs, published=taken, durable=cut)

    def run(self, s: State) -> State:
        return s._replace(
            mode="run",
            processes=self.attached(s.file),
            word=False,
            sync_word=False,
            acked=max(s.acked, s.durable),
        )
