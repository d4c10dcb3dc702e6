"""rota: an embedded, durable queue engine.  A repository is a directory; open it and put.

    import rota

    with rota.open("var/requests") as repo:
        orders = repo.queue("orders")
        orders.put(b"two tickets, row 7")
        with orders.get() as message:
            print(message.body)

Layers: `rota._core` (compiled: the log and what owns it) under the modules of this package.  Linux only for now.
"""

from __future__ import annotations

from rota._core import finding as _finding  # noqa: F401  (puts itself behind find() and get(where=))
from rota._core.batch import Batch
from rota._core.coordinator import Coordinator, Guard
from rota._core.limiter import Limiter
from rota._core.lot import CachedReceipt
from rota._core.message import Message
from rota._core.pending import PendingReceipt
from rota._core.put import Receipt
from rota._core.queue import Queue
from rota._core.repeats import RepeatProfile
from rota._core.savepoint import Savepoint
from rota._core.transaction import Transaction
from rota.backends.local import LocalElector
from rota.clerk import Clerk, ClerkState, Device, Reply, ReplyStatus, Session
from rota.coordination import Action, Turn
from rota.errors import (
    ClosedError,
    Conflict,
    Corrupt,
    DiskFull,
    Empty,
    Fenced,
    FileSystemRefused,
    ForeignFiles,
    ForkedHandleError,
    Full,
    InUse,
    Killed,
    LeaseLost,
    LockHeld,
    LogFailed,
    MessageTooLarge,
    Misuse,
    NotARepository,
    NotFound,
    OpenError,
    OptionMismatch,
    OutcomeUnknown,
    QueueStopped,
    ReadOnlyError,
    RotaError,
    StaleClerk,
    StaleLeader,
    StateError,
    SystemCallError,
    TransactionTooLarge,
    VersionMismatch,
)
from rota.expressions import Expression, Field, header, key
from rota.leaders import Elector, LeaderCareer, Leadership, lead
from rota.outside import SqlMemory
from rota.producer import Producer
from rota.registration import LastOperation, Registration
from rota.repository import Durability, Repository, open
from rota.saga import Saga, SagaPlan, SagaState, SagaStep
from rota.server import Backoff, NotNow, Refused, Server
from rota.statistics import (
    CoordinatorStatistics,
    ProducerStatistics,
    QueueStatistics,
    Recovery,
    RepeatShares,
    RepositoryStatistics,
)

# What a program uses, then the figures, then the errors.
__all__ = [
    "Backoff", "Batch", "CachedReceipt", "Clerk", "ClerkState", "Device", "Durability", "Expression", "Field",
    "LastOperation", "Message", "NotNow", "PendingReceipt", "Producer", "Queue", "Receipt", "Refused", "Registration",
    "Reply", "ReplyStatus", "Repository", "Savepoint", "Server", "Session", "Transaction", "header", "key", "open",
    "Action", "Coordinator", "Guard", "Limiter", "RepeatProfile", "Turn",
    "Elector", "LeaderCareer", "Leadership", "LocalElector", "lead",
    "Saga", "SagaPlan", "SagaState", "SagaStep", "SqlMemory",
    "CoordinatorStatistics", "ProducerStatistics", "QueueStatistics", "Recovery", "RepeatShares",
    "RepositoryStatistics",
    "ClosedError", "Conflict", "Corrupt", "DiskFull", "Empty", "Fenced", "FileSystemRefused", "ForeignFiles",
    "ForkedHandleError", "Full", "InUse", "Killed", "LeaseLost", "LockHeld", "LogFailed", "MessageTooLarge",
    "Misuse", "NotARepository", "NotFound", "OpenError", "OptionMismatch", "OutcomeUnknown", "QueueStopped",
    "ReadOnlyError", "RotaError", "StaleClerk", "StaleLeader", "StateError", "SystemCallError",
    "TransactionTooLarge", "VersionMismatch",
]  # fmt: skip

__version__ = "0.1.0"
