"""What is printed is one line of printable characters, whatever the bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cli.text import as_json, byte_figure, duration_figure, json_line, printable

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=[]), max_size=30)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"plain", "plain"),
        (b"\xff\0", r"\xff\x00"),
        ("\ud800", r"\ud800"),
        ("é\n", r"é\n"),
        (b"\\xff", r"\\xff"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\u202e", r"\u202e"),
    ],
)
def test_names_are_escaped(value: bytes | str, shown: str) -> None:
    assert printable(value) == shown


@given(value=st.one_of(st.binary(max_size=30), ANY_TEXT))
def test_nothing_unprintable_gets_out(value: bytes | str) -> None:
    assert printable(value).isprintable()
    assert len(printable(value, 10)) <= 10


@given(first=st.binary(max_size=8), second=st.binary(max_size=8))
def test_two_names_never_look_alike(first: bytes, second: bytes) -> None:
    assert (printable(first) == printable(second)) == (first == second)


@given(value=st.one_of(st.binary(max_size=30), ANY_TEXT))
def test_any_value_becomes_ascii_json(value: bytes | str) -> None:
    assert json_line(as_json(value)).isascii()
    if isinstance(value, str):
        assert json.loads(json_line(as_json(value))) == value


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 µs"),
        (0.0042, "4.2 ms"),
        (59.94, "59.9 s"),
        (200, "3 m 20 s"),
        (7260, "2 h 1 m"),
        (90000, "1 d 1 h"),
    ],
)
def test_time_spans(seconds: float, text: str) -> None:
    assert duration_figure(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (325_058_560, "310 MiB"), (5 << 50, "5120 TiB")]
)
def test_sizes(count: int, text: str) -> None:
    assert byte_figure(count) == text
