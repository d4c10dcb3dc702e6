from collections.abc import Iterable

from rota._core.queue import Queue

def redrive_messages(queue: Queue, ids: Iterable[int], target: Queue | None) -> int: ...
