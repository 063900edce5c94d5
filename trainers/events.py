"""What the supervisor tells whoever watches it: live progress, and the controller that strikes or releases."""

from __future__ import annotations

from dataclasses import dataclass


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
    AttemptStarted | RankPlaced | TrainingStarted | StepDone | DeathDetected | DeathObserved | Chosen | Published
    | Finished | Log
)
