"""The engine's headers from plain C: each compiles alone, and the programs beside this file run clean."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ROOT / "engine" / "include"
PROGRAMS = pathlib.Path(__file__).parent
STRICT = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{HEADERS}"]
SANITIZE = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]

pytestmark = [
    pytest.mark.tree,
    pytest.mark.skipif(not COMPILERS, reason="needs gcc or clang"),
]


def compiled(compiler: str, source: pathlib.Path, program: pathlib.Path, *flags: str) -> pathlib.Path:
    """Compile a C file with all warnings as errors."""
    command = [compiler, *STRICT, *flags, str(source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


def run(program: pathlib.Path) -> None:
    """Run a test program in its own folder."""
    done = subprocess.run([program], cwd=program.parent, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{program.name} ended with {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("header", sorted(path.name for path in (HEADERS / "rota").glob("*.h")))
def test_header_compiles_alone_and_twice(header: str, compiler: str, tmp_path: pathlib.Path) -> None:
    source = tmp_path / "alone.c"
    source.write_text(f'#include "rota/{header}"\n#include "rota/{header}"\nint main(void) {{ return 0; }}\n')
    compiled(compiler, source, tmp_path / "alone")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("flags", [["-O2"], SANITIZE], ids=["optimised", "sanitized"])
@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*_test.c")))
def test_program(name: str, flags: list[str], compiler: str, tmp_path: pathlib.Path) -> None:
    run(compiled(compiler, PROGRAMS / f"{name}.c", tmp_path / name, *flags))


def test_checksums_without_the_instruction(tmp_path: pathlib.Path) -> None:
    flags = ["-O2", "-DROTA_CRC32C_PORTABLE"]
    run(compiled(COMPILERS[0], PROGRAMS / "crc32c_test.c", tmp_path / "portable", *flags))


@pytest.mark.parametrize("name", ["inject_test", "failpoint_test", "status_test"])
def test_threads_do_not_race(name: str, tmp_path: pathlib.Path) -> None:
    run(compiled(COMPILERS[0], PROGRAMS / f"{name}.c", tmp_path / name, "-O1", "-g", "-fsanitize=thread"))


def test_failpoints_can_be_left_out(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "without.c"
    source.write_text(
        '#include "rota/failpoint.h"\n'
        "int main(void) { return ROTA_FAILPOINT_STATUS((rota_failpoints *)0, SYNC_BEFORE); }\n"
    )
    run(compiled(COMPILERS[0], source, tmp_path / "without", "-DROTA_NO_FAILPOINTS"))


def test_every_failpoint_is_known_to_cython() -> None:
    header = (HEADERS / "rota" / "failpoint.h").read_text()
    declared = (ROOT / "engine" / "failpoint.pxd").read_text().split()
    names = [line.split("X(")[1].split(",")[0] for line in header.splitlines() if line.startswith("    X(")]
    assert len(names) > 50
    assert [name for name in names if f"ROTA_AT_{name}" not in declared] == []
