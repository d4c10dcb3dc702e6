from typing import SupportsIndex, final

from typing_extensions import Buffer

from rota._core.store import Store
from rota.repository import Repository

def check_rate(rate: float | None, burst: float | None) -> None: ...

@final
class Limiter:
    def __init__(
        self,
        store: Store,
        repository: Repository,
        name: str,
        file_name: bytes,
        rate: float | None,
        burst: float | None,
        capacity: int,
    ) -> None: ...
    @property
    def repository(self) -> Repository: ...
    @property
    def name(self) -> str: ...
    @property
    def rate(self) -> float: ...
    @property
    def burst(self) -> float: ...
    @property
    def capacity(self) -> int: ...
    def acquire(
        self, cost: float = 1.0, key: Buffer | str | SupportsIndex | None = None, timeout: float | None = None
    ) -> bool: ...
    async def acquire_async(
        self, cost: float = 1.0, key: Buffer | str | SupportsIndex | None = None, timeout: float | None = None
    ) -> bool: ...
    def reserve(self, cost: float = 1.0, key: Buffer | str | SupportsIndex | None = None) -> float: ...
    def level(self, key: Buffer | str | SupportsIndex | None = None) -> float: ...
    def configure(self, rate: float | None = None, burst: float | None = None) -> None: ...
