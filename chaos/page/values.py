"""What the page shows, as values: no HTML, no figure, no file. Times of a run are microseconds since its own zero."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


def _none() -> I64:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Stretches:
    """Stretches of one rank's time, int64[n] each, by start. A stretch is one update, or several in a row.

    redone: of its updates those that some earlier attempt had done already. lost: those that no checkpoint of the
    lineage has. wait_us: of its time, spent waiting for input; −1 if that was not recorded.
    """

    start_us: I64 = field(default_factory=_none)
    end_us: I64 = field(default_factory=_none)
    first: I64 = field(default_factory=_none)
    last: I64 = field(default_factory=_none)
    attempt: I64 = field(default_factory=_none)
    updates: I64 = field(default_factory=_none)
    redone: I64 = field(default_factory=_none)
    lost: I64 = field(default_factory=_none)
    wait_us: I64 = field(default_factory=_none)

    def __len__(self) -> int:
        return len(self.start_us)

    def columns(self) -> dict[str, I64]:
        """By name, in the order of the fields."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, eq=False)
class Saves:
    """Saves of one rank, int64[n] each, by start. staged: training goes on. written: its files are durable; −1 never.

    published: the checkpoint is in the log; −1 if it never was.
    """

    due_us: I64 = field(default_factory=_none)
    staged_us: I64 = field(default_factory=_none)
    written_us: I64 = field(default_factory=_none)
    published_us: I64 = field(default_factory=_none)
    step: I64 = field(default_factory=_none)
    attempt: I64 = field(default_factory=_none)

    def __len__(self) -> int:
        return len(self.due_us)

    def columns(self) -> dict[str, I64]:
        """By name, in the order of the fields."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, eq=False)
class Microbatches:
    """Instants at which backward passes were done, int64[m], and of which update of the rank's stretches, int64[m]."""

    at_us: I64 = field(default_factory=_none)
    stretch: I64 = field(default_factory=_none)


@dataclass(frozen=True)
class RankLane:
    """One rank over all attempts, whatever process it was."""

    rank: int
    steps: Stretches
    saves: Saves
    microbatches: Microbatches


class Happening(StrEnum):
    """What a mark on the timeline stands for."""

    KILL = "kill"
    DETECTED = "detected"
    FENCE = "fence"
    PUBLISHED = "published"
    FINISHED = "finished"


@dataclass(frozen=True)
class Mark:
    """An instant. rank: None of what belongs to no rank. who, text: for people."""

    kind: Happening
    at_us: int
    attempt: int
    rank: int | None
    who: str
    text: str


class Part(StrEnum):
    """A part of a recovery, in order of time."""

    DETECT = "detect"
    REACQUIRE = "reacquire"
    LOAD = "load"
    REDO = "redo"


@dataclass(frozen=True)
class Phase:
    """A part of a recovery with its place in time."""

    attempt: int
    part: Part
    start_us: int
    end_us: int


@dataclass(frozen=True)
class Timeline:
    """axes: of how many boots or groups of hosts the instants are that do not compare, drawn one after another.

    uncertainty_s: of a duration between two hosts of one of them; 0 on one host.
    """

    end_us: int
    lanes: tuple[RankLane, ...]
    phases: tuple[Phase, ...]
    marks: tuple[Mark, ...]
    axes: int
    uncertainty_s: float = 0.0


class Standing(StrEnum):
    """What became of a published checkpoint."""

    LINEAGE = "lineage"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class Node:
    """A published checkpoint. chosen_by: attempts that started from it. rejected_by: (attempt, why).

    retired: its shards were removed after a retire entry; its ledger stays. damage: why it does not verify now.
    """

    name: str
    step: int
    microbatch: int
    attempt: int
    standing: Standing
    retired: bool
    chosen_by: tuple[int, ...]
    rejected_by: tuple[tuple[int, str], ...]
    damage: str


@dataclass(frozen=True)
class Edge:
    """child descends from parent. restart: by an attempt's choice, else by going on. parent None: from the start."""

    parent: str | None
    child: str
    restart: bool


@dataclass(frozen=True)
class Start:
    """Where an attempt started. parent None: from nothing. reached: greatest update that any rank finished in it."""

    attempt: int
    parent: str | None
    step: int
    reached: int
    chose: bool


@dataclass(frozen=True)
class Lineage:
    """Oldest first. left_out: checkpoints that are not among the nodes, because there are too many to draw."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    starts: tuple[Start, ...]
    left_out: int = 0


class Fate(IntEnum):
    """What the ledger says of a position."""

    ONCE = 0
    GAP = 1
    REPEATED = 2
    WRONG = 3
    UNKNOWN = 4


@dataclass(frozen=True)
class Block:
    """Updates first … last (0-based, inclusive) of the committed ledger, written by one attempt."""

    first: int
    last: int
    attempt: int
    checkpoint: str


@dataclass(frozen=True)
class Fault:
    """A rectangle of the map: updates first … last, places low … high in the global batch. words: for people."""

    fate: Fate
    first: int
    last: int
    low: int
    high: int
    positions: int
    words: str


@dataclass(frozen=True)
class LedgerMap:
    """The sample ledger along the lineage, as updates × places in the global batch.

    faults: the first of them. unshown: positions with a fault that are in none of these. problem: why there is no map.
    """

    updates: int
    batch: int
    ranks: int
    blocks: tuple[Block, ...]
    faults: tuple[Fault, ...]
    counts: dict[Fate, int]
    unshown: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Cost:
    """Of one recovery, seconds by part in order of time, those that are known.

    first_step_s: from the strike to the first new update done; None: it never came to that, or nothing says it.
    """

    attempt: int
    parts: tuple[tuple[str, float], ...]
    first_step_s: float | None
    restored_step: int | None
    redo_steps: int | None
    redo_samples: int | None


@dataclass(frozen=True)
class Waiting:
    """Input of one rank in one bin of time, from `updates` observations. depth: microbatches ready."""

    rank: int
    at_us: int
    updates: int
    wait_s: float
    wait_max_s: float
    depth: float
    depth_min: float
