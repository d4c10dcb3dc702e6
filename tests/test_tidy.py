"""Style is a test: lengths, names, words that must not stay, docstrings, files that nobody uses.

Lengths are a ratchet: what is longer than the limit is listed below with its length, and may only shrink.
"""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOTS = ("engine", "pyx", "bindings", "bench", "docs", "examples", "tests", "tools", ".ci")
CODE = {".py", ".pyx", ".pxd", ".pyi", ".h", ".c", ".sh"}
TEXT = CODE | {".md", ".toml", ".in", ".cfg", ""}
GENERATED = {"__pycache__", "build", "rota.egg-info"}

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70

# path -> lines. Take an entry out when the file has become short enough; never raise a number.
LONG_FILES: dict[str, int] = {
    "engine/include/rota/control.h": 415,
    "pyx/rota/_core/queue.pyx": 580,
    "pyx/rota/_core/transaction.pyx": 560,
    "tests/unit/test_queue_handles.py": 500,
}
# path::function -> lines.
LONG_FUNCTIONS: dict[str, int] = {}

BANNED_STEMS = {
    "utils": "name the subject",
    "util": "name the subject",
    "helpers": "name what they help",
    "helper": "name what it helps",
    "misc": "split it by subject",
    "common": "name what is shared",
}
# Written in two pieces, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
SLEEP = re.compile(r"\btime\." + r"sleep\b|from ti" + r"me import .*\bsleep\b")
MACHINE_PATH = re.compile(r"(?<![\w./*-])/(home|root|work|Users)/\w|\.\./" + r"shared\b|--index" + r"-url")

PYTHON_DEFINITION = re.compile(r"(?P<indent>\s*)(?:async\s+)?(?:def|cdef|cpdef)\s[^=]*?(?P<name>\w+)\s*\(")
C_ASSERTIONS = ("_Static_assert", "static_assert")
C_DEFINITION = re.compile(r"[a-zA-Z_][\w\s*]*?(?P<name>\w+)\s*\(")

pytestmark = pytest.mark.tree


def files(suffixes: set[str]) -> Iterator[tuple[str, pathlib.Path]]:
    """Yield the name and path of each source file of the project, generated ones left out."""
    paths = [
        path for path in ROOT.iterdir() if path.name not in ("LICENSE", ".git")
    ]  # the latter: a file in a worktree
    for root in ROOTS:
        paths += (ROOT / root).rglob("*")
    for path in sorted(paths):
        name = path.relative_to(ROOT)
        beside_pyx = path.suffix == ".c" and path.with_suffix(".pyx").exists()
        if path.suffix in suffixes and path.is_file() and not GENERATED & set(name.parts) and not beside_pyx:
            yield name.as_posix(), path


def lines(suffixes: set[str], under: str = "") -> Iterator[tuple[str, str]]:
    """Yield place and text of each line of the files whose name starts so."""
    for name, path in files(suffixes):
        if name.startswith(under):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                yield f"{name}:{number}", line


def python_functions(source: list[str]) -> Iterator[tuple[str, int]]:
    """Yield name and length of each function: it ends before the next line that is indented no deeper."""
    for start, line in enumerate(source):
        match = PYTHON_DEFINITION.match(line)
        if not match:
            continue
        depth, end = len(match["indent"]), start
        for position in range(start + 1, len(source)):
            text = source[position]
            if text.strip() and len(text) - len(text.lstrip()) <= depth and not text.lstrip().startswith(")"):
                break
            if text.strip():
                end = position
        yield match["name"], end - start + 1


def c_functions(source: list[str]) -> Iterator[tuple[str, int]]:
    """Yield name and length of each C function: from the line that names it to the brace in column 0."""
    start, name = None, ""
    for position, line in enumerate(source):
        match = None if line.startswith(C_ASSERTIONS) else C_DEFINITION.match(line)
        if match:
            start, name = position, match["name"]
        elif line.startswith("}") and start is not None:
            yield name, position - start + 1
            start = None


