from rota._core.put import Receipt
from rota._core.store import Store
from rota.repository import Durability

def put_compressed(
    store: Store,
    queue: int,
    created: int,
    bodies: list[bytes],
    priority: int,
    deadline: float,
    durability: Durability | None,
) -> Receipt: ...
