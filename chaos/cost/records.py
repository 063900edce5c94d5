"""The events that costs are measured from, typed: of each kind what is used here, and who wrote it when. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Seen:
    """One event. t_ns: monotonic within one boot of one host. file: the history that has it."""

    file: str
    boot: str
    t_ns: int
    attempt: int | None
    what: Any


@dataclass(frozen=True)
class Opened:
    pid: int
    start_ticks: int
    boot: str


@dataclass(frozen=True)
class Shape:
    """Of the run, as its supervisor recorded it."""

    ranks: int
    microbatches: int
    global_batch: int
    steps: int
    save_every: int


@dataclass(frozen=True)
class Previous:
    pid: int
    start_ticks: int


@dataclass(frozen=True)
class Resumed:
    previous: tuple[Previous, ...]


@dataclass(frozen=True)
class Detected:
    role: str
    pid: int | None
    start_ticks: int | None


@dataclass(frozen=True)
class Fenced:
    seq: int


@dataclass(frozen=True)
class Assigned:
    role: str
    rank: int | None
    pid: int


@dataclass(frozen=True)
class Proposed:
    duration_s: float


@dataclass(frozen=True)
class Formed:
    world: int


@dataclass(frozen=True)
class Chosen:
    """name: None for a start from nothing."""

    name: str | None
    step: int


@dataclass(frozen=True)
class Training:
    pass


@dataclass(frozen=True)
class Finished:
    step: int


@dataclass(frozen=True)
class Preparing:
    rank: int


@dataclass(frozen=True)
class Joined:
    rank: int


@dataclass(frozen=True)
class Loaded:
    rank: int
    bytes: int
    duration_s: float


@dataclass(frozen=True)
class Restored:
    rank: int
    step: int
    duration_s: float
    microbatch: int = 0


@dataclass(frozen=True)
class PipelineStarted:
    rank: int
    duration_s: float


@dataclass(frozen=True)
class StepDone:
    """Its parts are what the rank measured; from the end of the last to the record nothing else happens."""

    rank: int
    step: int
    wait_s: float
    train_s: float
    fingerprint_s: float


@dataclass(frozen=True)
class SaveDue:
    rank: int
    step: int
    microbatch: int = 0


@dataclass(frozen=True)
class SaveStaged:
    rank: int
    step: int
    stall_s: float
    waited_s: float
    microbatch: int = 0


@dataclass(frozen=True)
class SaveWritten:
    rank: int
    step: int
    bytes: int
    duration_s: float
    microbatch: int = 0


@dataclass(frozen=True)
class Published:
    name: str
    step: int


@dataclass(frozen=True)
class Warmed:
    duration_s: float


@dataclass(frozen=True)
class Struck:
    """A receipt of a fault that kills or stops a process; hit counts within the attempt."""

    attempt: int
    role: str
    rank: int | None
    point: str | None
    hit: int | None
    pid: int
    start_ticks: int
    boot: str
    t_ns: int


KINDS: Mapping[str, Mapping[str, type[Any]]] = {
    "supervisor": {
        "opened": Opened, "run": Shape, "resumed": Resumed, "detected": Detected, "fenced": Fenced,
        "assigned": Assigned, "proposed": Proposed, "formed": Formed, "chosen": Chosen, "training": Training,
        "finished": Finished,
    },
    "worker": {
        "opened": Opened, "preparing": Preparing, "joined": Joined, "loaded": Loaded, "restored": Restored,
        "pipeline": PipelineStarted, "step": StepDone, "save_due": SaveDue, "save_staged": SaveStaged,
        "save_written": SaveWritten, "warmed": Warmed,
    },
    "committer": {"opened": Opened, "published": Published},
}  # fmt: skip


@dataclass(frozen=True)
class Witnessed:
    """A run's events, each file's in its own order, and the receipts of its faults."""

    events: tuple[Seen, ...]
    strikes: tuple[Struck, ...] = ()
    by_kind: Mapping[type, tuple[Seen, ...]] = field(init=False)

    def __post_init__(self) -> None:
        found: dict[type, list[Seen]] = {}
        for event in self.events:
            found.setdefault(type(event.what), []).append(event)
        object.__setattr__(self, "by_kind", {kind: tuple(events) for kind, events in found.items()})

    def of(self, kind: type[Any], attempt: int | None = None) -> Iterator[Seen]:
        """Events of one kind, of one attempt if it is given."""
        for event in self.by_kind.get(kind, ()):
            if attempt is None or event.attempt == attempt:
                yield event

    @property
    def shape(self) -> Shape | None:
        """None if the history lost it."""
        return next((event.what for event in self.of(Shape)), None)

    @property
    def attempts(self) -> tuple[int, ...]:
        """Those that were fenced, in order."""
        return tuple(sorted({event.attempt for event in self.of(Fenced) if event.attempt is not None}))
