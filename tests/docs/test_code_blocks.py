"""What the pages show works: every page's code runs, in order, in an empty directory."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

from tests.docs import run_blocks

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CAVEATS.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNNER = pathlib.Path(run_blocks.__file__)
PAGE_SECONDS_MAX = 100

pytestmark = pytest.mark.tree


def has_face() -> bool:
    """Tell whether there is a package to show; a namespace package has no origin."""
    spec = importlib.util.find_spec("rota")
    return spec is not None and spec.origin is not None


def run_page(page: pathlib.Path, directory: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run a page in a process of its own, with the commands of this environment first on the path."""
    binaries = str(pathlib.Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}
    return subprocess.run(
        [sys.executable, RUNNER, page],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PAGE_SECONDS_MAX,
    )


@pytest.mark.parametrize("page", [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES])
def test_blocks_of_a_page_run(page: pathlib.Path, directory: pathlib.Path) -> None:
    if not any(run_blocks.runs(block) for block in run_blocks.blocks(page.read_text())):
        return
    if not has_face():
        pytest.skip("there is no rota to import yet")
    done = run_page(page, directory)
    assert done.returncode == 0, done.stdout


def test_blocks_share_a_namespace_and_keep_their_line_numbers(directory: pathlib.Path) -> None:
    page = directory / "page.md"
    page.write_text("# A page\n```python\nx = 1\n```\ntext\n```python\nassert x == 2\n```\n")
    done = run_page(page, directory)
    assert done.returncode == 1
    assert f'{page}", line 7' in done.stdout


def test_only_marked_shell_blocks_run_and_their_failure_is_told(directory: pathlib.Path) -> None:
    page = directory / "page.md"
    page.write_text("```sh\ntouch no\n```\n```console run\n$ touch yes\nok\n$ false\n```\n")
    done = run_page(page, directory)
    assert done.returncode == 1
    assert "page.md:5: the commands failed" in done.stdout
    assert (directory / "yes").exists()
    assert not (directory / "no").exists()


def test_a_block_left_open_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 2: this block is never closed"):
        run_blocks.blocks("text\n```python\nx = 1\n")
