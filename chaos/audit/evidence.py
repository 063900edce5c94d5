"""What was found on disk, as values. The checks see nothing else; damage is an observation among others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from chaos.audit.events import Event, Opened
from chaos.audit.facts import DataNamed, Fault, Head, PlanSpec, Process, Receipt, RunBegun
from chaos.audit.formats import microbatch_of
from chaos.audit.segments import I64 as I64
from chaos.audit.segments import U64 as U64
from chaos.audit.segments import Moment as Moment
from chaos.audit.segments import Segment as Segment
from chaos.audit.segments import SegmentMeta as SegmentMeta
from chaos.audit.steps import Steps


@dataclass(frozen=True)
class Problem:
    """Something at `path` (relative to the run folder) is not as its format says.

    unreadable: the system would not let it be read, which proves no damage.
    """

    path: str
    what: str
    unreadable: bool = False

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


@dataclass(frozen=True)
class Ref:
    """A checkpoint as log entries name it. digest: its manifest's."""

    name: str
    digest: str
    step: int

    @property
    def moment(self) -> Moment:
        return self.step, microbatch_of(self.name)


@dataclass(frozen=True)
class Candidate:
    name: str
    digest: str
    step: int
    status: str
    reason: str

    @property
    def ref(self) -> Ref:
        return Ref(self.name, self.digest, self.step)


@dataclass(frozen=True)
class Fence:
    seq: int
    attempt: int
    config: str
    owner: Process


@dataclass(frozen=True)
class Choose:
    seq: int
    attempt: int
    parent: Ref | None
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Publish:
    seq: int
    attempt: int
    name: str
    digest: str
    step: int

    @property
    def ref(self) -> Ref:
        return Ref(self.name, self.digest, self.step)

    @property
    def moment(self) -> Moment:
        return self.step, microbatch_of(self.name)


@dataclass(frozen=True)
class Retire:
    seq: int
    attempt: int
    names: tuple[str, ...]


Entry: TypeAlias = Fence | Choose | Publish | Retire


@dataclass(frozen=True)
class Log:
    """The commit log. entries: those that could be read, in order; `problems` says why it is not whole."""

    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...] = ()
    run: str | None = None


@dataclass(frozen=True)
class FileNamed:
    """A file as a manifest names it."""

    path: str
    kind: str
    rank: int
    bytes: int
    digest: str


@dataclass(frozen=True)
class RankNamed:
    rank: int
    parts: Mapping[str, str]
    tensors: Mapping[str, str]
    history: Head


@dataclass(frozen=True)
class Fingerprints:
    dataset: str
    plan: str
    config: str
    code: str


@dataclass(frozen=True)
class Manifest:
    run: str
    name: str
    attempt: int
    step: int
    world: int
    cursor: int
    parent: str | None
    fingerprints: Fingerprints
    files: tuple[FileNamed, ...]
    tensors: Mapping[str, str]
    parts: Mapping[str, str]
    ranks: tuple[RankNamed, ...]
    microbatch: int = 0


@dataclass(frozen=True)
class ManifestSeen:
    """A file in `manifests`. Either `manifest` and `digest` are set, or `problem`."""

    path: str
    manifest: Manifest | None = None
    digest: str | None = None
    problem: str | None = None
    unreadable: bool = False


@dataclass(frozen=True)
class TensorSeen:
    """value: of a tensor that holds a single number."""

    dtype: str
    shape: tuple[int, ...]
    digest: str
    value: float | None


@dataclass(frozen=True)
class ShardSeen:
    metadata: Mapping[str, str]
    tensors: Mapping[str, TensorSeen]


@dataclass(frozen=True)
class FileSeen:
    """A shard or a ledger segment as it lies there. problem: why it cannot be read as what it should be."""

    path: str
    bytes: int
    digest: str
    shard: ShardSeen | None = None
    segment: Segment | None = None
    problem: str | None = None
    unreadable: bool = False


@dataclass(frozen=True)
class Store:
    """present: every path below the store, relative to it."""

    log: Log
    manifests: Mapping[str, ManifestSeen]
    files: Mapping[str, FileSeen]
    present: frozenset[str]


class Chains(Sequence[str]):
    """The chain after each line of a history, in hex; 32 bytes each."""

    def __init__(self) -> None:
        self._data = bytearray()

    def append(self, chain: str) -> None:
        self._data += bytes.fromhex(chain)

    def __len__(self) -> int:
        return len(self._data) // 32

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index] * 32
        return self._data[at : at + 32].hex()


@dataclass(frozen=True)
class HistoryFile:
    """One process's record. chains: of each whole line up to the first that is wrong, which `problem` names.

    events: all but those of steps, which are in `steps`. advances: whether each line's clock is ahead of the one before
    it. data: dataset and plan, as often as a supervisor named them.
    """

    name: str
    opened: Opened | None
    events: tuple[Event[Any], ...]
    chains: Sequence[str]
    torn: bool
    closed: bool
    problem: str | None = None
    data: tuple[DataNamed, ...] = ()
    steps: Steps = field(default_factory=Steps)
    advances: bool = True


@dataclass(frozen=True)
class History:
    files: Mapping[str, HistoryFile]
    receipts: tuple[Receipt, ...]
    problems: tuple[Problem, ...] = ()
    by_kind: Mapping[type, Sequence[Event[Any]]] = field(default_factory=dict)  # every event, in the files' order


@dataclass(frozen=True, eq=False)
class Dataset:
    """The dataset as it is now. content: uint64[rows] digests, of those rows only where `known` is true."""

    folder: str
    fingerprint: str | None = None
    rows: int = 0
    content: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    known: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    problem: str | None = None


@dataclass(frozen=True)
class TwinSeen:
    """An uninterrupted run of the same experiment. place: relative to the run folder."""

    place: str
    log: Log
    manifests: Mapping[str, ManifestSeen]
    history: History
    begun: RunBegun | None


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that a check may look at. twins: none, one, or a second one that tells whether twins are equal."""

    store: Store
    history: History
    begun: RunBegun | None  # None if the history lost them
    plan: PlanSpec | None
    dataset: Dataset
    twins: tuple[TwinSeen, ...] = ()
    folder: str = "RUN"
    experiment: str | None = None

    @property
    def faults(self) -> tuple[Fault, ...]:
        return () if self.begun is None else self.begun.faults
