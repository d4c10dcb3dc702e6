import os
from typing import final

@final
class Builder:
    def __new__(
        cls,
        path: str | os.PathLike[str],
        uuid: bytes,
        salt: int,
        segment_size: int,
        capacity: int,
        sync_unit: int,
        compression: int,
        created_at_ns: int,
    ) -> Builder: ...
    def segment(self, file: int, first_lsn: int) -> bytes: ...
    def seal(self, commit: bytearray) -> tuple[bytes, int]: ...
    def terms(self, definitions: bytes, order: int, attributes: bytes) -> bytes: ...
    def finish(self, next_id: int, capacity: int) -> None: ...
