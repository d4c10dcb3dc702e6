"""`rota ingest`: formats, compression, and what becomes of a source that changes."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pathlib
import zipfile
from collections.abc import Callable

import lz4.frame
import pytest

from tests.cli.conftest import Shell

CSV = b'id,name\r\n1,"two\nlines"\r\n\r\n2,"say ""hi"""\r\n3,x\r\n'
RECORDS = [b'1,"two\nlines"', b'2,"say ""hi"""', b"3,x"]


def zipped(data: bytes, *names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or ("data.csv",):
            archive.writestr(name, data)
    return buffer.getvalue()


def bodies(shell: Shell, queue: str) -> list[bytes]:
    """Take everything out of a queue, whatever bytes it holds."""
    stream = shell.ok("drain", shell.repository, "-q", queue, "--null")
    return stream.split(b"\0")[:-1]


def ingest(shell: Shell, file: pathlib.Path | str, *options: str, stdin: bytes = b"") -> dict[str, int]:
    output = shell.ok("ingest", shell.repository, file, "-q", "q", "--create", "--json", *options, stdin=stdin)
    figures: dict[str, int] = json.loads(output)
    return figures


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("data.csv", lambda data: data),
        ("data.csv.gz", gzip.compress),
        ("data.csv.gz", lambda data: gzip.compress(data[:20]) + gzip.compress(data[20:])),
        ("data.csv.lz4", lz4.frame.compress),
        ("data.csv.bz2", bz2.compress),
        ("data.csv.xz", lzma.compress),
        ("data.zip", zipped),
    ],
)
def test_csv_comes_in_plain_and_compressed(shell: Shell, name: str, packed: Callable[[bytes], bytes]) -> None:
    file = shell.directory / name
    file.write_bytes(packed(CSV))
    figures = ingest(shell, file)
    assert (figures["records"], figures["offset"]) == (3, len(CSV))
    assert bodies(shell, "q") == RECORDS


def test_rows_become_objects_with_a_key(shell: Shell) -> None:
    (shell.directory / "data.csv").write_bytes(b"\xef\xbb\xbf" + CSV)
    ingest(shell, "data.csv", "--as", "json", "--key-column", "id")
    lines = shell.ok("get", shell.repository, "-q", "q", "--all", "--format", "json").splitlines()
    records = [(record["key"], json.loads(record["body"])) for record in map(json.loads, lines)]
    assert records[0] == ("1", {"id": "1", "name": "two\nlines"})
    assert [key for key, _ in records] == ["1", "2", "3"]


def test_json_lines_and_plain_lines(shell: Shell) -> None:
    (shell.directory / "data.jsonl").write_bytes(b'{"k": "a", "v": 1}\n\n{"k": "b"}')
    (shell.directory / "data.log").write_bytes(b"x\r\n\ny")
    assert ingest(shell, "data.jsonl", "--key-column", "k")["records"] == 2
    assert bodies(shell, "q") == [b'{"k": "a", "v": 1}', b'{"k": "b"}']
    assert ingest(shell, "data.log")["records"] == 3
    assert bodies(shell, "q") == [b"x\r", b"", b"y"]


def test_a_separator_and_no_header(shell: Shell) -> None:
    (shell.directory / "data").write_bytes(b"1;a\n2;b\n")
    ingest(
        shell,
        "data",
        "--format",
        "csv",
        "--separator",
        ";",
        "--no-header",
        "--as",
        "json",
        "--key-column",
        "2",
    )
    assert bodies(shell, "q") == [b'["1","a"]', b'["2","b"]']


def test_a_finished_source_says_so(shell: Shell) -> None:
    (shell.directory / "data.csv").write_bytes(CSV)
    assert b"3 records" in shell.ok("ingest", shell.repository, "data.csv", "-q", "q", "--create")
    assert b"nothing new; its 3 records" in shell.ok("ingest", shell.repository, "data.csv", "-q", "q")
    assert len(bodies(shell, "q")) == 3


@pytest.mark.parametrize("packed", [lambda data: data, gzip.compress, lz4.frame.compress, zipped])
@pytest.mark.parametrize("first_lines", [1, 100, 3000])
def test_an_appended_file_goes_on(shell: Shell, packed: Callable[[bytes], bytes], first_lines: int) -> None:
    lines = [b"%06d,%s\n" % (number, b"x" * (number % 50)) for number in range(6000)]
    file = shell.directory / "data.csv"
    file.write_bytes(packed(b"a,b\n" + b"".join(lines[:first_lines])))
    assert ingest(shell, file)["records"] == first_lines
    file.write_bytes(packed(b"a,b\n" + b"".join(lines)))
    figures = ingest(shell, file, "--format", "csv")
    assert (figures["records"], figures["records_total"]) == (6000 - first_lines, 6000)
    assert bodies(shell, "q") == [line.rstrip(b"\n") for line in lines]


