"""A check's progress on standard error: how much of the budget is used, what is being killed, what failed."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from chaos.printable import printable
from chaos.sweep.results import Result
from chaos.sweep.trials import Trial

_EVERY = 10  # trials, for a line where there is no terminal


class CheckProgress:
    """A bar that fills with the budget on a terminal, a line for every so many trials elsewhere; failures at once."""

    def __init__(self, budget_s: float | None, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, markup=False)
        self._began = time.monotonic()
        limit = "" if budget_s is None else f"of {budget_s:g} s"
        self._bar = Progress(
            BarColumn(), TextColumn("{task.completed:.0f} s", markup=False), TextColumn(limit),
            TextColumn("{task.fields[now]}", markup=False),
            console=self._console, transient=True, disable=not self._console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=budget_s, now="starting")
        self._done = self._failed = 0

    def __enter__(self) -> CheckProgress:
        self._bar.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """What is going on beside trials."""
        self._update(text)
        if self._bar.disable:
            self._console.print(text, soft_wrap=True)

    def trial(self, trial: Trial) -> None:
        """It begins."""
        failed = f", {self._failed} failed" if self._failed else ""
        self._update(f"{self._done} trials{failed}, now {printable(trial.name)}")

    def result(self, result: Result) -> None:
        """It is over."""
        self._done += 1
        self._failed += not result.good
        if not result.good:
            text = f"{result.trial}: {result.ending.value}: {result.why}"
            self._console.print(printable(text), soft_wrap=True)
        elif self._bar.disable and self._done % _EVERY == 0:
            self._console.print(f"{self._done} trials in {self._elapsed_s():.0f} s, {self._failed} failed")

    def _update(self, now: str) -> None:
        self._bar.update(self._task, completed=self._elapsed_s(), now=now)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began
