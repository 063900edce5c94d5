"""Progress of `killpoint intervals` on standard error: runs done, the one at hand, about how long the rest takes."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from chaos.bar import Bar, now_column
from chaos.cost.study import Watch
from chaos.cost.values import Run
from trainers.events import AttemptStarted, StepDone

_MINUTE_S, _HOUR_S = 60, 3600


class IntervalsProgress(Bar):
    """A bar on a terminal, a line for every run elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(MofNCompleteColumn(), TextColumn("runs"), BarColumn(), now_column(), console=console)
        self._total = self._done = self._attempt = 0
        self._name = self._left = ""

    @property
    def watch(self) -> Watch:
        """To be told what goes on."""
        return Watch(self.begin, self.run, self.event, self.done)

    def begin(self, total: int, done: int) -> None:
        """So many runs there are, and so many are done. Said again when the kills are planned."""
        if done and not self._total:
            self._print(f"{done} of {total} runs were done before")
        self._total, self._done = total, done
        self._update(total=total, completed=done)

    def run(self, name: str, kills: int) -> None:
        """It begins."""
        self._name, self._attempt = f"{name}, {said_kills(kills)}", 0
        self._show("")

    def event(self, event: Any) -> None:
        """Of the run at hand; its twin's come wrapped, and are not shown."""
        if isinstance(event, AttemptStarted):
            self._attempt = event.attempt
        elif isinstance(event, StepDone) and self.live:
            self._show(f", attempt {self._attempt}, step {event.step}")

    def done(self, run: Run, left_s: float | None) -> None:
        """It is over."""
        self._done += 1
        self._update(completed=self._done)
        self._left = "" if left_s is None or self._done >= self._total else f"; {said_time(left_s)} left"
        if not self.live or run.verdict != "valid":
            why = f": {run.why}" if run.why else ""
            what = f"{run.name}, {said_kills(run.kills)}: {run.verdict}{why}, {run.wall_s:.0f} s"
            self._print(f"{self._done} of {self._total} runs: {what}{self._left}")

    def _show(self, what: str) -> None:
        self._update(now=f"{self._name}{what}{self._left}")


def said_kills(count: int) -> str:
    """`1 kill`, `no kill`, `3 kills`."""
    return {0: "no kill", 1: "1 kill"}.get(count, f"{count} kills")


def said_time(seconds: float) -> str:
    """About how long."""
    if seconds < _MINUTE_S:
        return "less than a minute"
    if seconds < _HOUR_S:
        return f"about {seconds / _MINUTE_S:.0f} min"
    return f"about {seconds / _HOUR_S:.1f} h"
