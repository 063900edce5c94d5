"""A check's progress on standard error: how much of the budget is used, what is being killed, what failed."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, TextColumn

from chaos.bar import Bar, now_column
from chaos.printable import printable
from chaos.sweep.results import Result
from chaos.sweep.trials import Trial

_EVERY = 10  # trials, for a line where there is no terminal


class CheckProgress(Bar):
    """A bar that fills with the budget on a terminal, a line for every so many trials elsewhere; failures at once."""

    def __init__(self, budget_s: float | None, console: Console | None = None) -> None:
        limit = "" if budget_s is None else f"of {budget_s:g} s"
        elapsed = TextColumn("{task.completed:.0f} s", markup=False)
        super().__init__(BarColumn(), elapsed, TextColumn(limit), now_column(), total=budget_s, console=console)
        self._began = time.monotonic()
        self._done = self._failed = 0

    def say(self, text: str) -> None:
        """What is going on beside trials."""
        self._show(text)
        if not self.live:
            self._print(text)

    def trial(self, trial: Trial) -> None:
        """It begins."""
        failed = f", {self._failed} failed" if self._failed else ""
        self._show(f"{self._done} trials{failed}, now {printable(trial.name)}")

    def result(self, result: Result) -> None:
        """It is over."""
        self._done += 1
        self._failed += not result.good
        if not result.good:
            text = f"{result.trial}: {result.ending.value}: {result.why}"
            self._print(printable(text))
        elif not self.live and self._done % _EVERY == 0:
            self._print(f"{self._done} trials in {self._elapsed_s():.0f} s, {self._failed} failed")

    def _show(self, now: str) -> None:
        self._update(completed=self._elapsed_s(), now=now)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began
