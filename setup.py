"""Compile the Cython core; everything that is not compilation stands in pyproject.toml.

The source has three roots and one import tree:

    engine/    formats and kernels: C11 headers and the .pxd that declare them, cimported as engine.*
    pyx/       extension classes: pyx/rota/_core/ring.pyx becomes the module rota._core.ring
    bindings/  the Python package: a built module lands here, beside its .pyi

ROTA_BUILD in the environment picks a flavour: release (default), debug, coverage, sanitize or thread.
"""

from __future__ import annotations

import os
import pathlib
import platform
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

PYX = pathlib.Path("pyx")
ENGINE = pathlib.Path("engine")
FLAVOUR = os.environ.get("ROTA_BUILD") or "release"
FLAVOUR_STAMP = pathlib.Path("build/flavour")

MACHINES = ("x86_64", "aarch64")
if sys.platform != "linux" or platform.machine() not in MACHINES or sys.maxsize < 2**32:
    sys.exit(
        "rota builds only for 64-bit Python on Linux, x86_64 or aarch64; "
        f"this is {sys.platform} on {platform.machine()}."
    )

# Strict aliasing is off since the engine reads mapped bytes through structs.
COMMON = [
    "-std=gnu11",
    "-pthread",
    "-fno-strict-aliasing",
    "-fno-semantic-interposition",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
]
CFLAGS = {
    "release": ["-O2"],
    "debug": ["-O0", "-g3", "-UNDEBUG", "-DROTA_BUILD_DEBUG"],
    "coverage": ["-O0", "-g", "-DCYTHON_TRACE=1", "-DCYTHON_USE_SYS_MONITORING=0"],
    "sanitize": ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"],
    "thread": ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=thread"],
}
LDFLAGS = {"sanitize": ["-fsanitize=address,undefined"], "thread": ["-fsanitize=thread"]}
DIRECTIVES = {
    "language_level": 3,
    "binding": True,
    "embedsignature": True,
    "embedsignature.format": "python",
    # Generated pickling and __test__ tables are names that no stub declares.
    "auto_pickle": False,
    "autotestdict": False,
    # Offsets and indexes are checked where they enter, by typed errors, not at each use.
    "cdivision": True,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "freethreading_compatible": False,
    "linetrace": FLAVOUR == "coverage",
}

if FLAVOUR not in CFLAGS:
    sys.exit(f"ROTA_BUILD is {FLAVOUR!r}; it must be one of {', '.join(CFLAGS)}.")


def module_name(source: pathlib.Path) -> str:
    """Turn a path below pyx/ into the import path of its module."""
    return ".".join(source.relative_to(PYX).with_suffix("").parts)


def shared_sources() -> list[str]:
    """List what every module may include, so that an edit of any header rebuilds all of them."""
    found = [
        *ENGINE.glob("include/rota/*.h"),
        *ENGINE.rglob("*.pxd"),
        *PYX.rglob("*.pxd"),
    ]
    return sorted(path.as_posix() for path in found)


def remember_flavour() -> str:
    """Write the flavour down when it changed: a stamp newer than the modules has them rebuilt."""
    FLAVOUR_STAMP.parent.mkdir(exist_ok=True)
    if not FLAVOUR_STAMP.exists() or FLAVOUR_STAMP.read_text() != FLAVOUR:
        FLAVOUR_STAMP.write_text(FLAVOUR)
    return FLAVOUR_STAMP.as_posix()


def extensions() -> list[Extension]:
    """Describe one extension module for each .pyx below pyx/."""
    depends = [*shared_sources(), remember_flavour()]
    return [
        Extension(
            module_name(source),
            [source.as_posix()],
            include_dirs=["engine/include"],
            depends=depends,
            define_macros=[("_GNU_SOURCE", "1")],
            extra_compile_args=[*COMMON, *CFLAGS[FLAVOUR]],
            extra_link_args=["-pthread", *LDFLAGS.get(FLAVOUR, [])],
        )
        for source in sorted(PYX.rglob("*.pyx"))
    ]


if __name__ == "__main__":  # cythonize() starts worker processes, which import this file again
    jobs = os.cpu_count() or 1
    setup(
        options={"build_ext": {"parallel": jobs}},
        ext_modules=cythonize(
            extensions(),
            include_path=[".", "pyx"],
            # Coverage looks for the generated C beside the .pyx; all others keep the tree clean.
            build_dir=None if FLAVOUR == "coverage" else "build/cython",
            nthreads=jobs,
            compiler_directives=DIRECTIVES,
        ),
    )
