"""What all progress on standard error shares: a bar on a terminal, lines of text elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn

_ESTIMATED_OVER_S = 120.0  # the time that is left, where a column shows it


def now_column() -> TextColumn:
    """What is being done, word for word."""
    return TextColumn("{task.fields[now]}", markup=False)


class Bar:
    """One bar, gone when its block ends. live: whether there is a terminal that shows it.

    fields: what the columns name beside `now`.
    """

    def __init__(
        self, *columns: ProgressColumn, total: float | None = None, console: Console | None = None, **fields: Any
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False, markup=False)
        self.live = self._console.is_terminal
        self._bar = Progress(
            *columns, console=self._console, transient=True, disable=not self.live,
            speed_estimate_period=_ESTIMATED_OVER_S,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=total, **{"now": "starting", **fields})

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def _update(self, **what: Any) -> None:
        """`completed`, `total`, `advance`, and fields."""
        self._bar.update(self._task, **what)

    def _print(self, text: str) -> None:
        """Above the bar. Where there is none a line stays one line, as logs have it."""
        self._bar.console.print(text, soft_wrap=not self.live)
