"""What a cause is, and what the diagnosis looks at to find one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from chaos.diff.compare import Divergence, by_attempt
from chaos.diff.differences import Difference
from chaos.diff.parts import Role, role_of
from chaos.diff.reference import Place, Reference, stream
from chaos.diff.shifts import I64, SampleShift, rate_shifts, sample_shifts
from chaos.diff.trace import Start, StepRecord, Trace

ROUNDING = 1e-6
"""Relative difference up to which a number may differ by rounding alone: some units in the last place of float32."""


class Kind(StrEnum):
    """Causes by the shape that they leave. `other_*`: the difference is seen, its cause is not one of these."""

    HISTORY_LOST = "optimizer history lost"
    RATE_SHIFTED = "rate shifted"
    RESEEDED = "generator re-seeded"
    CURSOR_AHEAD = "cursor ahead"
    CURSOR_BEHIND = "cursor behind"
    GRADIENTS_LOST = "partial gradients lost"
    WRONG_ORDER = "wrong epoch order"
    TWO_MOMENTS = "state from two moments"
    TARGET_MISREAD = "target misread"
    ROUNDING = "rounding only"
    NOT_FINITE = "not finite"
    SCALER_LOST = "scaler lost"
    PART_LOST = "part lost"
    OTHER_START = "another start"
    OTHER_RATE = "another rate"
    OTHER_STATE = "another state"
    OTHER_COMPUTATION = "another computation"
    OTHER_TARGET = "another target"
    UNFINISHED = "unfinished"


@dataclass(frozen=True)
class Cause:
    """kind: what went wrong; part: in which part; text: a sentence with the evidence."""

    kind: Kind
    part: str
    text: str


@dataclass(frozen=True)
class Finding:
    """One thing that went wrong. causes: likeliest first; if there are several, they would look alike."""

    causes: tuple[Cause, ...]

    @property
    def likeliest(self) -> Cause:
        return self.causes[0]


@dataclass(frozen=True)
class Case:
    """One divergence with all that is known around it. `here` is the side that diverges, A being the other one."""

    reference: Reference
    trace: Trace
    divergence: Divergence

    @property
    def step(self) -> int:
        return self.divergence.step

    @property
    def here(self) -> str:
        return "B" if self.divergence.side == "B" else f"attempt {self.divergence.attempt} of A"

    @cached_property
    def records(self) -> dict[Place, StepRecord]:
        """Of the attempt that diverges."""
        return {(r.step, r.rank): r for r in by_attempt(self.trace.records).get(self.divergence.attempt, ())}

    @cached_property
    def starts(self) -> dict[int, Start]:
        """Of the attempt that diverges, by rank."""
        return {s.rank: s for s in by_attempt(self.trace.starts).get(self.divergence.attempt, ())}

    @property
    def start_step(self) -> int | None:
        return next((start.step for start in self.starts.values()), None)

    @property
    def follows_restore(self) -> bool:
        """Whether this is the first update after a restore (not after a start from nothing)."""
        return bool(self.start_step) and self.step == (self.start_step or 0) + 1

    def difference(self, role: Role) -> Difference | None:
        return next((d for d in self.divergence.differences if role_of(d.part) is role), None)

    def of_role(self, role: Role) -> list[Difference]:
        return [d for d in self.divergence.differences if role_of(d.part) is role]

    @cached_property
    def shifts(self) -> tuple[SampleShift, ...]:
        """By how many samples the attempt reads ahead (behind, if negative) from this moment on."""
        batch, ranks = self.reference.trace.global_batch, self.reference.trace.ranks
        update = self.step + 1 if self.divergence.restored else self.step
        read = stream(self.records, ranks, update)
        if len(read):
            first = self.reference.first_step
            return sample_shifts(stream(self.reference.records, ranks, first + 1), read, (update - 1 - first) * batch)
        rank = min((of for step, of in self.records if step == update), default=0)
        mine, theirs = ({step: (r.ids_digest,) for (step, of), r in records.items() if of == rank and step >= low}
                        for records, low in ((self.records, update), (self.reference.records, 0)))
        return tuple(SampleShift(k * batch, len(mine) * batch, whole=True) for k in rate_shifts(theirs, mine))

    @cached_property
    def rate_shifts(self) -> tuple[int, ...]:
        """By how many updates the attempt's rates run ahead from the first one on that differs."""
        a, b = ({step: r.lr for (step, rank), r in records.items() if rank == self._a_rank}
                for records in (self.reference.records, self.records))
        differing = [step for step, rates in b.items() if step > self.step - 1 and step in a and a[step] != rates]
        if not differing:
            return ()
        return rate_shifts(a, {step: rates for step, rates in b.items() if step >= min(differing)})

    @property
    def _a_rank(self) -> int:
        return min((rank for _, rank in self.records), default=0)

    def ids(self, records: dict[Place, StepRecord], first: int) -> I64:
        return stream(records, self.reference.trace.ranks, first)

    @property
    def tiny(self) -> bool:
        """Whether every number that is known to differ differs by rounding at most, and there is one."""
        known = [d.relative for d in self.divergence.differences if d.relative is not None]
        return bool(known) and max(known) <= ROUNDING and all(d.finite for d in self.divergence.differences)


def ranks_text(difference: Difference, ranks: int) -> str:
    """` of rank 1` where that is worth saying."""
    if ranks < 2 or not difference.ranks or len(difference.ranks) == ranks:
        return ""
    named = ", ".join(map(str, difference.ranks))
    return f" of rank {named}" if len(difference.ranks) == 1 else f" of ranks {named}"


def same_samples(a: I64, b: I64) -> bool:
    """The same ids as often, in whatever order."""
    return len(a) == len(b) and bool(np.array_equal(np.sort(a), np.sort(b)))
