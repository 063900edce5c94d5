"""The rows of several ledger segments in windows of positions, so that of each segment only a part is held at a time.

Segments are sorted by position and follow one another in the lineage, so few of them are open at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from chaos.audit.segments import I64, Segment, SegmentMeta

_PART = 1 << 18  # rows of a segment that are mapped at once


@dataclass(frozen=True, order=True)
class Spot:
    """One row. segment: index of the segment that it stands in."""

    step: int
    position: int
    sample_id: int
    attempt: int
    segment: int


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of one segment. owner: index of the segment."""

    part: Segment
    owner: int

    @property
    def meta(self) -> SegmentMeta:
        return self.part.meta

    @property
    def position(self) -> I64:
        return self.part.position

    @property
    def sample_id(self) -> I64:
        return self.part.sample_id

    @property
    def step(self) -> I64:
        return self.part.step

    def spot(self, index: int) -> Spot:
        return Spot(
            int(self.step[index]), int(self.position[index]), int(self.sample_id[index]), self.meta.attempt, self.owner
        )


def windows(
    segments: Sequence[Segment], window: int, cuts: Sequence[int]
) -> Iterator[tuple[int, int, list[Rows]]]:
    """[start, limit) of windows of positions that hold any row, ascending, and their rows, segment by segment.

    cuts: positions that no window reaches across. A segment is open from its first row to its last.
    """
    cursors = (_Cursor(segment, index) for index, segment in enumerate(segments) if segment.rows)
    waiting = deque(sorted(cursors, key=lambda cursor: cursor.next or 0))
    open_: list[_Cursor] = []
    while waiting or open_:
        coming = (cursor.next for cursor in (*open_, waiting[0] if waiting else open_[0]))
        start = min(position for position in coming if position is not None)
        limit = start + window
        for cut in cuts:
            if start < cut < limit:
                limit = cut
        while waiting and waiting[0].next is not None and waiting[0].next < limit:
            open_.append(waiting.popleft())
        yield start, limit, [rows for cursor in open_ for rows in cursor.upto(limit)]
        open_ = [cursor for cursor in open_ if cursor.next is not None]


class _Cursor:
    """Reads one segment from its first row to its last, a part at a time."""

    def __init__(self, segment: Segment, index: int) -> None:
        self._segment, self._index = segment, index
        self._place = 0  # in the part
        self._end = 0  # of the part, in the segment
        self._part: Segment | None = None
        self.next: int | None = segment.first  # position of the row that comes next

    def upto(self, limit: int) -> Iterator[Rows]:
        """The rows that come next, as far as their positions are below `limit`."""
        while self.next is not None and self.next < limit:
            if self._part is None:
                begin, self._end = self._end, min(self._end + _PART, self._segment.rows)
                self._place, self._part = 0, self._segment.part(begin, self._end)
            part = self._part
            stop = int(np.searchsorted(part.position, limit))
            if stop > self._place:
                yield Rows(part.part(self._place, stop), self._index)
            self._place = stop
            if stop < part.rows:
                self.next = int(part.position[stop])
                continue
            self._part = None
            if self._end == self._segment.rows:
                self.next = None
