"""The record of a saga, and the commits that change it.

What holds:

1. The record is the tag of a registration at the queue rota.sagas, whose name is the saga's id.  Each change is a
   compare-and-set that also names the message by which the saga goes on: its current message.
2. Whoever settles the current message changes the record in the same commit, and who does not hold that message can
   change the record only by killing it.  So of a step and a cancel at the same moment one happens.
3. The turn rises with each change; a message of an earlier turn is ignored, however it came back.
4. What a step wants undone is a message of rota.sagas from the commit of that step on.  Going back moves the last one
   to its queue, one at a time; the end removes what is left.  Nobody needs the plan for that.

Garcia-Molina and Salem, "Sagas", SIGMOD 1987; Bernstein, Hsu and Mann, "Implementing Recoverable Requests Using
Queues", SIGMOD 1990.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from rota._core import request as _request
from rota._core import tagged as _tagged
from rota.errors import Corrupt
from rota.registration import Registration, decoded, encoded

if TYPE_CHECKING:
    from rota._core.message import Message
    from rota._core.pending import PendingReceipt
    from rota._core.queue import Queue
    from rota._core.transaction import Transaction
    from rota.repository import Repository

SagaState: TypeAlias = Literal["running", "compensating", "done", "failed", "cancelled"]
SAGAS, LOCKS = "rota.sagas", "rota.locks"
LOCK = "rota.lock"
SAGA, TURN, STEP, UNDO, RESULT = "rota.saga", "rota.turn", "rota.step", "rota.undo", "rota.result"
STEPS_MAX = 64
LOCKS_MAX = 100  # with the steps as many operations as the commit of the end takes
ENDED = ("done", "failed", "cancelled")
_ERROR_CHARACTERS_MAX = 300
_VERSION = 1
_ENTRIES_MAX = 1000


class Record(NamedTuple):
    """What the log knows of a saga: where it is (`step` by name, `queue` of its current message), and why it failed."""

    plan: str
    state: SagaState
    step: str
    queue: str
    turn: int
    keep: bool = True
    cause: Literal["failed", "cancelled"] | None = None
    error: str | None = None
    reply: tuple[str, str, str] | None = None  # queue, client and rid in hexadecimal

    def encode(self) -> bytes:
        """The tag."""
        return json.dumps([_VERSION, *self], ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class Book(NamedTuple):
    """The record as it was at one moment; `message` is the id of the current message, 0 when there is none."""

    registration: Registration
    lsn: int
    record: Record | None
    message: int

    @property
    def queue(self) -> Queue:
        """The queue rota.sagas."""
        return self.registration.queue

    @property
    def key(self) -> bytes:
        """The id as the key of what belongs to the saga."""
        return self.registration.key[1]


def sagas_queue(repository: Repository) -> Queue:
    """The queue of the records, made when there is none."""
    return repository.queue(SAGAS, max_attempts=None, indexes=("key",))


def look(repository: Repository, identity: str) -> Book | None:
    """The record of a saga; None: there is no registration.  Raises Corrupt for a tag that is no record."""
    queue = sagas_queue(repository)
    state = _tagged.registration_state(queue, encoded(identity))
    if state is None:
        return None
    kind, message, tag, epoch, _, lsn = state
    registration = Registration(queue, identity, True, epoch)
    if not kind:
        return Book(registration, lsn, None, 0)
    try:
        version, *fields = json.loads(tag)
        if version != _VERSION:
            raise ValueError(f"version {version}")
        *fields, reply = fields
        record = Record(*fields)._replace(reply=None if reply is None else (reply[0], reply[1], reply[2]))
    except (ValueError, TypeError) as error:
        raise Corrupt(
            f"the registration of saga {identity!r} holds no record of this version: {error}", path=repository.path
        ) from error
    return Book(registration, lsn, record, message)


def prepared(repository: Repository, identity: str) -> Book:
    """The record of a saga that is to start, registered: so that of two starts one is refused."""
    while True:
        sagas_queue(repository).register(identity)
        book = look(repository, identity)
        if book is not None:  # else somebody forgot it at this moment
            return book


def identities(repository: Repository) -> list[str]:
    """Ids of all sagas, those that were only prepared too."""
    numbers = _tagged.list_registrations(repository._store, sagas_queue(repository).number_)
    found = (decoded(name) for _, name, *_ in sorted(numbers))
    return [each for each in found if isinstance(each, str)]


def entries_of(book: Book) -> list[Message]:
    """What is to be undone, the last step first."""
    found = [each for each in book.queue.find(key=book.key, limit=_ENTRIES_MAX) if STEP in each.headers]
    return sorted(found, key=lambda each: int(each.headers[STEP]), reverse=True)


def result_of(book: Book) -> Message | None:
    """The message that has what the last step returned."""
    return next((each for each in book.queue.find(key=book.key, limit=_ENTRIES_MAX) if RESULT in each.headers), None)


def go_to(transaction: Transaction, book: Book, record: Record, body: bytes) -> None:
    """Put the message by which it goes on, at `record.queue`, and write the record."""
    queue = book.registration.repository.queue(record.queue)
    record = record._replace(turn=(0 if book.record is None else book.record.turn) + 1)
    put = transaction.put(queue, body, book.key, {SAGA: str(book.registration.name), TURN: record.turn})
    _write(transaction, book, record, put)


def note_undo(transaction: Transaction, book: Book, number: int, queue: str, body: bytes) -> None:
    """Keep what undoes a step, from the commit of that step on."""
    transaction.put(book.queue, body, book.key, {STEP: number, UNDO: queue})


def go_back(transaction: Transaction, book: Book, cause: Literal["failed", "cancelled"], error: str) -> None:
    """Undo the last step that is not undone, or end when there is none."""
    assert book.record is not None
    record = book.record
    if record.cause is None:  # the first time: the reason stays what it was
        record = record._replace(state="compensating", cause=cause, error=error[:_ERROR_CHARACTERS_MAX])
    entries = entries_of(book)
    if not entries:
        end(transaction, book, record, b"")
        return
    last = entries[0]
    transaction.kill(book.queue, last.id)
    queue = str(last.headers[UNDO])
    step = queue.removeprefix(f"{record.plan}.").removesuffix(".undo")
    go_to(transaction, book, record._replace(queue=queue, step=step), last.body)


def end(transaction: Transaction, book: Book, record: Record, body: bytes) -> None:
    """Nothing is left to do: answer, and keep what came out of it."""
    repository = book.registration.repository
    # What was to be undone, the locks, the result of an earlier saga of that id.
    for entry in book.queue.find(key=book.key, limit=_ENTRIES_MAX):
        transaction.kill(book.queue, entry.id)
        if LOCK in entry.headers:
            _free(transaction, str(entry.headers[LOCK]))
    if record.reply is not None and record.reply[0] in repository.queues():
        replies, client, rid = repository.queue(record.reply[0]), *map(bytes.fromhex, record.reply[1:])
        attributes = _request.encode_reply(client, rid, record.cause or "ok", record.error)
        transaction.put_encoded(replies, body, attributes, answer=True)
    if not record.keep:
        transaction.deregister(book.registration)
        return
    if record.cause is None:
        transaction.put(book.queue, body, book.key, {RESULT: True})
    _write(transaction, book, record._replace(state=record.cause or "done", turn=record.turn + 1, queue=""), None)


def locks_of(repository: Repository, identity: str) -> set[str]:
    """Names of the locks that the committed steps of a saga took."""
    entries = sagas_queue(repository).find(key=identity.encode(), limit=_ENTRIES_MAX)
    return {str(entry.headers[LOCK]) for entry in entries if LOCK in entry.headers}


def take_lock(transaction: Transaction, identity: str, name: str, is_kept: bool = True) -> bool:
    """Whether the commit will take the lock, or the saga has it: False while another one has it.

    The holder is the tag of a registration at rota.locks; of two that saw it free one commit is refused.  A message of
    the saga says that it has the lock, so that the end frees it, wherever it ends.  What the last step locks is not
    kept: its commit is the end, and only refused when another one took the lock meanwhile.
    """
    registration = transaction.repository.queue(LOCKS, max_attempts=None).register(name)
    lsn, last = registration.lsn, registration.last
    if last is not None and last.tag:
        return last.tag == identity.encode()
    transaction.tag(registration, identity.encode() if is_kept else b"", False, expected_lsn=lsn)
    if is_kept:
        transaction.put(sagas_queue(transaction.repository), b"", identity.encode(), {LOCK: name})
    return True


def _free(transaction: Transaction, name: str) -> None:
    transaction.tag(transaction.repository.queue(LOCKS).register(name), b"", False)


def _write(transaction: Transaction, book: Book, record: Record, put: PendingReceipt | None) -> None:
    transaction.tag(book.registration, record.encode(), False if put is None else put, expected_lsn=book.lsn)
