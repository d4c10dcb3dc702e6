"""The byte tables of docs/format.md say what the compiled structures are, and no byte is left out."""

from __future__ import annotations

import pathlib
import re

import pytest

from rota._core import inspection

TEXT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "format.md"
LAYOUT = inspection.layout()

pytestmark = pytest.mark.tree


def documented() -> dict[str, tuple[int, list[tuple[str, int, int]]]]:
    """Read the tables: {structure: (size, [(field, offset, size)])}."""
    found: dict[str, tuple[int, list[tuple[str, int, int]]]] = {}
    structure = ""
    for line in TEXT.read_text().splitlines():
        if title := re.match(r"## .*: `(\w+)`, (\d+) bytes$", line):
            structure = title[1]
            found[structure] = (int(title[2]), [])
        elif line.startswith("## "):
            structure = ""
        elif structure and (row := re.match(r"\| (\d+) \| (\d+) \| `(\w+)` \| .+ \|$", line)):
            found[structure][1].append((row[3], int(row[1]), int(row[2])))
    return found


def test_the_document_says_what_was_compiled() -> None:
    assert documented() == LAYOUT


@pytest.mark.parametrize("structure", sorted(LAYOUT))
def test_every_byte_has_one_field(structure: str) -> None:
    size, fields = LAYOUT[structure]
    end = 0
    for name, offset, length in fields:
        assert offset == end, f"{name} does not follow the field before it"
        end = offset + length
    assert end == size


def test_headers_and_sectors_have_their_promised_sizes() -> None:
    sizes = {name: size for name, (size, _) in LAYOUT.items()}
    assert sizes["rota_manifest_sector"] == 512
    assert sizes["rota_commit_header"] % 32 == 0
    assert sizes["rota_op"] == sizes["rota_frame"] == 32
