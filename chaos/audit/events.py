"""The history's events, typed: only what a check uses. The reader makes `Other` of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from chaos.audit.disturbance_events import Leaving, Noticed, Slowed, StoreFailed
from chaos.audit.facts import Head, RunBegun

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
    """pid and start_ticks: None of a process that never said who it is."""

    role: str
    rank: int | None
    pid: int | None
    start_ticks: int | None
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
class Released:
    """By the launcher: the process lives on, and no longer serves the run."""

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
    state: Mapping[str, str]
    microbatch: int = 0


@dataclass(frozen=True)
class StepDone:
    """step: number of updates done after it. lr: of each parameter group. Floats as float.hex().

    state: a short digest of each part of the state after the update; ids: a digest of the consumed sample ids.
    train_s: what it took, without waiting for its input.
    """

    rank: int
    step: int
    loss: str
    lr: tuple[str, ...]
    gradient_norm: str
    state: Mapping[str, str]
    samples_seen: int
    ids: str
    skipped: bool
    train_s: float = 0.0


@dataclass(frozen=True)
class NonFinite:
    """A loss or gradient that was not finite in the update before step: what, and the action taken."""

    rank: int
    step: int
    what: str
    action: str


@dataclass(frozen=True)
class SaveDue:
    """microbatch: 0 at a step's boundary. parts: inside a step, digests of its partial state at that moment."""

    rank: int
    step: int
    microbatch: int = 0
    parts: Mapping[str, str] | None = None


@dataclass(frozen=True)
class SaveStaged:
    rank: int
    step: int
    microbatch: int = 0


@dataclass(frozen=True)
class Published:
    name: str
    step: int
    digest: str
    seq: int


@dataclass(frozen=True)
class FencedOff:
    """A committer found that its attempt was over. name: of the checkpoint that it did not publish."""

    name: str
    detail: str


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
    "non_finite": NonFinite,
    "save_due": SaveDue,
    "save_staged": SaveStaged,
    "noticed": Noticed,
    "leaving": Leaving,
    "slowed": Slowed,
}
_COMMITTER = {"published": Published, "retired": Retired, "quarantined": Quarantined, "fenced_off": FencedOff}
_LAUNCHER = {"spawned": Spawned, "exited": Exited, "released": Released}
_EVERY = {"opened": Opened, "closed": Closed, "store_failed": StoreFailed}
_Kinds: TypeAlias = Mapping[str, type[Any]]
KINDS: Mapping[str, _Kinds] = {
    "supervisor": {**_EVERY, **_SUPERVISOR},
    "worker": {**_EVERY, **_WORKER},
    "committer": {**_EVERY, **_COMMITTER},
    "launcher": {**_EVERY, **_LAUNCHER},
}
