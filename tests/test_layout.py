"""The three roots agree: every extension module has its stub and its binary; engine holds no class."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.tree


def modules(root: str, suffix: str) -> set[str]:
    """Return the import paths of the files below a root that end so."""
    base = ROOT / root
    return {
        ".".join((*path.relative_to(base).parts[:-1], path.name.partition(".")[0])) for path in base.rglob(f"*{suffix}")
    }


def test_every_pyx_has_a_stub_and_every_stub_a_pyx() -> None:
    assert modules("pyx", ".pyx") == modules("bindings", ".pyi")


def test_every_pyx_is_built_and_every_binary_has_a_pyx() -> None:
    # A deleted module leaves its binary behind, and imports of it go on working, but only here.
    assert modules("pyx", ".pyx") == modules("bindings", ".so"), "run `make clean build`"


def test_every_class_pxd_lies_beside_its_pyx() -> None:
    # Apart from it, a change of the .pxd would leave the class itself unbuilt.
    assert modules("pyx", ".pxd") <= modules("pyx", ".pyx")


def test_engine_holds_nothing_to_link() -> None:
    forbidden = re.compile(r"\s*(cdef\s+class|cpdef)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / "engine").rglob("*.pxd")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if forbidden.match(line)
    ]
    assert found == []
