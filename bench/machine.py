"""What the figures were measured on."""

from __future__ import annotations

import os
import pathlib
import platform
from typing import Any

import rota
from bench.measure import Setting
from bench.rows.syncing import lone_sync_seconds

__all__ = ["describe"]


def processor() -> str:
    """Return the name that the kernel has for the processor."""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def file_system(path: pathlib.Path) -> str:
    """Return the type of the file system that holds a path."""
    longest, kind = "", "unknown"
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, origin = line.partition(" - ")
        point = mount.split()[4]
        if path.resolve().is_relative_to(point) and len(point) >= len(longest):
            longest, kind = point, origin.split()[0]
    return kind


def describe(setting: Setting) -> dict[str, Any]:
    """Processor, kernel, file system and what one sync costs there."""
    setting.directory.mkdir(parents=True, exist_ok=True)
    return {
        "rota": rota.__version__,
        "python": platform.python_version(),
        "processor": processor(),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "kernel": platform.release(),
        "file_system": file_system(setting.directory),
        "lone_sync_us": lone_sync_seconds(setting) * 1e6,
    }
