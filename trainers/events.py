"""What the supervisor tells whoever watches it: live progress, and the controller that strikes or releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

What = Literal["loss", "gradient", "scaled_gradient"]
Action = Literal["stop", "skip"]


@dataclass(frozen=True)
class AttemptStarted:
    attempt: int


@dataclass(frozen=True)
class RankPlaced:
    """A process took a role; `rank` is None for the committer and standbys."""

    attempt: int
    role: str
    rank: int | None
    pid: int
    start_ticks: int
    host: str


@dataclass(frozen=True)
class TrainingStarted:
    attempt: int


@dataclass(frozen=True)
class StepDone:
    """`step` updates are done on `rank`; `loss` is the global batch's mean."""

    attempt: int
    rank: int
    step: int
    loss: float


@dataclass(frozen=True)
class NonFiniteFound:
    """Step `step` (updates done or skipped after it) had a loss or gradient that is not finite, on every rank alike.

    what: `scaled_gradient` is an overflow that the gradient scaler mends by itself. action: what was done with the
    update. gradient_norm: unscaled; scale: the scaler's at that moment, 1 without one.
    """

    attempt: int
    step: int
    what: What
    action: Action
    loss: float
    gradient_norm: float
    scale: float

    def __str__(self) -> str:
        value = f"loss is {self.loss}" if self.what == "loss" else f"gradient's norm is {self.gradient_norm}"
        if self.what == "scaled_gradient":
            value = f"gradient overflowed at scale {self.scale:g}"
        return f"step {self.step}: the {value}; " + ("update skipped" if self.action == "skip" else "stopping")


@dataclass(frozen=True)
class DeathDetected:
    attempt: int
    role: str
    rank: int | None
    pid: int
    start_ticks: int
    how: str
    detail: str = ""


@dataclass(frozen=True)
class DeathObserved:
    """The process is gone; `signal` as its parent saw it, None if nobody could see it."""

    pid: int
    start_ticks: int
    signal: int | None


@dataclass(frozen=True)
class Chosen:
    """`name` is None for a start from nothing; `rejected` holds (name, reason), newest first."""

    attempt: int
    name: str | None
    step: int
    rejected: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Published:
    attempt: int
    name: str
    step: int


@dataclass(frozen=True)
class Finished:
    step: int


@dataclass(frozen=True)
class Log:
    text: str


Event = (
    AttemptStarted | RankPlaced | TrainingStarted | StepDone | NonFiniteFound | DeathDetected | DeathObserved | Chosen
    | Published | Finished | Log
)
