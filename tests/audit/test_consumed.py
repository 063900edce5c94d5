"""The ids of each update, read off a segment a part at a time, beside a sort of all its rows, and beside what the ranks
recorded of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from evidence_by_hand import evidence, said, step
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit import consumed as consumed_module
from chaos.audit.consumed import _ids_by_step, _in_order, _Told, _whole_steps, ids_differ, ids_missing
from chaos.audit.events import Event, StepDone
from chaos.audit.evidence import Moment, Segment, SegmentMeta
from chaos.audit.formats import bulk_digest
from chaos.audit.steps import Steps


class InParts(Segment):
    """Cut into parts of three rows, whatever is asked for."""

    def parts(self, rows: int = 3) -> Iterator[Segment]:
        yield from super().parts(3)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 2)), max_size=12), st.booleans())
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
    assert _in_order(segment) is (rows == sorted(rows))


def of_rows(rows: Sequence[tuple[int, int]]) -> Segment:
    """rows: (update, microbatch), in order of position."""
    update, microbatch = (np.array([row[i] for row in rows], np.int64) for i in range(2))
    count = np.arange(len(rows))
    meta = SegmentMeta("r", 0, 9, 0, 0, 8)
    return InParts(meta, count, count, count.astype(np.uint64), update, microbatch.astype(np.int32))


@pytest.mark.parametrize(
    ("part", "next_part", "in_order"),
    [
        ([(0, 0), (0, 0), (0, 2)], [(0, 1)], False),
        ([(0, 0), (0, 1), (1, 0)], [(0, 2)], False),
        ([(0, 0), (0, 1), (0, 2)], [(0, 1), (0, 3)], False),
        ([(0, 0), (0, 1), (1, 0)], [(0, 2), (1, 0)], False),
        ([(0, 2), (0, 2), (1, 0)], [(1, 0), (1, 1), (2, 0)], True),
        ([(0, 0), (0, 0), (0, 2)], [(1, 0)], True),
        ([(0, 0), (0, 0), (0, 0)], [(0, 0)], True),
        ([(-1, -1), (-1, 0), (0, 0)], [(0, 0)], True),
    ],
)
def test_rows_in_order_within_parts_are_so_over_their_border_too(
    part: list[tuple[int, int]], next_part: list[tuple[int, int]], in_order: bool
) -> None:
    assert _in_order(of_rows([*part, *next_part])) is in_order


def test_ids_of_an_update_within_one_part_are_not_copied() -> None:
    segment = of_rows([(0, 0), (0, 1), (0, 1), (1, 0)])
    assert all(np.shares_memory(ids, segment.sample_id) for _, ids in _ids_by_step(segment))


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_one_update_over_several_parts_is_one(count: int) -> None:
    same = np.zeros(count, np.int64)
    meta = SegmentMeta("r", 0, 1, 0, 0, 0)
    segment = InParts(meta, np.arange(count), np.arange(count), same.astype(np.uint64), same, same.astype(np.int32))
    assert [(n, ids.tolist()) for n, ids in _ids_by_step(segment)] == [(0, list(range(count)))][: min(count, 1)]


def piece(start: Moment, end: Moment, rows: list[tuple[int, int]], *, rank: int = 0, attempt: int = 0) -> Segment:
    """Rows (update, sample id) in turn, of a segment from one moment to another."""
    updates, ids = (np.array([row[i] for row in rows], np.int64) for i in range(2))
    last = end[0] if end[1] else end[0] - 1
    meta = SegmentMeta("r", attempt, end[0], rank, start[0], last, start[1], end[1])
    count = np.arange(len(rows))
    return Segment(meta, count, ids, count.astype(np.uint64), updates, np.zeros(len(rows), np.int32))


def whole(*segments: Segment) -> list[tuple[int, int, int, list[int]]]:
    """(attempt, rank, update, its sample ids) of each that is finished."""
    return [(meta.attempt, meta.rank, update, ids.tolist()) for meta, update, ids in _whole_steps(segments)]


def test_updates_of_segments_that_begin_and_end_between_updates() -> None:
    first = piece((0, 0), (2, 0), [(0, 5), (0, 6), (1, 7)])
    assert whole(first, piece((2, 0), (3, 0), [(2, 8)], attempt=1)) == [
        (0, 0, 0, [5, 6]), (0, 0, 1, [7]), (1, 0, 2, [8])
    ]  # fmt: skip


def test_an_update_over_several_segments_is_told_of_the_last_one() -> None:
    line = [
        piece((0, 0), (1, 1), [(0, 1), (1, 2)]),
        piece((1, 1), (1, 2), [(1, 3), (1, 4)]),
        piece((1, 2), (3, 0), [(1, 5), (2, 6)], attempt=1),
    ]
    assert whole(*line) == [(0, 0, 0, [1]), (1, 0, 1, [2, 3, 4, 5]), (1, 0, 2, [6])]


def test_an_update_that_is_not_finished_is_not_told() -> None:
    assert whole(piece((0, 0), (1, 1), [(0, 1), (1, 2)])) == [(0, 0, 0, [1])]


def test_each_rank_has_its_own_part_of_an_update() -> None:
    line = [
        piece((0, 0), (0, 1), [(0, 1)]), piece((0, 0), (0, 1), [(0, 10)], rank=1),
        piece((0, 1), (1, 0), [(0, 2)]), piece((0, 1), (1, 0), [(0, 20)], rank=1),
    ]  # fmt: skip
    assert whole(*line) == [(0, 0, 0, [1, 2]), (0, 1, 0, [10, 20])]


@pytest.mark.parametrize(
    "before",
    [
        [],
        [piece((0, 0), (1, 1), [(0, 0), (1, 1)])],  # ends a microbatch too early
        [piece((0, 0), (1, 2), [(0, 0), (1, 1)], rank=1)],
        [piece((0, 0), (1, 2), [(0, 0), (1, 1)]), piece((1, 2), (1, 3), [])],  # another one lies between
    ],
)
def test_an_update_whose_beginning_is_lost_is_left_out_and_what_follows_it_is_not(before: list[Segment]) -> None:
    line = [*before, piece((1, 2), (3, 0), [(1, 8), (2, 9)])]
    assert whole(*line) == [*whole(*before), (0, 0, 2, [9])]


def test_a_row_of_an_update_that_comes_after_the_segment_is_no_part_of_an_unfinished_one() -> None:
    assert whole(piece((0, 0), (1, 0), [(0, 1), (1, 2)])) == [(0, 0, 0, [1]), (0, 0, 1, [2])]


# -- beside the record


def recorded(update: int, ids: Sequence[int], *, rank: int = 0, attempt: int | None = 0) -> Event[StepDone]:
    """What a rank records when that update is done, of which it consumed these samples."""
    return said(step(rank, update + 1, ids=bulk_digest(np.array(ids, "<i8").data)), attempt, f"worker-{rank}")


def test_ids_are_those_that_the_rank_recorded() -> None:
    segments = [piece((3, 0), (5, 0), [(3, 1), (3, 2), (4, 3)]), piece((3, 0), (5, 0), [(3, 7), (4, 8)], rank=1)]
    right = [recorded(3, [1, 2]), recorded(4, [3]), recorded(3, [7], rank=1), recorded(4, [8], rank=1)]
    assert list(ids_differ(evidence(events=right), segments)) == []
    wrong = [recorded(3, [2, 1]), recorded(4, [3]), recorded(3, [7], rank=1), recorded(4, [9], rank=1)]
    assert list(ids_differ(evidence(events=wrong), segments)) == [
        "rank 0 of attempt 0 recorded other samples for step 3 than its ledger has (first sample id there 1)",
        "rank 1 of attempt 0 recorded other samples for step 4 than its ledger has (first sample id there 8)",
    ]


@pytest.mark.parametrize("where", [{"attempt": 1}, {"attempt": None}, {"rank": 1}])
def test_ids_of_others_are_not_compared_with_a_ranks_own(where: dict[str, Any]) -> None:
    other = evidence(events=[recorded(0, [9], **where)])
    assert list(ids_differ(other, [piece((0, 0), (1, 0), [(0, 1)])])) == []


def test_ids_of_an_update_without_a_record_are_not_compared() -> None:
    known = evidence(events=[recorded(1, [5]), recorded(3, [6])])
    line = [piece((0, 0), (5, 0), [(0, 1), (1, 5), (2, 2), (3, 6), (4, 3)])]
    assert list(ids_differ(known, line)) == []


class Asked(Steps):
    """Notes which texts were taken out."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps.blocks)
        self.asked: list[list[int]] = []

    def texts(self, name: str, indices: Any) -> list[str]:
        self.asked.append(indices.tolist())
        return super().texts(name, indices)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 8), max_size=12))
