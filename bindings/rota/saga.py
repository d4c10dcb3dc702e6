"""Sagas: requests of several transactions, of which all happen, or what happened is undone.

What holds:

1. Each step is one commit: its message is settled, what it put is added, what undoes it is kept, the next one follows.
2. A step that fails for good, or a cancel, turns the saga: the undos of its finished steps run, the last one first,
   each in a commit of its own, each effective once, and each tried until it succeeds.
3. A saga ends as done, failed or cancelled, and answers the request that started it in the commit that ends it.

    running ──> running ──> ... ──> done
       │ a step failed, cancel()
       v
    compensating ──> compensating ──> ... ──> failed, cancelled

Garcia-Molina and Salem, "Sagas", SIGMOD 1987; Bernstein, Hsu and Mann, "Implementing Recoverable Requests Using
Queues", SIGMOD 1990.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from rota._saga_handlers import Begin, Failed, Forward, SagaStep, StepFunction, Undo, id_of_request, start
from rota._saga_records import ENDED, STEPS_MAX, Book, Record, SagaState, go_back, identities, look, prepared, result_of
from rota.errors import Conflict, NotFound, StateError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from rota.repository import Durability, Repository
    from rota.server import Backoff, Server

__all__ = ["Saga", "SagaPlan", "SagaState", "SagaStep"]

_F = TypeVar("_F", bound=StepFunction)
_NAME = re.compile(r"[\w-]{1,60}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Saga:
    """What the log knew of a saga when it was asked; ask again for what it knows now.

    `id` and `plan` say which it is, `state` is a SagaState, `step` the step that is under way, or was last.  `error`
    says why it is undone or was, None otherwise; `message` is the id of the message by which it goes on, 0: it ended.
    """

    id: str
    plan: str
    state: SagaState
    step: str
    error: str | None
    message: int
    _repository: Repository = field(repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do."""
        return self.state in ENDED

    @property
    def result(self) -> bytes | None:
        """What its last step returned; None unless it is done."""
        book = look(self._repository, self.id)
        message = None if book is None else result_of(book)
        return None if message is None else message.body

    def cancel(self) -> bool:
        """Undo what it did: whether it will end as cancelled.  Durable when it returns.

        The step that is under way is killed in the commit that turns the saga: whoever works on it is told by Killed.
        A step that ends at the same moment either comes first, and is undone, or does not happen.  False: too late, it
        is done, or it is undone for another reason.  Raises NotFound when it was forgotten.
        """
        while True:
            book, record = _known(self._repository, self.id)
            if record.state != "running":
                self._repository.sync()
                return record.cause == "cancelled"
            try:
                with self._repository.transaction(durability="sync") as transaction:
                    with contextlib.suppress(NotFound):  # killed alone, long ago: then this is the only way on
                        transaction.kill(self._repository.queue(record.queue), book.message)
                    go_back(transaction, book, "cancelled", "cancelled")
                return True
            except Conflict:  # it went on meanwhile: look again
                continue

    def forget(self) -> None:
        """Forget a saga that has ended, and its result; a second call does nothing.  Raises StateError until then."""
        book = look(self._repository, self.id)
        if book is None:
            return
        if book.record is not None and book.record.state not in ENDED:
            raise StateError(f"saga {self.id!r} is {book.record.state}: it can be forgotten when it has ended",
                             path=self._repository.path)  # fmt: skip
        with self._repository.transaction() as transaction:
            left = result_of(book)
            if left is not None:
                transaction.kill(book.queue, left.id)
            transaction.deregister(book.registration)


@dataclass(frozen=True)
class _Planned:
    name: str
    function: StepFunction
    undo: StepFunction | None


