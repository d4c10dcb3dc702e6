from collections.abc import Mapping, Sequence

from typing_extensions import Buffer

from rota._core.message import Message
from rota._core.put import Receipt
from rota._core.queue import Queue
from rota._core.store import Store
from rota.repository import Durability

def registration_state(queue: Queue, name: bytes) -> tuple[int, int, bytes, int, bool, int] | None: ...
def list_registrations(store: Store, queue: int) -> list[tuple[int, bytes, int, bool, int]]: ...
def write_registrations(
    store: Store, entries: Sequence[tuple[int, int, int, int, int, bytes]], durability: Durability | None = None
) -> int: ...
def put_tagged(
    queue: Queue,
    extra: bytes,
    epoch: int,
    lsn: int,
    body: Buffer,
    key: bytes | str | None,
    headers: Mapping[str, bytes | str | int | float | bool] | None,
    priority: int,
    delay: float,
    ttl: float | None,
    timeout: float | None,
    durability: Durability | None,
) -> Receipt: ...
def settle_tagged(
    message: Message, queue: int, extra: bytes, epoch: int, lsn: int, durability: Durability | None
) -> None: ...
