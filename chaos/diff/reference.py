"""Trace A, indexed: the run that the other one is held against, and what A's parts were at each of its moments. Pure.

Of several attempts that did the same update the first one counts: it lies nearest to where nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chaos.diff.trace import Start, StepRecord, Trace

Place = tuple[int, int]
"""(updates done, rank)."""


@dataclass(frozen=True)
class Held:
    """What a rank held after `step` updates."""

    state: Mapping[str, str]
    values: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Reference:
    """records: of the first attempt that did the update. held: after each step, 0 or wherever A began included."""

    trace: Trace
    records: Mapping[Place, StepRecord]
    held: Mapping[Place, Held]
    starts: Mapping[Place, Start]
    first_step: int

    @classmethod
    def of(cls, trace: Trace) -> Reference:
        records: dict[Place, StepRecord] = {}
        held: dict[Place, Held] = {}
        starts: dict[Place, Start] = {}
        for start in trace.starts:
            starts.setdefault((start.step, start.rank), start)
        for record in sorted(trace.records, key=lambda r: r.attempt):
            records.setdefault((record.step, record.rank), record)
            held.setdefault((record.step, record.rank), Held(record.state, record.values))
        for start in trace.starts:
            held.setdefault((start.step, start.rank), Held(start.state, start.values))
        begun = [start.step for start in trace.starts] + [record.step - 1 for record in trace.records]
        return cls(trace, records, held, starts, min(begun, default=0))

    def moments(self, part: str, digest: str, rank: int) -> tuple[int, ...]:
        """The steps after which this part of A, on this rank, was exactly this; ascending."""
        return tuple(sorted(step for (step, of), held in self.held.items()
                            if of == rank and held.state.get(part) == digest))

    def rank_with(self, part: str, digest: str, step: int) -> int | None:
        """The rank that had this part after that step."""
        return next((of for (after, of), held in sorted(self.held.items())
                     if after == step and held.state.get(part) == digest), None)

    def drawn_from(self, part: str, rank: int, after: int) -> int | None:
        """First update later than `after` in which A moved this part (drew from this generator); None: never seen."""
        before = self.held.get((after, rank))
        step = after + 1
        while before is not None and (now := self.held.get((step, rank))) is not None:
            if now.state.get(part) != before.state.get(part):
                return step
            before, step = now, step + 1
        return None

    @property
    def last_step(self) -> int:
        return last_step(self.trace)


def last_step(trace: Trace) -> int:
    """Greatest number of updates that the run came to."""
    return max((*(r.step for r in trace.records), *(s.step for s in trace.starts)), default=0)


def stream(records: Mapping[Place, StepRecord], ranks: int, first: int) -> npt.NDArray[np.int64]:
    """Sample ids of the updates first, first + 1, … as far as all ranks' ids are known, ranks in order; int64[n]."""
    pieces: list[tuple[int, ...]] = []
    step = first
    while True:
        ids = [record.ids for rank in range(ranks) if (record := records.get((step, rank))) is not None
               and record.ids is not None]
        if len(ids) < ranks:
            break
        pieces += ids
        step += 1
    return np.array([sample for piece in pieces for sample in piece], dtype=np.int64)