class SagaPlan:
    """The steps of a kind of saga, and what undoes each: made once, in a module, beside the functions.

    `name` is that of the queue whose requests start it; 1 to 60 letters, digits, "_" and "-", as the names of steps.  A
    step is tried `max_attempts` times.  `keep=False` forgets a saga in the commit that ends it.
    """

    def __init__(self, name: str, *, max_attempts: int = 5, keep: bool = True) -> None:
        _check_name("plan", name)
        if not 1 <= max_attempts <= 1000:
            raise ValueError(f"max_attempts is 1 to 1000, not {max_attempts!r}")
        self.name = name
        self.max_attempts = max_attempts
        self.keep = keep
        self._steps: list[_Planned] = []

    def step(self, name: str, undo: StepFunction | None = None) -> Callable[[_F], _F]:
        """A decorator: the function is the next step, `undo` undoes it; both are called with a SagaStep.

        What the step returns is the body of the next one, and the last one's the result; None: the body as it was.
        rota.Refused ends the attempts at once.  Without an undo there is nothing to undo; nor is the undo of the last
        step ever called, since after it the saga is done.  Raises ValueError.
        """
        _check_name("step", name)
        if name in {each.name for each in self._steps} | {"failed", "stuck"}:
            raise ValueError(f"the plan {self.name!r} has {name!r} already")
        if len(self._steps) == STEPS_MAX:
            raise ValueError(f"a saga has at most {STEPS_MAX} steps")

        def add(function: _F) -> _F:
            self._steps.append(_Planned(name, function, undo))
            return function

        return add

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the steps, in their order."""
        return tuple(each.name for each in self._steps)

    def _first(self) -> Record:
        if not self._steps:
            raise StateError(f"the plan {self.name!r} has no steps: give it some by step()")
        first = self._steps[0].name
        return Record(self.name, "running", first, f"{self.name}.{first}", 0, self.keep)

    def _prepare(self, repository: Repository) -> None:
        """Make the queues that there are not."""
        there = set(repository.queues())

        def need(name: str, max_attempts: int | None, **more: str) -> None:
            if name not in there:
                repository.queue(name, max_attempts=max_attempts, **more)  # type: ignore[arg-type]

        need(self.name, 5)
        for each in self._steps:
            need(f"{self.name}.{each.name}", self.max_attempts, error_queue=f"{self.name}.failed")
            if each.undo is not None:
                need(f"{self.name}.{each.name}.undo", None)
        need(f"{self.name}.stuck", None)

    def start(self, repository: Repository, body: Buffer, id: str, durability: Durability | None = None) -> Saga:
        """Start a saga of that id, 1 to 255 bytes; when there is one of that id, that one, whatever the body.

        Without this, any request that a clerk sends to the queue `name` starts one, under the id that id_of() tells,
        and gets the result as its reply.  Raises Full, ValueError.
        """
        first = self._first()
        self._prepare(repository)
        while True:
            book = prepared(repository, id)
            if book.record is not None:
                repository.sync_seen()
                break
            try:
                with repository.transaction(durability=durability) as transaction:
                    start(transaction, book, first, bytes(body))
                break
            except Conflict:  # another one started it
                continue
        return repository.saga(id)

    @staticmethod
    def id_of(client: str | bytes, rid: bytes) -> str:
        """The id of the saga that a clerk's request starts."""
        return id_of_request(client.encode("utf-8", "surrogateescape") if isinstance(client, str) else client, rid)

    def server(
        self,
        repository: Repository,
        *,
        steps: Collection[str] | None = None,
        threads: int = 1,
        processes: int = 0,
        backoff: Backoff | None = None,
        grace: float = 30.0,
        durability: Durability | None = None,
    ) -> Server:
        """A Server of these steps (None: all) and their undos; each also begins sagas and sees to failed steps.

        Options as in repo.server().  Undos are tried without end, with that back-off; one that failed five times is
        told in the queue "<name>.stuck".  Raises ValueError, StateError.
        """
        first = self._first()
        unknown = set(steps or ()) - set(self.steps)
        if unknown:
            raise ValueError(f"the plan {self.name!r} has no step {', '.join(map(repr, sorted(unknown)))}")
        self._prepare(repository)
        server = repository.server(
            threads=threads, processes=processes, backoff=backoff, grace=grace, durability=durability
        )
        server.handle(self.name)(Begin(first))
        server.handle(f"{self.name}.failed")(Failed())
        for queue, handler in self._handlers(self.steps if steps is None else steps):
            server.handle(queue)(handler)
        return server

    def _handlers(self, wanted: Collection[str]) -> Iterable[tuple[str, Forward | Undo]]:
        following = [*self.steps[1:], None]
        for number, (each, after) in enumerate(zip(self._steps, following, strict=True)):
            if each.name not in wanted:
                continue
            queue = f"{self.name}.{each.name}"
            undo_queue = None if each.undo is None else f"{queue}.undo"
            yield queue, Forward(number, each.name, each.function, self.max_attempts, undo_queue, after)
            if each.undo is not None:
                yield f"{queue}.undo", Undo(each.name, each.undo, f"{self.name}.stuck")

    def __repr__(self) -> str:
        return f"<rota.SagaPlan {self.name!r}: {', '.join(self.steps) or 'no steps'}>"


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"the name of a {what} has 1 to 60 letters, digits, '_' and '-', not {name!r}")


def _known(repository: Repository, identity: str) -> tuple[Book, Record]:
    book = look(repository, identity)
    if book is None or book.record is None:
        raise NotFound(f"there is no saga {identity!r}", path=repository.path)
    return book, book.record


def saga(self: Repository, id: str) -> Saga:
    """The saga of that id, as it is now.  Raises NotFound."""
    book, record = _known(self, id)
    return Saga(id, record.plan, record.state, record.step, record.error, 0 if not record.queue else book.message, self)


def sagas(self: Repository) -> list[Saga]:
    """All sagas that were not forgotten, by id."""
    found = []
    for identity in identities(self):
        book = look(self, identity)
        if book is not None and book.record is not None:
            found.append(saga(self, identity))
    return found
