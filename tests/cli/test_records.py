"""Where records end: every cut of a stream gives the same pieces, those of the csv module."""

from __future__ import annotations

import csv
import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cli.records import BadRecord, Plan, Shaper, Splitter, format_of

CSV_BYTES = st.text(alphabet='ab",\n é', max_size=60).map(str.encode)


def pieces_of(data: bytes, separator: bytes | None, cuts: list[int]) -> list[bytes]:
    """Return the pieces of a stream that comes in chunks."""
    splitter = Splitter(separator)
    pieces: list[bytes] = []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        if start < end:
            pieces += splitter.feed(data[start:end])
    rest = splitter.finish()
    return pieces if rest is None else [*pieces, rest]


@given(data=st.binary(max_size=80), cuts=st.lists(st.integers(0, 100), max_size=5))
def test_lines_are_lossless_whatever_the_chunks(data: bytes, cuts: list[int]) -> None:
    pieces = pieces_of(data, None, cuts)
    assert pieces == (data.removesuffix(b"\n").split(b"\n") if data else [])
    assert b"\n".join(pieces) + (b"\n" if data.endswith(b"\n") else b"") == data


@given(data=CSV_BYTES, cuts=st.lists(st.integers(0, 100), max_size=5))
def test_csv_records_are_those_of_the_csv_module(data: bytes, cuts: list[int]) -> None:
    pieces = pieces_of(data, b",", cuts)
    assert pieces == pieces_of(data, b",", [])
    rows = [next(csv.reader([piece.decode()]), []) for piece in pieces]
    expected = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert rows == expected


def test_a_quote_inside_a_field_opens_nothing() -> None:
    assert pieces_of(b'5" pipe,3\n6" pipe,4\n', b",", []) == [b'5" pipe,3', b'6" pipe,4']


def test_quoted_newlines_separators_and_quotes_stay_in_one_record() -> None:
    record = b'1,"two\nlines, and ""more""",3'
    assert pieces_of(record + b"\n" + record, b",", [5, 9]) == [record, record]


def test_a_quote_that_never_ends_is_known_at_the_end() -> None:
    splitter = Splitter(b",")
    assert splitter.feed(b'a\n"b\nc\n') == [b"a"]
    assert splitter.finish() == b'"b\nc\n'
    assert splitter.quoted


def test_a_row_becomes_an_object_and_its_key() -> None:
    shaper = Shaper(Plan("csv", as_json=True, key_column="b"), ["a", "b"])
    assert shaper.shape('1,"é\n""x"""\r'.encode()) == ('{"a":"1","b":"é\\n\\"x\\""}'.encode(), 'é\n"x"')
    assert shaper.shape(b"") is None
    with pytest.raises(BadRecord, match="3 fields, the header 2"):
        shaper.shape(b"1,2,3")


def test_bytes_that_are_no_utf8_go_through() -> None:
    shaper = Shaper(Plan("csv", as_json=True, key_column="1", header=False), None)
    assert shaper.shape(b"\xff,2") == (rb'["\udcff","2"]', b"\xff")
    assert Shaper(Plan("csv"), ["a"]).shape(b"\xff,\0") == (b"\xff,\0", None)


def test_a_json_line_is_taken_raw_and_its_field_is_the_key() -> None:
    shaper = Shaper(Plan("jsonl", key_column="k"), None)
    assert shaper.shape(b'{"k" : 7}\r') == (b'{"k" : 7}', "7")
    assert shaper.shape(b'{"k": null}') == (b'{"k": null}', None)
    assert shaper.shape(b'{"k": "\\ud800"}') == (b'{"k": "\\ud800"}', "\ud800")
    for bad in (b"{", b"[1]", b'{"j": 1}', b"[" * 100_000):
        with pytest.raises(BadRecord):
            shaper.shape(bad)


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.csv", "csv"), ("a.TSV", "csv"), ("a.jsonl", "jsonl"), ("a.log", "lines"), ("csv", "lines")],
)
def test_the_ending_tells_the_format(name: str, form: str) -> None:
    assert format_of(name) == form
