from collections.abc import Callable, Mapping

from rota._core.message import Message
from rota._core.queue import Queue
from rota.expressions import Expression, Value

def find_messages(
    queue: Queue,
    key: bytes | str | None,
    header: Mapping[str, Value] | None,
    where: Expression | Callable[[Message], object] | None,
    limit: int,
) -> list[Message]: ...
def get_where(queue: Queue, where: Expression | Callable[[Message], object], timeout: float | None) -> Message: ...
