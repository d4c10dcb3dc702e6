from typing import Any

from typing_extensions import Buffer

from rota._core.put import Receipt
from rota._core.queue import Queue

def put_once(
    queue: Queue,
    body: Buffer,
    given: tuple[Any, ...],
    timeout: float | None,
    durability: str | None,
    dedup: bytes | str,
) -> Receipt: ...
def forget_key(queue: Queue, dedup: bytes | str, durability: str | None = None) -> bool: ...
