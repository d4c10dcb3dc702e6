from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, final, overload

from typing_extensions import Buffer

from rota._core.batch import Batch
from rota._core.message import Message
from rota._core.pending import PendingReceipt
from rota._core.put import Receipt
from rota._core.queue import Queue
from rota._core.savepoint import Savepoint
from rota._core.store import Store
from rota.expressions import Expression
from rota.registration import Registration
from rota.repository import Durability, Repository

@final
class Transaction:
    def __init__(
        self,
        store: Store,
        repository: Repository,
        token: int | None = None,
        durability: Durability | None = None,
        timeout: float | None = None,
    ) -> None: ...
    @property
    def repository(self) -> Repository: ...
    @property
    def durability(self) -> str | None: ...
    @property
    def receipt(self) -> Receipt | None: ...
    def get(
        self,
        queue: Queue,
        timeout: float | None = 0,
        where: Expression | Callable[[Message], object] | None = None,
    ) -> Message: ...
    def get_many(self, queue: Queue, count: int, timeout: float | None = 0) -> Batch: ...
    def put(
        self,
        queue: Queue,
        body: Buffer,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str | int | float | bool] | None = None,
        priority: int = 0,
        delay: float = 0.0,
        ttl: float | None = None,
        dedup: bytes | str | None = None,
    ) -> PendingReceipt: ...
    def put_many(
        self,
        queue: Queue,
        bodies: Iterable[Buffer],
        keys: Iterable[bytes | str | None] | None = None,
        priority: int = 0,
    ) -> PendingReceipt: ...
    def put_encoded(
        self, queue: Queue, body: Buffer, attributes: bytes, priority: int = 0, flags: int = 0, answer: bool = False
    ) -> PendingReceipt: ...
    def ack(self, claimed: Message | Batch) -> None: ...
    def tag(
        self,
        registration: Registration,
        tag: bytes,
        of: PendingReceipt | Message | Literal[False] | None = None,
        expected_lsn: int = 0,
    ) -> None: ...
    def register(
        self, target: Queue | Registration, name: str | bytes | None = None, stable: bool = True
    ) -> Registration: ...
    def deregister(self, registration: Registration) -> None: ...
    @property
    def is_open(self) -> bool: ...
    @overload
    def kill(self, target: PendingReceipt, id: None = None) -> bool: ...
    @overload
    def kill(self, target: Queue, id: int) -> bool: ...
    def savepoint(self) -> Savepoint: ...
    def commit(self) -> None: ...
    def rollback(self, excused: bool = True) -> None: ...
    def begin(self) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
