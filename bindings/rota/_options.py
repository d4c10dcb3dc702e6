"""The options of a queue: what they are when left out, and which are impossible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

__all__ = ["DEFAULTS", "ChangeableOptions", "QueueOptions", "check_options"]


class ChangeableOptions(TypedDict, total=False):
    """What configure() takes: counts of messages and attempts (None: no bound), seconds of a lease, the order."""

    max_messages: int | None
    max_attempts: int | None
    lease: float
    order: Literal["skip", "group", "strict", "highest"]


class QueueOptions(ChangeableOptions, total=False):
    """What repo.queue() takes: besides, what is fixed when the queue is made."""

    error_queue: str | None
    volatile: bool
    indexes: Sequence[str]
    by: str | None
    age_rate: float
    dedup_window: float | None
    dedup_count: int | None


DEFAULTS: dict[str, Any] = {
    "max_messages": None,
    "max_attempts": 5,
    "error_queue": None,
    "lease": 30.0,
    "order": "skip",
    "volatile": False,
    "indexes": (),
    "by": None,
    "age_rate": 0.0,
    "dedup_window": None,
    "dedup_count": None,
}


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise ValueError for options that no queue can have."""
    length = len(name.encode("utf-8", "surrogateescape"))
    if not 0 < length <= 255:
        raise ValueError(f"the name of a queue has 1 to 255 bytes, not {length}")
    if options["order"] not in ("skip", "strict", "group", "highest"):
        raise ValueError(f"order is 'skip', 'strict', 'group' or 'highest', not {options['order']!r}")
    if (options["by"] is not None) != (options["order"] == "highest"):
        raise ValueError("order='highest' needs by=, the header with the number, and no other order takes it")
    if not 0 <= options["age_rate"] < 1e9 or (options["age_rate"] and options["by"] is None):
        raise ValueError(f"age_rate is 0 or more a second, with order='highest', not {options['age_rate']!r}")
    for option in ("max_messages", "max_attempts"):
        if options[option] is not None and not 1 <= options[option] < 1 << 31:
            raise ValueError(f"{option} is None or at least 1, not {options[option]!r}")
    if options["dedup_window"] is not None and not 1e-9 <= options["dedup_window"] < 3e9:
        raise ValueError(f"dedup_window is None or above 0 seconds, not {options['dedup_window']!r}")
    if options["dedup_count"] is not None and not 1 <= options["dedup_count"] < 1 << 31:
        raise ValueError(f"dedup_count is None or at least 1, not {options['dedup_count']!r}")
    if options["volatile"] and (options["dedup_window"] is not None or options["dedup_count"] is not None):
        raise ValueError("a volatile queue loses its messages and so can promise nothing of what was put before")
    if not 0 < options["lease"] < 3e9:
        raise ValueError(f"lease is above 0 seconds, not {options['lease']!r}")
    if options["error_queue"] is not None and options["max_attempts"] is None:
        raise ValueError("an error queue needs max_attempts: without a bound nothing ever moves there")
    if options["error_queue"] == name:
        raise ValueError(f"{name!r} cannot be its own error queue")
