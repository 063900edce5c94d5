"""A gallery's progress on standard error: bugs done, and at once what is not as it must be."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from chaos.gallery.bugs import Bug
from chaos.gallery.judge import Row
from chaos.gallery.report import mark


class GalleryProgress:
    """A bar on a terminal, a line for every bug elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, markup=False)
        self._bar = Progress(
            MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[now]}", markup=False),
            console=self._console, transient=True, disable=not self._console.is_terminal, speed_estimate_period=120,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None, now="starting")

    def __enter__(self) -> GalleryProgress:
        self._bar.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, total: int) -> None:
        """So many bugs are planted, variants counted."""
        self._bar.update(self._task, total=total)

    def bug(self, bug: Bug) -> None:
        """It is being planted."""
        self._bar.update(self._task, now=f"{bug.key}: {bug.title}")

    def row(self, row: Row) -> None:
        """It is judged."""
        self._bar.advance(self._task)
        if self._bar.disable or not row.good:
            self._console.print(f"{row.key}: {mark(row)}" + "".join(f"\n    {why}" for why in row.why), soft_wrap=True)
