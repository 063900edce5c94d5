"""Messages between ranks, committer and supervisor: plain values, without torch, so that the committer needs none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage.history import Head
from storage.manifest import FileKind
from storage.process import ProcessId
from trainers.events import NonFiniteFound


@dataclass(frozen=True)
class FileReport:
    """A file that a rank has written and synced. The digest is of the bytes in memory."""

    path: str
    kind: FileKind
    bytes: int
    digest: str


@dataclass(frozen=True)
class SaveReport:
    """One rank's part of one checkpoint. parts: digests of the rank's own; texts: the JSON of the replicated ones."""

    attempt: int
    step: int
    rank: int
    files: tuple[FileReport, ...]
    replicated: dict[str, str]
    local: dict[str, str]
    texts: Mapping[str, str]
    parts: dict[str, str]
    head: Head
    clock: int
    microbatch: int = 0

    @property
    def moment(self) -> tuple[int, int, int]:
        """(attempt, step, microbatch): what belongs together."""
        return self.attempt, self.step, self.microbatch


@dataclass(frozen=True)
class CommitterSetup:
    """What the committer must know of the run."""

    run: str
    folder: str
    world: int
    global_batch: int
    keep: int
    unavailable_deadline_s: float = 10.0


@dataclass(frozen=True)
class Member:
    """A process of the run, as it names itself."""

    process: ProcessId
    history: str
    node: str
    launcher: str


WAITS_FOR_INPUT = "waits for input"
WARMS_UP = "warms up"  # of a process that got a rank before it was warm


@dataclass(frozen=True)
class Heartbeat:
    """`ticks` grows with every point passed; `phase` is the last one, or WAITS_FOR_INPUT, or WARMS_UP.

    loss: of the last step, None before the first one of the attempt. findings: new since the last heartbeat.
    """

    ticks: int
    phase: str
    step: int
    loss: float | None
    clock: int
    findings: tuple[NonFiniteFound, ...] = ()


@dataclass(frozen=True)
class Vote:
    """A rank's word on a candidate. `damaged` means definite damage; not ok and not damaged means unavailable."""

    ok: bool
    damaged: bool = False
    reason: str = ""
    bytes: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a rank's training ended: `finished` or `interrupted`. findings: those that no heartbeat has carried."""

    finished: bool
    step: int
    reason: str = ""
    findings: tuple[NonFiniteFound, ...] = ()
