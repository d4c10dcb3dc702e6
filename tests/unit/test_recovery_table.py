"""The recovery table: what can be found matches exactly one row, and the text shows the same table."""

from __future__ import annotations

import pathlib

import pytest

from rota._core import inspection

TEXT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "format.md"
ROWS = inspection.recovery_table()
NOTHING, CLOSE, REST, PROOF, CHECKPOINT, EPOCH, REACHED = (1 << bit for bit in range(7))
NAMES = {1: "nothing", 2: "close", 4: "rest", 8: "proof", 16: "checkpoint", 32: "epoch", 64: "reached"}
GO_ON, JUMP, REFUSE = range(3)
ACTIONS = ("go on, ids go on", "go on, ids jump", "refuse")

pytestmark = pytest.mark.tree


def matching(found: int) -> list[int]:
    return [number for number, _, _, needs, excludes, _ in ROWS if found & needs == needs and not found & excludes]


@pytest.mark.parametrize("found", range(128))
def test_exactly_one_row_matches(found: int) -> None:
    assert matching(found) == [inspection.recovery_case(found)]


@pytest.mark.parametrize("found", range(128))
def test_a_proof_above_the_end_is_never_cut(found: int) -> None:
    action = ROWS[inspection.recovery_case(found) - 1][5]
    assert (action == REFUSE) == bool(found & (PROOF | CHECKPOINT | EPOCH | REACHED))


@pytest.mark.parametrize("found", range(128))
def test_ids_go_on_only_where_nothing_can_have_followed(found: int) -> None:
    action = ROWS[inspection.recovery_case(found) - 1][5]
    assert action != GO_ON or (found & (CLOSE | NOTHING) and not found & REST)


def test_there_is_no_129th_combination() -> None:
    with pytest.raises(ValueError):
        inspection.recovery_case(128)


def test_the_document_shows_the_same_table() -> None:
    def names(bits: int) -> str:
        return ", ".join(name for bit, name in NAMES.items() if bits & bit) or "-"

    text = TEXT.read_text()
    for number, name, _, needs, excludes, action in ROWS:
        assert f"| {number} | {name} | {names(needs)} | {names(excludes)} | {ACTIONS[action]} |" in text
