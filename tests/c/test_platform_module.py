"""The switches of rota._core.platform: failpoints, injections, the recorder, the clocks."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rota._core import platform


@pytest.fixture(autouse=True)
def switched_off() -> Iterator[None]:
    """Leave nothing armed behind."""
    yield
    platform.disarm()
    platform.injections_clear()
    platform.record(None)


def child(code: str, failpoints: str) -> subprocess.CompletedProcess[str]:
    """Run Python code with failpoints armed by the environment."""
    environment = {**os.environ, "ROTA_FAILPOINTS": failpoints}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)


def test_checksum_is_the_standard_one() -> None:
    assert platform.crc32c(b"123456789") == platform.crc32c_portable(b"123456789") == 0xE3069283
    assert platform.crc32c(memoryview(b"6789"), platform.crc32c(bytearray(b"12345"))) == 0xE3069283
    assert platform.crc32c(b"") == 0


def test_file_systems_are_judged(tmp_path: pathlib.Path) -> None:
    assert platform.filesystem("/proc") == ("proc", "refused")
    name, verdict = platform.filesystem(tmp_path)
    known = {"ext4": "allowed", "xfs": "allowed", "tmpfs": "volatile", "overlay": "refused"}
    assert known.get(name, verdict) == verdict
    with pytest.raises(FileNotFoundError):
        platform.filesystem(tmp_path / "none")


def test_failpoints_are_armed_by_name_and_pattern() -> None:
    assert "append.copied" in platform.failpoint_names()
    platform.arm("segment.*", "count")
    expected = {name for name in platform.failpoint_names() if name.startswith("segment.")}
    assert set(platform.hits()) == expected
    platform.arm_from("append.copied=error:EIO@2;append.locked=error:CORRUPT")
    platform.disarm("segment.*")
    assert platform.hits() == {"append.copied": 0, "append.locked": 0}
    platform.disarm()
    assert platform.hits() == {}


@pytest.mark.parametrize(
    ("name", "action", "argument"),
    [("append.copide", "kill", 0), ("append.copied", "zap", 0), ("append.copied", "error", "EWHAT")],
)
def test_a_misspelt_failpoint_is_refused(name: str, action: str, argument: int | str) -> None:
    with pytest.raises(ValueError, match="unknown failpoint"):
        platform.arm(name, action, argument=argument)
    with pytest.raises(ValueError, match="unknown"):
        platform.arm_from(f"{name}={action}:{argument}")


def test_failpoints_of_the_environment() -> None:
    done = child("from rota._core import platform; print(platform.hits())", "append.copied=kill@3")
    assert done.stdout.strip() == "{'append.copied': 0}", done.stderr
    done = child("import rota._core.platform", "append.copied")
    assert done.returncode == 1
    assert "ImportError: ROTA_FAILPOINTS: failpoint without an action" in done.stderr


def test_injected_call_fails_once(tmp_path: pathlib.Path) -> None:
    platform.inject("open", nth=2, errno=errno.EMFILE)
    before = platform.call_counts()["open"]
    platform.filesystem(tmp_path)
    with pytest.raises(OSError, match="Too many open files") as caught:
        platform.filesystem(tmp_path)
    assert caught.value.errno == errno.EMFILE
    platform.filesystem(tmp_path)
    assert platform.call_counts()["open"] == before + 3
    assert platform.injections_fired() == {"open": 1}
    platform.injections_clear()
    assert platform.injections_fired() == {}
    with pytest.raises(ValueError, match="unknown platform call"):
        platform.inject("opne")


def test_clocks_are_shifted() -> None:
    wall, boot = platform.clocks()
    platform.shift_clock(wall_ns=-(10**12), boot_ns=10**12)
    shifted_wall, shifted_boot = platform.clocks()
    assert shifted_wall < wall
    assert shifted_boot > boot + 10**12 - 1
    platform.injections_clear()
    assert platform.clocks()[0] >= wall


def test_recorder_is_told(tmp_path: pathlib.Path) -> None:
    told: list[tuple[object, ...]] = []
    platform.record(lambda *event: told.append(event))
    platform.filesystem(tmp_path)
    platform.record(None)
    platform.filesystem(tmp_path)
    assert [event[0] for event in told] == ["open", "close"]
    assert told[0][2] == str(tmp_path)
    assert told[0][1] == told[1][1]


def test_a_bus_error_elsewhere_still_ends_the_process() -> None:
    code = "import os, signal, rota._core.platform; os.kill(os.getpid(), signal.SIGBUS)"
    assert child(code, "").returncode == -signal.SIGBUS