def test_texts_are_those_of_the_index_in_whatever_order_they_are_asked_for(indices: list[int]) -> None:
    done = Steps.of([said(step(0, n, ids=f"text {n}")) for n in range(9)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumed_module, "_TOLD", 3)
        told = _Told(done)
        assert [told.ids(index) for index in indices] == [f"text {index}" for index in indices]


def test_texts_that_are_asked_for_in_turn_are_taken_out_several_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumed_module, "_TOLD", 3)
    done = Asked(Steps.of([said(step(0, n, ids=f"text {n}")) for n in range(5)]))
    told = _Told(done)
    for index in (0, 0, 1, 2, 3, 4, 3):
        assert told.ids(index) == f"text {index}"
    assert done.asked == [[0, 1, 2], [3, 4]]


def test_texts_are_taken_out_some_hundred_at_a_time() -> None:
    done = Asked(Steps.of([said(step(0, n)) for n in range(300)]))
    told = _Told(done)
    for index in range(300):
        told.ids(index)
    assert [len(indices) for indices in done.asked] == [256, 44]


# -- missing from the record


def missing(segment: Segment, *events: Event[StepDone]) -> list[str]:
    return list(ids_missing(evidence(events=events), [segment]))


def test_every_published_update_is_in_the_history() -> None:
    segment = piece((3, 0), (6, 0), [])
    done = [recorded(update, []) for update in (3, 4, 5)]
    words = "the history of rank 0 in attempt 0 lacks step "
    assert missing(segment, *done) == []
    assert missing(segment, *done[:2]) == [words + "6"]
    assert missing(segment, done[0], done[2]) == [words + "5"]
    assert missing(segment, *done[1:]) == [words + "4"]
    assert missing(segment) == [words + "4"]
    assert missing(segment, recorded(2, []), *done, recorded(6, [])) == []


