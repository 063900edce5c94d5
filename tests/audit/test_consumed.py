"""The ids of each update, read off a segment a part at a time, beside a sort of all its rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit.consumed import _ids_by_step
from chaos.audit.evidence import Segment, SegmentMeta


class InParts(Segment):
    """Cut into parts of three rows, whatever is asked for."""

    def parts(self, rows: int = 3) -> Iterator[Segment]:
        yield from super().parts(3)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12), st.booleans())
def test_ids_come_in_the_order_of_consumption(rows: list[tuple[int, int]], in_order: bool) -> None:
    rows = sorted(rows) if in_order else rows
    step, microbatch = (np.array([row[i] for row in rows], np.int64) for i in range(2))
    count = np.arange(len(rows))
    meta = SegmentMeta("r", 0, 4, 0, 0, 3)
    segment = InParts(meta, count, count + 100, count.astype(np.uint64), step, microbatch.astype(np.int32))
    slow: dict[int, list[int]] = {}
    for at in sorted(range(len(rows)), key=lambda i: (*rows[i], i)):
        slow.setdefault(rows[at][0], []).append(at + 100)
    assert [(number, ids.tolist()) for number, ids in _ids_by_step(segment)] == sorted(slow.items())


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_one_update_over_several_parts_is_one(count: int) -> None:
    same = np.zeros(count, np.int64)
    meta = SegmentMeta("r", 0, 1, 0, 0, 0)
    segment = InParts(meta, np.arange(count), np.arange(count), same.astype(np.uint64), same, same.astype(np.int32))
    assert [(n, ids.tolist()) for n, ids in _ids_by_step(segment)] == [(0, list(range(count)))][: min(count, 1)]