def ratchet(measured: dict[str, int], limit: int, allowed: dict[str, int]) -> None:
    """Demand that nothing is too long but what is listed, and that the list tells no more than the truth."""
    too_long = {name: size for name, size in measured.items() if size > max(limit, allowed.get(name, 0))}
    assert not too_long, f"longer than {limit} lines: {too_long}"
    settled = [name for name in allowed if measured.get(name, 0) <= limit]
    assert not settled, f"take out of the list of exceptions: {settled}"


def test_files_are_short() -> None:
    measured = {name: len(path.read_text().splitlines()) for name, path in files(CODE)}
    ratchet(measured, FILE_LINES_MAX, LONG_FILES)


def test_functions_fit_a_screen() -> None:
    measured: dict[str, int] = {}
    for name, path in files(CODE):
        source = path.read_text().splitlines()
        found = c_functions(source) if path.suffix in {".h", ".c"} else python_functions(source)
        for function, size in found if path.suffix != ".sh" else ():
            key = f"{name}::{function}"
            measured[key] = max(size, measured.get(key, 0))
    ratchet(measured, FUNCTION_LINES_MAX, LONG_FUNCTIONS)


def test_names_say_what_is_inside() -> None:
    found = {
        name: BANNED_STEMS[part]
        for name, _ in files(TEXT)
        for part in pathlib.PurePath(name).with_suffix("").parts
        if part in BANNED_STEMS
    }
    assert found == {}


def test_nothing_is_left_unfinished() -> None:
    assert [place for place, line in lines(TEXT) if UNFINISHED.search(line)] == []


def test_tests_wait_for_events_not_for_time() -> None:
    assert [place for place, line in lines({".py"}, "tests/") if SLEEP.search(line)] == []


def test_no_path_of_one_machine() -> None:
    assert [place for place, line in lines(TEXT) if MACHINE_PATH.search(line)] == []


def test_lines_end_cleanly() -> None:
    assert [place for place, line in lines(TEXT) if line != line.rstrip()] == []


def test_package_files_open_with_a_docstring() -> None:
    found = []
    for name, path in files({".py", ".pyx"}):
        if name.startswith("bindings/") and not ast.get_docstring(ast.parse(path.read_text(), name)):
            found.append(name)
        if name.startswith("pyx/"):
            text = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
            if not text or not text[0].startswith(('"""', 'r"""')):
                found.append(name)
    assert found == []


def referred() -> str:
    """Return all that can name a module: import lines, names in strings, entry points."""
    sources = [path.read_text() for _, path in files({".py", ".pyx", ".pxd", ".h", ".c", ".toml"})]
    return "\n".join(sources)


def is_named(package: str, stem: str, text: str) -> bool:
    """Tell whether some text imports package.stem, in any of the ways Python and Cython have."""
    whole = re.escape(f"{package}.{stem}")
    relative = rf"from \.+(?:\w+\.)*{stem} c?import|from \.+ c?import [^\n]*\b{stem}\b"
    from_package = rf"from {re.escape(package)} c?import (?:\([^)]*|[^\n]*)\b{stem}\b"
    return re.search(rf"\b{whole}\b|{relative}|{from_package}", text) is not None


def test_no_module_that_nobody_imports() -> None:
    text = referred()
    unused = []
    for name, _ in files({".py", ".pyx"}):
        *package, file = name.split("/")
        stem = file.partition(".")[0]
        installed = package[:1] in (["bindings"], ["pyx"]) and not stem.startswith("__")
        if installed and not is_named(".".join(package[1:]), stem, text):
            unused.append(name)
    assert unused == []


def test_no_header_that_nobody_includes() -> None:
    if not any((ROOT / "pyx").rglob("*.pyx")):
        pytest.skip("there is no core yet that could include one")
    text = referred()
    unused = [
        name
        for name, path in files({".h", ".pxd"})
        if path.stem != "__init__"
        if (name.startswith("engine/include/") and f'{path.name}"' not in text)
        or (name.startswith("engine/") and path.suffix == ".pxd" and not is_named("engine", path.stem, text))
    ]
    assert unused == []
