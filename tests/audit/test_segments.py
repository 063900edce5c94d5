"""A ledger segment as a value: where it begins, and its rows, a part at a time."""

from __future__ import annotations

import numpy as np
import pytest

from chaos.audit.segments import Segment, SegmentMeta

META = SegmentMeta("r", 1, 5, 0, 3, 4)


def of_rows(rows: int) -> Segment:
    """Position 10, 11, …; every column is another one."""
    count = np.arange(rows)
    return Segment(META, count + 10, count + 20, (count + 30).astype(np.uint64), count + 40, count.astype(np.int32))


def columns(segment: Segment) -> list[list[int]]:
    found = (segment.position, segment.sample_id, segment.content, segment.step, segment.microbatch)
    return [column.tolist() for column in found]


def test_a_segment_begins_between_updates_unless_it_says_otherwise() -> None:
    assert META.start == (3, 0)
    assert META.microbatch == 0
    assert SegmentMeta("r", 1, 5, 0, 3, 4, 2, 1).start == (3, 2)


@pytest.mark.parametrize(("rows", "first"), [(0, None), (1, 10), (3, 10)])
def test_rows_and_the_position_of_the_first(rows: int, first: int | None) -> None:
    assert (of_rows(rows).rows, of_rows(rows).first) == (rows, first)


def test_a_part_has_every_column_and_the_segments_place() -> None:
    part = of_rows(5).part(1, 3)
    assert part.meta == META
    assert columns(part) == [[11, 12], [21, 22], [31, 32], [41, 42], [1, 2]]
    assert columns(of_rows(5).part(0, 5)) == columns(of_rows(5))
    assert of_rows(5).part(2, 2).rows == 0


@pytest.mark.parametrize("size", range(1, 7))
@pytest.mark.parametrize("rows", range(6))
def test_parts_together_are_all_rows_in_order(rows: int, size: int) -> None:
    parts = list(of_rows(rows).parts(size))
    assert [row for part in parts for row in part.position.tolist()] == list(range(10, 10 + rows))
    assert [part.rows for part in parts] == [min(size, rows - begin) for begin in range(0, rows, size)]


def test_a_long_segment_comes_in_parts_of_a_quarter_of_a_million_rows() -> None:
    assert [part.rows for part in of_rows((1 << 18) + 1).parts()] == [1 << 18, 1]
