from collections.abc import Mapping
from typing import Final, Literal

from typing_extensions import Buffer

from rota._core.message import Message
from rota._core.put import Receipt
from rota._core.queue import Queue
from rota.repository import Repository

STATUSES: Final[tuple[str, ...]]

def encode_request(
    client: Buffer,
    rid: Buffer,
    reply_to: Queue | None = None,
    key: bytes | str | None = None,
    headers: Mapping[str, bytes | str | int | float | bool] | None = None,
    due_ns: int = 0,
    expiry_ns: int = 0,
) -> bytes: ...
def encode_reply(
    client: Buffer,
    rid: Buffer,
    status: Literal["ok", "failed", "cancelled", "expired"] = "ok",
    error: str | None = None,
    headers: Mapping[str, bytes | str | int | float | bool] | None = None,
) -> bytes: ...
def attributes_in(message: Message) -> dict[int, bytes]: ...
def carried_by(message: Message) -> tuple[bytes, bytes, tuple[int, int] | None] | None: ...
def waiting_for(message: Message, repository: Repository) -> tuple[Queue, bytes, bytes] | None: ...
def reply_of(
    message: Message,
) -> tuple[bytes, bytes, Literal["ok", "failed", "cancelled", "expired"], str | None] | None: ...
def receipt_of(queue: Queue, id: int, lsn: int) -> Receipt: ...
