"""Records of `put` and `get`: every way to cut the stream gives the same ones."""

from __future__ import annotations

import io

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cli.failures import Failure
from rota.cli.framing import chosen_delimiter, framed, read_records, unescape


class Trickle:
    """A stream that gives as many bytes at a time as it was told."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.stream, self.sizes = io.BytesIO(data), sizes

    def read1(self, size: int, /) -> bytes:
        return self.stream.read(min(size, self.sizes.pop() if self.sizes else size))


def records(data: bytes, delimiter: bytes | None, sizes: list[int]) -> list[bytes]:
    return [record for group in read_records(Trickle(data, sizes), delimiter) for record in group]


@given(
    data=st.binary(max_size=60).map(lambda data: bytes(byte % 3 for byte in data)),
    delimiter=st.sampled_from([b"\0", b"\1", b"\0\1", b"\0\0", b"\0\1\0"]),
    sizes=st.lists(st.integers(1, 7), max_size=20),
)
def test_delimited_records_do_not_depend_on_chunks(data: bytes, delimiter: bytes, sizes: list[int]) -> None:
    expected = data.split(delimiter)
    if not expected[-1]:
        expected.pop()
    assert records(data, delimiter, sizes) == expected


@given(bodies=st.lists(st.binary(max_size=20)), sizes=st.lists(st.integers(1, 7), max_size=20))
def test_length_prefixed_records_go_both_ways(bodies: list[bytes], sizes: list[int]) -> None:
    assert records(b"".join(framed(body, None) for body in bodies), None, sizes) == bodies


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0", b"\0\0\0\5abcd"])
def test_a_cut_length_prefixed_stream_is_told(data: bytes) -> None:
    with pytest.raises(Failure, match="ends in the middle of the record at byte 5"):
        records(framed(b"x", None) + data, None, [])


def test_text_is_not_taken_for_length_prefixed() -> None:
    with pytest.raises(Failure, match="claims"):
        records(b"plain text", None, [])


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (r"\n", b"\n"),
        (r"\x00\xff", b"\0\xff"),
        (r"\\n", b"\\n"),
        ("é", "é".encode()),
        (r"\q", b"\\q"),
        (r"a\tb", b"a\tb"),
    ],
)
def test_escapes_of_a_delimiter(text: str, data: bytes) -> None:
    assert unescape(text) == data


def test_delimiters_exclude_each_other() -> None:
    with pytest.raises(click.UsageError):
        chosen_delimiter("x", True, False)
    with pytest.raises(click.UsageError):
        chosen_delimiter("", False, False)
    assert chosen_delimiter(None, False, False) == b"\n"
    assert chosen_delimiter(None, False, True) is None
