"""What `lab cursor` trains: the built-in `tiny`, and, if asked, a trainer that stores another cursor than the true one.

The true cursor is the first position that no update has applied. A planted defect counts batches that were only
prefetched, or takes the cursor of an older checkpoint: then the stored cursor and the place from which the input goes
on after a restart are `cursor_error` batches off, while parameters, optimizer and step counter are right. The defect is
planted in the processes that build this workload, and in no other.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

import trainers.rank
from storage.sealed import unseal
from trainers.errors import WorkloadError
from trainers.pipeline import Pipeline
from trainers.state import Progress
from trainers.workload import Batch, Config, Workload
from trainers.workloads import tiny

_DEADLINE_S, _POLL_S = 5.0, 0.002


def build(config: Config) -> Workload:
    """Keys: rows; log, of the run; publish and at_pass: forward pass `at_pass` of a life ends when the checkpoint of
    step `publish` is published, so that a kill right behind it finds it so; cursor_error, in batches."""
    error = int(config.get("cursor_error", 0))
    if error:
        _plant(error)
    workload = tiny.build({"rows": config["rows"]})
    waits = _WaitsForCheckpoint(Path(config["log"]), int(config["publish"]), int(config["at_pass"]))
    return Workload(workload.model, workload.optimizer, waits.loss, workload.dataset, workload.scheduler)


class _WaitsForCheckpoint:
    """The loss of `tiny`. In one pass it waits until the run's log has the checkpoint that the kill is to find."""

    def __init__(self, log: Path, publish: int, at_pass: int) -> None:
        self._log = log
        self._publish, self._at_pass = publish, at_pass
        self._passes = 0

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        self._passes += 1
        limit = time.monotonic() + _DEADLINE_S
        while self._passes == self._at_pass and not self._published():
            if time.monotonic() > limit:
                raise WorkloadError(f"step {self._publish} was not published within {_DEADLINE_S:g} s: {self._log}")
            time.sleep(_POLL_S)
        return tiny.loss(model, batch)

    def _published(self) -> bool:
        bodies = (unseal(path.read_bytes(), path.name)[0] for path in self._log.glob("*.json"))
        return any(body["kind"] == "publish" and body["step"] >= self._publish for body in bodies)


class _Misplaced(Pipeline):
    """After a restart it goes on at the wrong batch."""

    error = 0

    def __init__(self, *args: Any, first_step: int, last_step: int, attempt: int, **others: Any) -> None:
        off = self.error if attempt > 0 and first_step > 0 else 0
        super().__init__(*args, first_step=first_step + off, last_step=last_step + off, attempt=attempt, **others)


def _plant(error: int) -> None:
    _Misplaced.error = error
    trainers.rank.Pipeline = _Misplaced  # type: ignore[attr-defined]
    Progress.advance = _advance_wrongly  # type: ignore[method-assign]


_advance = Progress.advance


def _advance_wrongly(self: Progress, loss: float, global_batch: int, *, skipped: bool) -> None:
    _advance(self, loss, global_batch, skipped=skipped)
    self.cursor = (self.step + _Misplaced.error) * global_batch