def test_a_changed_start_is_refused(shell: Shell) -> None:
    file = shell.directory / "data.csv"
    file.write_bytes(CSV)
    ingest(shell, file)
    file.write_bytes(CSV.replace(b"two", b"TWO") + b"4,y\n")
    assert "has changed" in shell.refused(4, "ingest", shell.repository, file, "-q", "q")
    file.write_bytes(CSV[:-5])
    assert "has changed" in shell.refused(4, "ingest", shell.repository, file, "-q", "q")
    assert len(bodies(shell, "q")) == 3
    file.write_bytes(CSV + b"4,y\n")
    assert ingest(shell, file)["records"] == 1


def test_a_change_before_the_position_is_refused_too(shell: Shell) -> None:
    line = b"x" * 99 + b"\n"
    file = shell.directory / "data.log"
    file.write_bytes(line * 2000)
    ingest(shell, file)
    file.write_bytes(line * 1990 + b"y" * 99 + b"\n" + line * 20)
    assert "has changed before byte 200,000" in shell.refused(4, "ingest", shell.repository, file, "-q", "q")
    file.write_bytes(line * 1000)
    assert "is shorter than" in shell.refused(4, "ingest", shell.repository, file, "-q", "q")


def test_another_name_is_another_source(shell: Shell) -> None:
    (shell.directory / "data.csv").write_bytes(CSV)
    ingest(shell, "data.csv")
    assert ingest(shell, "data.csv", "--source", "once more")["records"] == 3
    assert ingest(shell, "data.csv", "--source", "once more")["records"] == 0
    assert ingest(shell, "data.csv", "--again")["records"] == 3
    (shell.directory / "link.csv").symlink_to("data.csv")
    assert ingest(shell, "link.csv")["records"] == 0


def test_other_options_for_the_rest_are_refused(shell: Shell) -> None:
    (shell.directory / "data.csv").write_bytes(CSV)
    ingest(shell, "data.csv")
    assert "as json" in shell.refused(4, "ingest", shell.repository, "data.csv", "-q", "q", "--as", "json")


def test_a_record_without_a_newline_is_taken_and_not_twice(shell: Shell) -> None:
    file = shell.directory / "data.log"
    file.write_bytes(b"1\n2")
    assert ingest(shell, file)["records"] == 2
    assert ingest(shell, file)["records"] == 0
    file.write_bytes(b"1\n2\n")
    assert ingest(shell, file)["records"] == 0
    file.write_bytes(b"1\n2\n3")
    assert ingest(shell, file)["records"] == 1
    file.write_bytes(b"1\n2\n34\n")
    assert "--hold-partial" in shell.refused(4, "ingest", shell.repository, file, "-q", "q")
    assert bodies(shell, "q") == [b"1", b"2", b"3"]


def test_a_partial_record_may_be_left_for_later(shell: Shell) -> None:
    file = shell.directory / "data.log"
    file.write_bytes(b"1\n2")
    assert ingest(shell, file, "--hold-partial")["records"] == 1
    file.write_bytes(b"1\n23\n")
    assert ingest(shell, file, "--hold-partial")["records"] == 1
    assert bodies(shell, "q") == [b"1", b"23"]


def test_standard_input_needs_a_name_and_goes_on(shell: Shell) -> None:
    shell.refused(2, "ingest", shell.repository, "-", "-q", "q", "--create")
    assert ingest(shell, "-", "--source", "feed", stdin=b"1\n2\n")["records"] == 2
    assert ingest(shell, "-", "--source", "feed", stdin=gzip.compress(b"1\n2\n3\n"))["records"] == 1
    assert bodies(shell, "q") == [b"1", b"2", b"3"]


def test_a_member_is_chosen(shell: Shell) -> None:
    (shell.directory / "data.zip").write_bytes(zipped(CSV, "a.csv", "b.txt"))
    assert "a.csv, b.txt" in shell.refused(2, "ingest", shell.repository, "data.zip", "-q", "q", "--create")
    assert ingest(shell, "data.zip", "--member", "a.csv")["records"] == 3
    assert ingest(shell, "data.zip", "--member", "b.txt")["records"] == CSV.count(b"\n")


