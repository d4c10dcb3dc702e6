"""put_array against a copy of the same array into a mapped file whose pages are resident."""

from __future__ import annotations

import mmap

import numpy

import rota
from bench.measure import BODY_BYTES, Outcome, Row, Setting, compare, interleave, lapped, rest, scratch


class Mapping:
    """A file, written once and mapped: copies go through it from end to end and start again."""

    def __init__(self, path: str, size: int) -> None:
        with open(path, "w+b") as file:
            file.write(bytes(size))
            self.map = mmap.mmap(file.fileno(), size)
        self.view = numpy.frombuffer(self.map, numpy.uint8)
        self.view[:: mmap.PAGESIZE] = 1
        self.offset = 0

    def copy(self, source: numpy.ndarray, times: int) -> None:
        """Copy the array so often, each time to the next place."""
        for _ in range(times):
            if self.offset + source.size > self.view.size:
                self.offset = 0
            self.view[self.offset : self.offset + source.size] = source
            self.offset += source.size

    def close(self) -> None:
        del self.view
        self.map.close()


def put_rows(queue: rota.Queue, rows: numpy.ndarray, times: int) -> None:
    for _ in range(times):
        queue.put_array(rows)


def put_array(setting: Setting) -> Outcome:
    """Rows of 100 bytes, 1000 at a time."""
    count, times = setting.pick(1000, 50), setting.pick(5, 2)
    rows = numpy.frombuffer(bytes(range(256)) * (count * BODY_BYTES // 256 + 1), numpy.uint8)[: count * BODY_BYTES]
    rows = rows.reshape(count, BODY_BYTES).copy()
    flat = rows.reshape(-1)
    with lapped(setting) as (repo, queue, reused), scratch(setting) as path:
        mapping = Mapping(str(path / "mapped"), setting.pick(64 << 20, 1 << 20))
        try:
            seconds = interleave(
                setting.rounds,
                {"copy": lambda: mapping.copy(flat, times), "put_array": lambda: put_rows(queue, rows, times)},
                lambda: rest(repo, queue),
            )
        finally:
            mapping.close()
    return compare(seconds, "copy", "put_array", count * times, reused)


ROWS = (
    Row("put_array", "put_array of rows of 100 bytes, against memcpy into a mapped file", 0.4, "x", True, put_array),
)
