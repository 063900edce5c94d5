"""What a run was meant to be, and the receipts of what struck it: plan, dataset, faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_HARMLESS = frozenset({"damage", "slow", "stray", "outage"})


@dataclass(frozen=True)
class Process:
    """One process of one boot of one host: a pid alone names nothing, since pids are used again."""

    pid: int
    start_ticks: int
    host: str


@dataclass(frozen=True)
class Head:
    """How far a history had come, as somebody else recorded it."""

    file: str
    n: int
    chain: str


@dataclass(frozen=True)
class Gate:
    role: str
    rank: int | None
    point: str
    hit: int


@dataclass(frozen=True)
class Slow:
    """So many passages, from the one that is named on, took so much longer each."""

    delay_s: float
    passages: int


@dataclass(frozen=True)
class Outage:
    """For one process so many uses of the store failed, or all for so many seconds."""

    operations: int | None
    for_s: float | None


@dataclass(frozen=True)
class Fault:
    """One planned fault. Either point and hit are set, or after_s. grace_s, slow, outage: of one kind each."""

    id: str
    kind: str
    attempt: int
    role: str
    rank: int | None
    point: str | None
    hit: int | None
    after_s: float | None
    gate: Gate | None
    grace_s: float | None = None
    slow: Slow | None = None
    outage: Outage | None = None

    def __str__(self) -> str:
        who = self.role if self.rank is None else f"{self.role} {self.rank}"
        where = (
            f"{self.point} hit {self.hit}" if self.point is not None else f"{self.after_s} s into training"
        )
        return f"{self.id} ({self.kind} of {who} at {where} of attempt {self.attempt})"


@dataclass(frozen=True)
class GateHeld:
    role: str
    rank: int | None
    point: str
    hit: int
    held: bool

    @property
    def gate(self) -> Gate:
        return Gate(self.role, self.rank, self.point, self.hit)


@dataclass(frozen=True)
class Receipt:
    """path, offset, before, after: of a damage only; before and after are digests of the whole file. Of a stray
    manifest, path and after. grace_s, slow, outage: as planned.
    """

    fault: str
    run: str
    attempt: int
    role: str
    rank: int | None
    point: str | None
    hit: int | None
    kind: str
    target: Process
    t_ns: int
    boot: str
    gate: GateHeld | None
    history: Head | None
    path: str | None = None
    offset: int | None = None
    before: str | None = None
    after: str | None = None
    grace_s: float | None = None
    slow: Slow | None = None
    outage: Outage | None = None

    @property
    def lethal(self) -> bool:
        """Whether the fault ends its process, or could: what does not explains no death."""
        return self.kind not in _HARMLESS


@dataclass(frozen=True)
class PlanSpec:
    """Parameters of plan format killpoint.plan/1."""

    rows: int
    group_rows: int
    window_groups: int
    seed: int


@dataclass(frozen=True)
class DatasetNamed:
    path: str
    fingerprint: str
    rows: int


@dataclass(frozen=True)
class DataNamed:
    """In the `run` event, or in any later event of a supervisor."""

    dataset: DatasetNamed
    plan: PlanSpec


@dataclass(frozen=True)
class RunBegun:
    """training_digest: of what determines the numbers. platform: versions and processor. twin: whether one was wanted.

    tolerance: how far a loss, a rate or a gradient's norm may be from the twin's, absolute; 0 for not a bit.
    experiment_digest: of the experiment file's bytes.
    """

    run: str
    seed: int
    config_digest: str
    code_version: str
    reproduce: str
    ranks: int
    microbatches: int
    global_batch: int
    steps: int
    save_every: int
    keep: int
    training_digest: str
    platform: Mapping[str, str]
    twin: bool
    tolerance: float
    faults: tuple[Fault, ...]
    save_every_microbatches: int | None = None
    experiment_digest: str | None = None
