"""Ledger segments as values: which place in the run one has, and its rows, as a whole or a part at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Moment: TypeAlias = tuple[int, int]  # updates done, and microbatches of the next one; in the order of training


@dataclass(frozen=True)
class SegmentMeta:
    """first_microbatch: of first_step; microbatch: of the checkpoint, inside the update last_step if it is not 0."""

    run: str
    attempt: int
    step: int
    rank: int
    first_step: int
    last_step: int
    first_microbatch: int = 0
    microbatch: int = 0

    @property
    def start(self) -> Moment:
        return self.first_step, self.first_microbatch


@dataclass(frozen=True, eq=False)
class Segment:
    """Ledger rows of one rank, sorted by position. Of a file only the part that is asked for is mapped."""

    meta: SegmentMeta
    position: I64
    sample_id: I64
    content: U64
    step: I64
    microbatch: npt.NDArray[np.int32]

    @property
    def rows(self) -> int:
        return len(self.position)

    @property
    def first(self) -> int | None:
        """Position of the first row."""
        return int(self.position[0]) if len(self.position) else None

    def part(self, begin: int, end: int) -> Segment:
        """Rows begin … end − 1."""
        cut = slice(begin, end)
        return Segment(
            self.meta, self.position[cut], self.sample_id[cut], self.content[cut], self.step[cut], self.microbatch[cut]
        )

    def parts(self, rows: int = 1 << 18) -> Iterator[Segment]:
        """All rows, so many at a time."""
        for begin in range(0, self.rows, rows):
            yield self.part(begin, min(begin + rows, self.rows))
