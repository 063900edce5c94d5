"""Errors of the trainers package. Each message says what happened, where, and what to do.

TrainingError
├── WorkloadError            the workload cannot be imported or built, or breaks the seam's rules
├── WorkloadRaised           the workload raised an exception of its own while it was trained
├── DatasetError             the dataset is missing, malformed or has columns that cannot be digested
├── StateError               a part of the state is missing, cannot be captured or does not fit
├── FingerprintMismatch      the checkpoint belongs to another dataset, plan, configuration or code
├── NonFinite                a loss or gradient is not finite, and the run's policy is to stop
├── PrecisionUnavailable     the run's precision needs a device that a rank does not have
├── Interrupted              this attempt is over for a rank: a peer, the committer or the supervisor said so
├── CandidateRejected        a rank voted no on a checkpoint (definite damage)
└── GaveUp                   the supervisor reached a limit and stopped; nothing published is lost
"""

from __future__ import annotations

from trainers.events import NonFiniteFound


class TrainingError(Exception):
    """Root of every error that this package raises on purpose."""


class WorkloadError(TrainingError):
    """The workload cannot be imported or built, or what it returned breaks the seam's rules."""


class WorkloadRaised(TrainingError):
    """An exception of the workload's own. `where`: file and line; `step`: the update that was under way, from 1."""

    def __init__(self, what: str, where: str, step: int, kind: str) -> None:
        super().__init__(what, where, step, kind)
        self.what, self.where, self.step, self.kind = what, where, step, kind

    def __str__(self) -> str:
        return f"{self.what} ({self.where}, in step {self.step})"

    @property
    def identity(self) -> tuple[str, str, int]:
        """Equal for what would come again: type, place and step."""
        return self.kind, self.where, self.step


class DatasetError(TrainingError):
    """The dataset folder is missing, empty or holds something that cannot be read or digested."""


class StateError(TrainingError):
    """A part of the training state is missing, of the wrong shape, or not serialisable without pickle."""


class FingerprintMismatch(TrainingError):
    """The checkpoint was written for another dataset, plan, configuration or code."""


class NonFinite(TrainingError):
    """A loss or gradient is not finite, and the run's policy is to stop. `found`, if known, says where."""

    def __init__(self, message: str, found: NonFiniteFound | None = None) -> None:
        super().__init__(message, found)
        self.found = found

    def __str__(self) -> str:
        return str(self.args[0])


class PrecisionUnavailable(TrainingError):
    """The precision that the run asks for needs a device that a rank does not have."""


class Interrupted(TrainingError):
    """The attempt that this rank works for is over."""


class CandidateRejected(TrainingError):
    """This rank cannot load the checkpoint: it is definitely damaged."""


class GaveUp(TrainingError):
    """The supervisor stopped: a limit was reached or nothing is left to restore from."""
