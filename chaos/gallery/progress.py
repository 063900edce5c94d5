"""A gallery's progress on standard error: bugs done, and at once what is not as it must be."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

from chaos.bar import Bar, now_column
from chaos.gallery.bugs import Bug
from chaos.gallery.judge import Row
from chaos.gallery.report import mark


class GalleryProgress(Bar):
    """A bar on a terminal, a line for every bug elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), now_column(), console=console)

    def begin(self, total: int) -> None:
        """So many bugs are planted, variants counted."""
        self._update(total=total)

    def bug(self, bug: Bug) -> None:
        """It is being planted."""
        self._update(now=f"{bug.key}: {bug.title}")

    def row(self, row: Row) -> None:
        """It is judged."""
        self._update(advance=1)
        if not self.live or not row.good:
            self._print(f"{row.key}: {mark(row)}" + "".join(f"\n    {why}" for why in row.why))
