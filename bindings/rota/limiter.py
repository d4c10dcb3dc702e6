"""Limiters of a repository: one file each, made by the first who gives a rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota._core.limiter import Limiter, check_rate
from rota.errors import OptionMismatch

if TYPE_CHECKING:
    from rota.repository import Repository

__all__ = ["limiter"]

_BURST_S = 0.05
_CAPACITY_MAX = 1 << 27


def limiter(
    self: Repository, name: str, rate: float | None = None, burst: float | None = None, capacity: int = 4096
) -> Limiter:
    """Give the limiter of that name, made when there is none: how often something may begin, in all processes.

    `rate` is how many a second (or how much cost), `burst` how much may come at once after a pause; None: what 50 ms
    bring, at least 1.  `capacity` is how many keys may be in use at a time, each with a bucket of its own, at 48 bytes
    a key.  All are kept across restarts: left out they take the stored values, and a rate or burst that differs raises
    OptionMismatch; `limiter.configure()` changes them.  `capacity` counts when the limiter is made.

    Raises NotFound without a rate when there is none; ValueError for an impossible option; Corrupt, DiskFull,
    ClosedError, ReadOnlyError.
    """
    check_rate(rate, burst)
    if not 1 <= capacity <= _CAPACITY_MAX:
        raise ValueError(f"capacity is 1 to {_CAPACITY_MAX} keys, not {capacity!r}")
    first_burst = max(1.0, rate * _BURST_S) if burst is None and rate is not None else burst
    found = Limiter(self._store, self, name, _file_name(name), rate, first_burst, capacity)
    for option, value, stored in (("rate", rate, found.rate), ("burst", burst, found.burst)):
        if value is not None and abs(value - stored) > 1e-9 * stored:
            raise OptionMismatch(
                f"the limiter {name!r} has {option}={stored!r}, not {value!r}: use configure()", path=self.path
            )
    return found


def _file_name(name: str) -> bytes:
    """Return a name that every file system takes, whatever bytes the limiter's has."""
    import hashlib

    return b"limiter." + hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32].encode()
