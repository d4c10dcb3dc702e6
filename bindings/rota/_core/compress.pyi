from rota._core.put import Receipt
from rota._core.store import Store

def put_compressed(
    store: Store, queue: int, created: int, bodies: list[bytes], priority: int, deadline: float, durability: str | None
) -> Receipt: ...
