"""A bar with rate and remaining time on standard error, where that is a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

INTERVAL_SECONDS = 0.1


class Bar:
    """Shows how far a long piece of work has come. `done` and `total` are what the bar is about: bytes."""

    def __init__(self, title: str, total: int | None, noun: str, *, quiet: bool = False) -> None:
        self.title, self.total, self.noun = title, total, noun
        self.visible = sys.stderr.isatty() and not quiet
        self.started = time.monotonic()
        self.shown_at = 0.0
        self.progress: Progress | None = None
        self.task: TaskID | None = None

    def __enter__(self) -> Bar:
        if self.visible:
            self.progress = self.built()
            self.task = self.progress.add_task(self.title, total=self.total, figures="")
            self.progress.start()
        return self

    def built(self) -> Progress:
        """Return the columns: what, bar, percent, records and their rate, time left."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )

    def show(self, done: int, count: int, total: int | None = None) -> None:
        """Tell how far it has come, and how many of what were handled; cheap enough to call often."""
        now = time.monotonic()
        if self.progress is None or self.task is None or now - self.shown_at < INTERVAL_SECONDS:
            return
        self.shown_at = now
        rate = count / max(now - self.started, 1e-9)
        figures = f"{count:,} {self.noun}, {rate:,.0f}/s"
        self.progress.update(self.task, completed=done, total=total or self.total, figures=figures)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.progress is not None:
            self.progress.stop()
