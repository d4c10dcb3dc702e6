"""Sizes as people write them, and what a new repository takes from its capacity and its disk."""

from __future__ import annotations

import os
import re

__all__ = ["block_size", "parse_size", "segment_size_for"]

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SEGMENT_MIN, _SEGMENT_MAX = 64 << 10, 64 << 20
_SEGMENTS_MIN, _SEGMENTS_MAX = 12, 4096


def parse_size(text: int | str) -> int:
    """Bytes of "4 GiB", "64MiB", "1.5 GB", "4096" or a plain int.  Raises ValueError."""
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if not match or (match[3] and not match[2]):
        raise ValueError(f"{text!r} is no size: write 512 MiB, 4 GiB, 10 GB or a number of bytes")
    unit = (_BINARY if match[3] else _UNITS)[match[2].lower()]
    return int(float(match[1]) * unit)


def segment_size_for(capacity: int) -> int:
    """A power of two, about a 64th of the capacity, 64 KiB to 64 MiB (more for very large ones).  Raises ValueError."""
    size = _SEGMENT_MIN
    while size < _SEGMENT_MAX and size * 64 < capacity:
        size *= 2
    while capacity // size > _SEGMENTS_MAX:
        size *= 2
    if capacity // size < _SEGMENTS_MIN:
        raise ValueError(f"the capacity is at least {_SEGMENTS_MIN * _SEGMENT_MIN} bytes, not {capacity}")
    if size > 1 << 30:
        raise ValueError("the capacity is at most 4 TiB")
    return size


def block_size(path: str) -> int:
    """The physical block of the disk under `path`: a sync never shares one with acknowledged bytes."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "."
    device = os.stat(path).st_dev
    base = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"
    for name in (f"{base}/queue/physical_block_size", f"{base}/../queue/physical_block_size"):
        try:
            with open(name, encoding="ascii") as file:
                size = int(file.read())
        except (OSError, ValueError):
            continue
        if 512 <= size <= 65536 and size & (size - 1) == 0:
            return size
    return 4096
