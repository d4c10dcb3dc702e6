"""`rota profile`: shares of a file and of standard input."""

from __future__ import annotations

import json
import pathlib

from click.testing import CliRunner

from rota.cli.profile import profile


def test_a_file_is_measured(directory: pathlib.Path) -> None:
    keys = directory / "keys"
    keys.write_bytes(b"".join(b"%d\r\n" % (number % 10) for number in range(1000)))
    done = CliRunner().invoke(profile, [str(keys), "--queue-length", "10", "--service-length", "40", "--json"])
    figures = json.loads(done.stdout)
    assert (figures["requests"], figures["distinct"], figures["high"]) == (1000, 10, 0.99)
    assert figures["sparse"] < 1e-9
    assert 0.7 < figures["saved"] < 0.8


def test_standard_input_is_measured_in_words() -> None:
    done = CliRunner().invoke(profile, ["-", "--queue-length", "1"], input=b"a\nb\na\nb\n")
    assert done.exit_code == 0
    for words in ("requests", "4", "sparse", "50.0%", "high", "0.0%"):
        assert words in done.stdout
