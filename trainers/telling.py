"""What a supervisor tells whoever watches: steps, publications and findings, each once, from heartbeats and the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from storage.log import CommitLog, Publish
from trainers.events import Event, NonFiniteFound, Published, StepDone
from trainers.reports import Heartbeat


class Telling:
    """Remembers what was told."""

    def __init__(self, log: CommitLog, notify: Callable[[Event], None]) -> None:
        self._log, self._notify = log, notify
        self._steps: dict[int, int] = {}
        self._findings: set[tuple[int, int]] = set()
        self._seq = -1

    def beat(self, attempt: int, rank: int, beat: Heartbeat) -> bool:
        """Tells what is new in a rank's heartbeat. True if it has done a step since the last one."""
        self.non_finite(beat.findings)
        if beat.loss is None or self._steps.get(rank) == beat.step:
            return False
        self._steps[rank] = beat.step
        self._notify(StepDone(attempt, rank, beat.step, beat.loss))
        if rank == 0:
            self.published()
        return True

    def non_finite(self, findings: Iterable[NonFiniteFound]) -> None:
        """Every rank finds the same: what the first one says is told."""
        for found in findings:
            if (found.attempt, found.step) not in self._findings:
                self._findings.add((found.attempt, found.step))
                self._notify(found)

    def published(self) -> None:
        """Tells what the log has published since the last call."""
        for entry in self._log.read():
            if isinstance(entry, Publish) and entry.seq > self._seq:
                self._seq = entry.seq
                self._notify(Published(entry.attempt, entry.name, entry.step))