def test_bad_records_stop_it_or_are_passed_over(shell: Shell) -> None:
    (shell.directory / "data.jsonl").write_bytes(b'{"k":1}\n{"k":2}\n{oops\n{"k":3}\n')
    options = ("ingest", shell.repository, "data.jsonl", "-q", "q", "--create", "--as", "json")
    assert "record 3 is refused" in shell.refused(4, *options)
    assert len(bodies(shell, "q")) == 2
    done = shell.run(*options, "--skip-bad", "--json")
    figures = json.loads(done.stdout)
    assert (done.returncode, figures["records"], figures["skipped"], figures["records_total"]) == (0, 1, 1, 3)
    assert b"record 3" in done.stderr
    assert bodies(shell, "q") == [b'{"k":3}']


def test_a_missing_column_names_those_there_are(shell: Shell) -> None:
    (shell.directory / "data.csv").write_bytes(CSV)
    options = ("ingest", shell.repository, "data.csv", "-q", "q", "--create")
    assert "there are id, name" in shell.refused(2, *options, "--key-column", "nmae")


def test_a_quote_that_never_ends_is_refused(shell: Shell) -> None:
    (shell.directory / "data.csv").write_bytes(CSV + b'4,"oops\n5,y\n')
    assert "record 5" in shell.refused(4, "ingest", shell.repository, "data.csv", "-q", "q", "--create")
    assert bodies(shell, "q") == RECORDS


PACKERS = [
    gzip.compress,
    lambda data: lz4.frame.compress(data, content_checksum=True),
    lzma.compress,
    bz2.compress,
]
PACKERS.append(zipped)
MANY_LINES = b"".join(b"%d %d\n" % (number, number * number) for number in range(60_000))
AS_LINES = ("-q", "q", "--create", "--format", "lines", "--durability", "none")


@pytest.mark.parametrize("packed", PACKERS)
def test_a_source_that_is_cut_off_gives_what_it_has_and_goes_on(shell: Shell, packed: Callable[[bytes], bytes]) -> None:
    whole = packed(MANY_LINES)
    file = shell.directory / "data"
    file.write_bytes(whole[: len(whole) * 3 // 4])
    assert "damaged" in shell.refused(4, "ingest", shell.repository, file, *AS_LINES)
    file.write_bytes(whole)
    shell.ok("ingest", shell.repository, file, *AS_LINES)
    assert b"\n".join(bodies(shell, "q")) + b"\n" == MANY_LINES


@pytest.mark.parametrize("packed", PACKERS)
def test_a_checked_source_gives_all_or_nothing(shell: Shell, packed: Callable[[bytes], bytes]) -> None:
    whole = packed(MANY_LINES)
    broken = bytearray(whole)
    broken[len(whole) * 3 // 4] ^= 0x10
    file = shell.directory / "data"
    file.write_bytes(broken)
    assert "damaged" in shell.refused(4, "ingest", shell.repository, file, *AS_LINES, "--check")
    assert bodies(shell, "q") == []
    file.write_bytes(whole)
    shell.ok("ingest", shell.repository, file, *AS_LINES, "--check")
    assert b"\n".join(bodies(shell, "q")) + b"\n" == MANY_LINES


def test_an_empty_file_and_a_mere_header(shell: Shell) -> None:
    for content in (b"", b"a,b", b"a,b\n"):
        (shell.directory / "data.csv").write_bytes(content)
        assert ingest(shell, "data.csv", "--key-column", "a" if content else "zz")["records"] == 0
    (shell.directory / "data.csv").write_bytes(b"a,b\n1,2\n")
    assert ingest(shell, "data.csv", "--key-column", "a")["records"] == 1


def test_parts_share_a_source(shell: Shell) -> None:
    lines = [b"%d" % number for number in range(12_345)]
    (shell.directory / "data.log").write_bytes(b"\n".join(lines))
    counts = [ingest(shell, "data.log", "--part", f"{part}/3")["records"] for part in (1, 2, 3)]
    assert counts == [5000 - 655, 4000, 4000] or sum(counts) == len(lines)
    assert sorted(bodies(shell, "q"), key=int) == lines
    assert ingest(shell, "data.log", "--part", "2/3")["records"] == 0


def test_long_and_strange_names(shell: Shell) -> None:
    deep = shell.directory.joinpath(*["d" * 100] * 5)
    deep.mkdir(parents=True)
    file = deep / "é\udcff\n.log"
    file.write_bytes(b"1\n")
    assert ingest(shell, file)["records"] == 1
    assert ingest(shell, file)["records"] == 0
    other = deep / "é\udcfe\n.log"
    other.write_bytes(b"1\n")
    assert ingest(shell, other)["records"] == 1
