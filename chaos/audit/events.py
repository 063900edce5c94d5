"""The history's events and the receipts, typed: only what a check uses. The reader makes `Other` of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

W = TypeVar("W", covariant=True)


@dataclass(frozen=True)
class Event(Generic[W]):
    """One line. Order between files is by `clock` only; t_ns is monotonic within one boot of one host."""

    file: str
    n: int
    t_ns: int
    clock: int
    attempt: int | None
    what: W


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
class Fault:
    """One planned fault. Either point and hit are set, or after_s."""

    id: str
    kind: str
    attempt: int
    role: str
    rank: int | None
    point: str | None
    hit: int | None
    after_s: float | None
    gate: Gate | None

    def __str__(self) -> str:
        who = self.role if self.rank is None else f"{self.role} {self.rank}"
        where = f"{self.point} hit {self.hit}" if self.point is not None else f"{self.after_s} s into training"
        return f"{self.id} ({self.kind} of {who} at {where} of attempt {self.attempt})"


@dataclass(frozen=True)
class Process:
    """One process of one boot of one host: a pid alone names nothing, since pids are used again."""

    pid: int
    start_ticks: int
    host: str


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
    """path, offset, before, after: of a damage only; before and after are digests of the whole file."""

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
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Opened:
    run: str
    role: str
    pid: int
    start_ticks: int
    host: str
    boot: str


@dataclass(frozen=True)
class Closed:
    heads: tuple[Head, ...] = ()


@dataclass(frozen=True)
class Previous:
    file: str
    pid: int
    start_ticks: int
    head: Head | None = None


@dataclass(frozen=True)
class Resumed:
    previous: tuple[Previous, ...]


@dataclass(frozen=True)
class ProcessNamed:
    role: str
    rank: int | None
    pid: int
    start_ticks: int
    host: str
    history: str


@dataclass(frozen=True)
class Detected:
    role: str
    rank: int | None
    pid: int
    start_ticks: int
    how: str
    detail: str


@dataclass(frozen=True)
class Killing:
    pid: int
    start_ticks: int
    signal: int
    why: str


@dataclass(frozen=True)
class Ended:
    """How a process ended: `exited` by its launcher, `exit_confirmed` by the supervisor."""

    pid: int
    start_ticks: int
    signal: int | None
    code: int | None


@dataclass(frozen=True)
class Exited(Ended):
    pass


@dataclass(frozen=True)
class ExitConfirmed(Ended):
    pass


@dataclass(frozen=True)
class Spawned:
    pid: int
    start_ticks: int | None


@dataclass(frozen=True)
class Fenced:
    seq: int


@dataclass(frozen=True)
class Formed:
    world: int


@dataclass(frozen=True)
class Chosen:
    name: str | None
    digest: str | None
    step: int
    seq: int


@dataclass(frozen=True)
class Training:
    pass


@dataclass(frozen=True)
class GaveUp:
    reason: str


@dataclass(frozen=True)
class Finished:
    step: int


@dataclass(frozen=True)
class Joined:
    rank: int


@dataclass(frozen=True)
class Loaded:
    rank: int
    name: str
    ok: bool
    reason: str


@dataclass(frozen=True)
class Restored:
    rank: int
    name: str | None
    digest: str | None
    step: int
    cursor: int
    parts: Mapping[str, str]


@dataclass(frozen=True)
class StepDone:
    """step: number of updates done after it. lr: of each parameter group, as float.hex()."""

    rank: int
    step: int
    lr: tuple[str, ...]
    ids: str
    skipped: bool


@dataclass(frozen=True)
class SaveDue:
    rank: int
    step: int


@dataclass(frozen=True)
class SaveStaged:
    rank: int
    step: int


@dataclass(frozen=True)
class Published:
    name: str
    step: int
    digest: str
    seq: int


@dataclass(frozen=True)
class Retired:
    names: tuple[str, ...]
    seq: int | None


@dataclass(frozen=True)
class Quarantined:
    path: str


@dataclass(frozen=True)
class Other:
    """An event that no check looks at."""

    name: str


_SUPERVISOR = {
    "resumed": Resumed,
    "process": ProcessNamed,
    "detected": Detected,
    "killing": Killing,
    "exit_confirmed": ExitConfirmed,
    "fenced": Fenced,
    "formed": Formed,
    "chosen": Chosen,
    "training": Training,
    "gave_up": GaveUp,
    "finished": Finished,
    "run": RunBegun,
}
_WORKER = {
    "joined": Joined,
    "loaded": Loaded,
    "restored": Restored,
    "step": StepDone,
    "save_due": SaveDue,
    "save_staged": SaveStaged,
}
_COMMITTER = {"published": Published, "retired": Retired, "quarantined": Quarantined}
_LAUNCHER = {"spawned": Spawned, "exited": Exited}
_EVERY = {"opened": Opened, "closed": Closed}
_Kinds: TypeAlias = Mapping[str, type[Any]]
KINDS: Mapping[str, _Kinds] = {
    "supervisor": {**_EVERY, **_SUPERVISOR},
    "worker": {**_EVERY, **_WORKER},
    "committer": {**_EVERY, **_COMMITTER},
    "launcher": {**_EVERY, **_LAUNCHER},
}
