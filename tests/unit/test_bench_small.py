"""Every row of the benchmarks runs at its small size and hands back a figure; no time is judged here."""

from __future__ import annotations

import json
import math
import pathlib

import pytest

from bench.__main__ import as_json, table
from bench.measure import Row, Setting
from bench.rows import ROWS

pytestmark = pytest.mark.tree


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_each_row_runs(row: Row, directory: pathlib.Path) -> None:
    outcome = row.measure(Setting(directory, small=True, rounds=1))
    if outcome.got is None:
        pytest.skip(outcome.detail["reason"])
    assert math.isfinite(outcome.got)
    assert [line["got"] for line in json.loads(as_json({}, [(row, outcome)]))["rows"]] == [outcome.got]
    assert table([(row, outcome)]).row_count == 1
    assert list(directory.glob("bench-*")) == []


def test_rows_have_names_of_their_own() -> None:
    assert len({row.key for row in ROWS}) == len(ROWS)
