"""The rows of the table, in its order.  Each takes a Setting and returns an Outcome."""

from __future__ import annotations

from bench.measure import Row
from bench.rows import array, depth, finding, flow, opening, processes, recovery, requests, single, syncing

ROWS: tuple[Row, ...] = (
    *single.ROWS,
    *array.ROWS,
    *syncing.ROWS,
    *processes.ROWS,
    *recovery.ROWS,
    *depth.ROWS,
    *requests.ROWS,
    *finding.ROWS,
    *opening.ROWS,
    *flow.ROWS,
)
