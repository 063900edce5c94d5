"""Live progress on standard error: step, loss, attempt, what was just killed. Fed by supervisor events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from chaos.bar import Bar, now_column
from chaos.faults import Fault
from chaos.receipts import read_receipts
from chaos.report import signal_name, who
from chaos.twin import TwinEvent
from storage.errors import StorageError
from trainers.events import (
    AttemptStarted,
    Chosen,
    DeathDetected,
    DeathObserved,
    Event,
    Finished,
    Log,
    NonFiniteFound,
    Published,
    StepDone,
)

_LINES_PER_RUN = 10  # where there is no terminal: this many lines of steps


@contextmanager
def status(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A line on a terminal's standard error that says what is being done; nothing elsewhere."""
    console = Console(stderr=True, highlight=False, markup=False)
    if quiet or not console.is_terminal:
        yield lambda text: None
        return
    with console.status("") as line:
        yield lambda text: line.update(text)


class LiveProgress(Bar):
    """A bar on a terminal, single lines elsewhere. `notify` may be called from any thread."""

    def __init__(
        self, steps: int, folder: Path, faults: tuple[Fault, ...], console: Console | None = None
    ) -> None:
        super().__init__(
            TextColumn("{task.fields[attempt]}", markup=False), BarColumn(), now_column(), TimeElapsedColumn(),
            total=steps, console=console, now="", attempt="starting",
        )  # fmt: skip
        self._steps, self._folder = steps, folder
        self._faults = {fault.id: fault for fault in faults}
        self._attempt = 0
        self._shown = 0
        self._names: dict[tuple[int, int], str] = {}
        self._lock = threading.Lock()

    def notify(self, event: Event | TwinEvent) -> None:
        """Shows the event. Of the twin: its steps only, for nothing else happens to it."""
        with self._lock:
            if isinstance(event, TwinEvent):
                self._twin(event.event)
            elif isinstance(event, StepDone):
                self._step(event)
            else:
                self._say(event)

    def _twin(self, event: Event) -> None:
        if isinstance(event, StepDone):
            self._step(event, "twin")
        elif isinstance(event, AttemptStarted):
            self._shown = 0
            self._update(attempt="twin", completed=0)
        elif isinstance(event, Log):
            self._print(event.text)

    def _step(self, event: StepDone, who: str = "") -> None:
        state = f"step {event.step}/{self._steps}  loss {event.loss:.4f}"
        self._update(completed=event.step, now=state)
        every = max(1, self._steps // _LINES_PER_RUN)
        if not self.live and event.step % every == 0 and event.step != self._shown:
            self._shown = event.step
            self._print(f"{who or f'attempt {event.attempt}'}  {state}")

    def _say(self, event: Event) -> None:
        match event:
            case AttemptStarted(attempt):
                self._attempt, self._shown = attempt, 0
                self._update(attempt=f"attempt {attempt}")
            case DeathDetected():
                self._print(self._death(event))
            case DeathObserved() if event.signal is not None:
                name = self._names.get((event.pid, event.start_ticks), "a process")
                self._print(f"  {name} (pid {event.pid}) is gone: {signal_name(event.signal)}")
            case Chosen(attempt, name, step, rejected) if attempt > 0 or name is not None:
                for other, reason in rejected:
                    self._print(f"  rejected {other}: {reason}")
                self._print(f"  attempt {attempt} goes on from {name or 'the start'} (step {step})")
            case Published(_, name, _):
                self._update(attempt=f"attempt {self._attempt}, saved {name}")
            case Finished(step):
                self._print(f"step {step} reached")
            case NonFiniteFound(attempt):
                self._print(f"attempt {attempt}: {event}")
            case Log(text):
                self._print(text)

    def _death(self, event: DeathDetected) -> str:
        name = who(event.role, event.rank)
        self._names[(event.pid, event.start_ticks)] = name
        fault = self._fault_of(event.pid, event.start_ticks)
        struck = f"struck by {fault.id}, {fault}" if fault else "no fault of this experiment"
        how = event.how.replace("_", " ")
        if event.how == "raised" and fault is None:
            how += f" {event.detail}"
        return f"attempt {event.attempt}: {name} (pid {event.pid}) {how}: {struck}"

    def _fault_of(self, pid: int, ticks: int) -> Fault | None:
        try:
            receipts = read_receipts(self._folder)
        except (StorageError, OSError):
            return None
        for receipt in receipts:
            if (receipt.target.pid, receipt.target.start_ticks) == (pid, ticks):
                return self._faults.get(receipt.fault)
        return None
