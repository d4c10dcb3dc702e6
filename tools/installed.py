"""Build sdist and wheel, look at what the wheel holds, and test it where the tree cannot help.

1. `python -m build` makes the sdist, then the wheel from the sdist, both isolated.
2. The wheel may hold Python modules, compiled modules, stubs and py.typed; nothing else.
3. A clean environment gets the wheel and the test tools, and runs the tests that are not about the tree.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "installed"
SUBSETS = ("tests/unit", "tests/cli")
TEST_TOOLS = ("pytest", "hypothesis")
SUFFIXES = (".py", ".pyi", ".so")
NO_TESTS_COLLECTED = 5


def run(*command: str | os.PathLike[str]) -> int:
    """Run in the root of the project, without the variables that would let the tree leak in."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHONPATH")}
    return subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL).returncode


def build() -> pathlib.Path:
    """Return the wheel made from the sdist."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    log = WORK / "build.log"
    with log.open("w") as output:
        command = [sys.executable, "-m", "build", "--outdir", str(WORK / "dist")]
        code = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT).returncode
    if code:
        sys.exit(f"{log.read_text()}\nwheel: the build failed")
    (wheel,) = WORK.glob("dist/*.whl")
    return wheel


def foreign(wheel: pathlib.Path) -> list[str]:
    """Return the names in the wheel that have no business there, and a line for each missing stub."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    found = [
        name
        for name in names
        if not (name.startswith("rota/") and (name.endswith(SUFFIXES) or name == "rota/py.typed"))
    ]
    stubs = {name.removesuffix(".pyi") for name in names if name.endswith(".pyi")}
    built = {name.partition(".")[0] for name in names if name.endswith(".so")}
    found += [f"{name}: no stub for this module" for name in sorted(built - stubs)]
    found += [f"{name}: no module for this stub" for name in sorted(stubs - built)]
    return found


def tools() -> list[str]:
    """Return the requirements of the dev extra that run tests, so that versions are stated once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [line for line in project["optional-dependencies"]["dev"] if line.startswith(TEST_TOOLS)]


def test(wheel: pathlib.Path) -> int:
    """Install the wheel in an environment of its own and run the subset there."""
    place = WORK / "venv"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    quiet = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    if run(python, *quiet, wheel, *tools()):
        return 1
    inside = "import pathlib, sys, rota; sys.exit(sys.prefix not in str(list(rota.__path__)[0]))"
    if run(python, "-c", inside):
        print("wheel: the tests would import the tree, not the wheel")
        return 1
    subsets = [name for name in SUBSETS if any((ROOT / name).glob("**/test_*.py"))]
    if not subsets:
        print("wheel: there are no tests for it yet")
        return 0
    selection = ("-q", "-n", "2", "-m", "not tree and not slow")
    code = run(python, "-m", "pytest", "-p", "no:cacheprovider", *selection, *subsets)
    return 0 if code == NO_TESTS_COLLECTED else code


def main() -> int:
    """Return the exit status of the whole."""
    wheel = build()
    strangers = foreign(wheel)
    for line in strangers:
        print(f"wheel: {line}")
    print(f"wheel: {wheel.name}, {wheel.stat().st_size:,} bytes")
    return 1 if strangers else test(wheel)


if __name__ == "__main__":
    sys.exit(main())
