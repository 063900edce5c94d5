"""A sweep's progress on standard error: trials done, what failed so far, the time that is left."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from chaos.sweep.results import Result
from chaos.sweep.trials import Trial

_EVERY = 20  # trials, for a line where there is no terminal


class SweepProgress:
    """A bar on a terminal, a line for every so many trials elsewhere; what fails is shown at once."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, markup=False)
        self._bar = Progress(
            MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[now]}", markup=False),
            console=self._console, transient=True, disable=not self._console.is_terminal, speed_estimate_period=120,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None, now="")
        self._done = self._failed = self._total = 0

    def __enter__(self) -> SweepProgress:
        self._bar.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """What is being done before there are trials."""
        self._bar.update(self._task, now=text)
        if self._bar.disable:
            self._console.print(text)

    def begin(self, total: int, done: int) -> None:
        """So many trials there are, and so many were done in an earlier life of the sweep."""
        self._total, self._done = total, done
        self._bar.update(self._task, total=total, completed=done)
        self._console.print(f"{total} trials" + (f", {done} of them done before" if done else ""))

    def trial(self, trial: Trial) -> None:
        """It begins."""
        self._bar.update(self._task, now=f"{trial.name}" + (f"  ({self._failed} failed)" if self._failed else ""))

    def result(self, result: Result) -> None:
        """It is over."""
        self._done += 1
        self._bar.update(self._task, completed=self._done)
        if not result.good:
            self._failed += 1
            self._console.print(f"{result.trial}: {result.ending.value}: {result.why}", soft_wrap=True)
        elif self._bar.disable and self._done % _EVERY == 0:
            self._console.print(f"{self._done} of {self._total} trials, {self._failed} failed")
