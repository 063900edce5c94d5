"""What `lab cursor` trains: the built-in `tiny`, so that the kill finds what the lab says, however slow the machine.

The input of the first attempt waits for two things: that the whole prefetch lies ready behind the last update to be
applied, and then, where the kill will strike, that the checkpoint of that update is published.

If asked, the trainer stores another cursor than the true one, the first position that no update has applied. A planted
defect counts batches that were only prefetched, or takes the cursor of an older checkpoint: then the stored cursor and
the place from which the input goes on after a restart are `cursor_error` batches off, while parameters, optimizer and
step counter are right. All this is planted in the processes that build this workload, and in no other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trainers.rank
from storage.sealed import unseal
from trainers.errors import WorkloadError
from trainers.pipeline import Pipeline
from trainers.source import Microbatch
from trainers.state import Progress
from trainers.workload import Config, Workload
from trainers.workloads import tiny

PATIENCE_S = 50.0  # with its input a rank may be slow for 60 s before the supervisor takes that for a hang
_POLL_S = 0.002


def build(config: Config) -> Workload:
    """Keys: rows; log, of the run; publish, the step whose checkpoint the kill is to find; at_microbatch, which is
    handed out once it is published; ahead, of microbatches ready when the last one of that step is handed out;
    cursor_error, in batches.
    """
    PlannedInput.log, PlannedInput.publish = Path(config["log"]), int(config["publish"])
    PlannedInput.at_microbatch, PlannedInput.ahead = int(config["at_microbatch"]), int(config["ahead"])
    PlannedInput.error = int(config.get("cursor_error", 0))
    trainers.rank.Pipeline = PlannedInput  # type: ignore[attr-defined]
    if PlannedInput.error:
        Progress.advance = _advance_wrongly  # type: ignore[method-assign]
    return tiny.build({"rows": config["rows"]})


class PlannedInput(Pipeline):
    """Of a first attempt: waits for what the kill is to find. Of a later one: goes on at the wrong batch, if asked."""

    log = Path()
    publish = at_microbatch = ahead = error = 0

    def __init__(self, *args: Any, first_step: int, last_step: int, attempt: int, **others: Any) -> None:
        off = self.error if attempt > 0 and first_step > 0 else 0
        self._more, self._over, self._first = threading.Condition(), False, attempt == 0
        super().__init__(*args, first_step=first_step + off, last_step=last_step + off, attempt=attempt, **others)

    def next(self) -> Microbatch:
        """As the trainers' own. Raises WorkloadError if what is waited for does not come about."""
        microbatch = super().next()
        if self._first:
            self.waiting = True  # the supervisor is as patient as with any input
            if self._consumed == self.publish * self._share.microbatches:
                self._await_prefetched()
            if self._consumed == self.at_microbatch:
                self._await_published()
            self.waiting = False
        return microbatch

    def _await_prefetched(self) -> None:
        with self._more:
            if not self._more.wait_for(lambda: self._over or self.stats().depth >= self.ahead, PATIENCE_S):
                raise WorkloadError(f"only {self.stats().depth} of {self.ahead} microbatches were prefetched behind "
                                    f"step {self.publish} within {PATIENCE_S:g} s: this machine is too busy, try again")

    def _microbatches(self) -> Iterator[Microbatch]:
        """Who asks for another one has put the one before into the queue and counted it."""
        try:
            for microbatch in super()._microbatches():
                self._tell()
                yield microbatch
        finally:
            self._over = True  # `next` raises what ended it
            self._tell()

    def _tell(self) -> None:
        with self._more:
            self._more.notify_all()

    def _await_published(self) -> None:
        limit = time.monotonic() + PATIENCE_S
        while not self._published() and not self._closed.is_set():
            if time.monotonic() > limit:
                raise WorkloadError(f"step {self.publish} was not published within {PATIENCE_S:g} s: {self.log}")
            time.sleep(_POLL_S)

    def _published(self) -> bool:
        bodies = (unseal(path.read_bytes(), path.name)[0] for path in self.log.glob("*.json"))
        return any(body["kind"] == "publish" and body["step"] >= self.publish for body in bodies)


_advance = Progress.advance


def _advance_wrongly(self: Progress, loss: float, global_batch: int, *, skipped: bool) -> None:
    _advance(self, loss, global_batch, skipped=skipped)
    self.cursor = (self.step + PlannedInput.error) * global_batch