@pytest.mark.parametrize("where", [{"rank": 1}, {"attempt": 1}, {"attempt": None}])
def test_the_history_of_others_does_not_count(where: dict[str, Any]) -> None:
    segment = piece((0, 0), (1, 0), [])
    assert missing(segment, recorded(0, [], **where)) == ["the history of rank 0 in attempt 0 lacks step 1"]


def test_the_update_that_a_checkpoint_lies_in_need_not_be_in_the_history() -> None:
    done = [recorded(3, []), recorded(4, [])]
    assert missing(piece((3, 0), (5, 2), []), *done) == []
    assert missing(piece((3, 0), (5, 2), []), done[0]) == ["the history of rank 0 in attempt 0 lacks step 5"]
    assert missing(piece((5, 1), (5, 2), [])) == []
    assert missing(piece((5, 1), (6, 0), [])) == ["the history of rank 0 in attempt 0 lacks step 6"]


def test_each_segment_is_held_against_its_own_ranks_history() -> None:
    segments = [piece((0, 0), (1, 0), [], rank=rank) for rank in (0, 1)]
    seen = evidence(events=[recorded(0, [], rank=0)])
    assert list(ids_missing(seen, segments)) == ["the history of rank 1 in attempt 0 lacks step 1"]
    assert list(ids_missing(seen, segments[::-1])) == ["the history of rank 1 in attempt 0 lacks step 1"]
