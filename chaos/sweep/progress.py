"""A sweep's progress on standard error: trials done, what failed so far, the time that is left."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

from chaos.bar import Bar, now_column
from chaos.printable import printable
from chaos.sweep.results import Result
from chaos.sweep.trials import Trial

_EVERY = 20  # trials, for a line where there is no terminal


class SweepProgress(Bar):
    """A bar on a terminal, a line for every so many trials elsewhere; what fails is shown at once."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), now_column(), console=console)
        self._done = self._failed = self._total = 0
        self._under_way: dict[str, None] = {}  # in the order in which they began

    def say(self, text: str) -> None:
        """What is being done before there are trials."""
        self._update(now=text)
        if not self.live:
            self._print(text)

    def begin(self, total: int, done: int) -> None:
        """So many trials there are, and so many were done in an earlier life of the sweep."""
        self._total, self._done = total, done
        self._update(total=total, completed=done)
        self._print(f"{total} trials" + (f", {done} of them done before" if done else ""))

    def trial(self, trial: Trial) -> None:
        """It begins, perhaps beside others."""
        self._under_way[trial.name] = None
        self._show()

    def result(self, result: Result) -> None:
        """It is over."""
        self._under_way.pop(result.trial, None)
        self._done += 1
        if not result.good:
            self._failed += 1
            self._print(printable(f"{result.trial}: {result.ending.value}: {result.why}"))
        elif not self.live and self._done % _EVERY == 0:
            self._print(f"{self._done} of {self._total} trials, {self._failed} failed")
        self._show()

    def _show(self) -> None:
        failed = f"({self._failed} failed)" if self._failed else ""
        self._update(completed=self._done, now=printable("  ".join([*self._under_way, failed]).rstrip()))
