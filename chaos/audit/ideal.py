"""What ledger rows ought to hold (invariant 3): step, microbatch, sample of each position, content of each sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from chaos.audit.plan_ahead import DEPTH, PlanAhead
from chaos.audit.segments import I64, U64

_DENSE = 4  # a window with a row for every so many of its positions


@dataclass(frozen=True)
class Expected:
    """What the rows ought to be. plan: positions → sample ids; content[id] counts where known[id] is true.

    rows: of the dataset, 0 if it is not known. absent: [first, end) of positions whose rows may be lost with
    their file, so that a gap there proves nothing. ranks, microbatches: of a step, 0 if the split is not known.
    partial: how many microbatches of the update behind the cursor every rank has consumed.
    """

    cursor: int
    global_batch: int
    rows: int = 0
    plan: Callable[[I64], I64] | None = None
    content: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    known: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    absent: tuple[tuple[int, int], ...] = ()
    ranks: int = 0
    microbatches: int = 0
    partial: int = 0

    @property
    def end(self) -> int:
        """No position from here on has been consumed."""
        return self.cursor + (self.global_batch if self.partial else 0)

    def microbatch(self, position: I64) -> I64:
        """Number of the microbatch that consumes each position: a rank's share of a batch is one run, cut in order."""
        share = self.global_batch // self.ranks
        left = position - position // share * share  # twice as fast as %
        left //= share // self.microbatches
        return left

    def consumed(self, position: I64) -> npt.NDArray[np.bool_]:
        """Which positions had to be consumed."""
        applied = (position >= 0) & (position < self.cursor)
        if not self.partial:
            return applied
        return applied | ((position < self.end) & (position >= 0) & (self.microbatch(position) < self.partial))

    def to_come(self) -> Iterator[tuple[int, int]]:
        """[first, end) of the positions before `end` that are not consumed yet."""
        share = self.global_batch // (self.ranks or 1)
        done = self.partial * (share // (self.microbatches or 1))
        for first in range(self.cursor, self.end, share):
            yield first + done, first + share


@dataclass(frozen=True, eq=False)
class Ideal:
    """What belongs to each of some positions; None for what is not known, sample −1 for a negative position."""

    step: I64
    microbatch: npt.NDArray[np.int32] | None
    sample_id: I64 | None

    @classmethod
    def of(cls, position: I64, expected: Expected, planned: I64 | None = None) -> Ideal:
        """planned: the sample ids that the plan has there, if they are known already."""
        microbatch = expected.microbatch(position).astype(np.int32) if expected.microbatches else None
        if planned is None and expected.plan is not None:
            planned = _planned(position, expected.plan)
        return cls(position // expected.global_batch, microbatch, planned)

    def take(self, at: I64) -> Ideal:
        """Of the positions at these indices, of which none is outside: to raise would need a copy."""
        microbatch = None if self.microbatch is None else self.microbatch.take(at, mode="wrap")
        planned = None if self.sample_id is None else self.sample_id.take(at, mode="wrap")
        return Ideal(self.step.take(at, mode="wrap"), microbatch, planned)


def _planned(position: I64, plan: Callable[[I64], I64]) -> I64:
    if position.min(initial=0) >= 0:
        return plan(position)
    planned = np.full(len(position), -1, np.int64)
    real = position >= 0
    planned[real] = plan(position[real])
    return planned


class Ideals:
    """Of one window after the other. Where its rows are dense it is computed once for each position.

    ahead: computes sample ids of the windows that will most likely come next.
    """

    def __init__(self, expected: Expected, window: int, ahead: PlanAhead | None) -> None:
        self.expected = expected
        self.all_known = bool(expected.known.all())
        self._window, self._ahead = window, ahead
        self._start = 0
        self._table: Ideal | None = None

    def turn(self, start: int, limit: int, rows: int) -> None:
        """To the window [start, limit), which has so many rows."""
        expected, self._start, self._table = self.expected, start, None
        if not 0 <= start < expected.end or rows * _DENSE < limit - start:
            return
        planned = None
        if self._ahead is not None:
            planned = self._ahead.ids(start, limit)
            for first, end in islice(self._following(limit), DEPTH):
                self._ahead.ask(first, end)
        self._table = Ideal.of(np.arange(start, limit), expected, planned)

    def _following(self, start: int) -> Iterator[tuple[int, int]]:
        """The windows from there on, if no position lacks its row."""
        for end in (self.expected.cursor, self.expected.end):
            for first in range(start, end, self._window):
                yield first, min(first + self._window, end)
            start = max(start, end)

    def at(self, position: I64) -> Ideal:
        """Of positions of the window."""
        if self._table is None:
            return Ideal.of(position, self.expected)
        return self._table.take(position - self._start)
