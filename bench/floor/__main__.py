"""Build each floor program and run it where the repositories would be: `python -m bench.floor [NAME...]`."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ENGINE = HERE.parent.parent / "engine" / "include"


def build(source: pathlib.Path, place: pathlib.Path) -> pathlib.Path:
    """Compile one program against the headers of the engine."""
    program = place / source.stem
    command = ["cc", "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-pthread", f"-I{ENGINE}", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def main(names: list[str]) -> None:
    """Print the least and the mean time of each step."""
    directory = pathlib.Path("build/bench")
    directory.mkdir(parents=True, exist_ok=True)
    print(f"{'nanoseconds':58} {'least':>10} {'mean':>10}")
    with tempfile.TemporaryDirectory(dir=directory) as place:
        for source in sorted(HERE.glob("*.c")):
            if not names or source.stem in names:
                program = build(source, pathlib.Path(place))
                print(f"-- {source.stem}", flush=True)
                subprocess.run([str(program.resolve())], check=True, cwd=place)


if __name__ == "__main__":
    main(sys.argv[1:])
