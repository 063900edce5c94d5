"""Faults exactly where one piece of the ledger ends and the next begins: of windows, of parts of a segment, of
segments, in memory and in files. What is found must not depend on where the borders lie.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import audit_files as files
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit import read_files
from chaos.audit import windows as windows_module
from chaos.audit.coverage import Coverage, Expected, cover
from chaos.audit.evidence import Segment, SegmentMeta
from chaos.audit.formats import FormatError
from chaos.audit.read_files import see_file
from chaos.audit.windows import Spot, windows

BATCH, ROWS, STEPS = 4, 16, 12
END = BATCH * STEPS


def plan(positions: Any) -> Any:
    """Another order in every epoch."""
    return (positions * 5 + positions // ROWS * 3) % ROWS


CONTENT = np.arange(ROWS, dtype=np.uint64) * np.uint64(13)
WANT = Expected(END, BATCH, ROWS, plan, CONTENT, np.ones(ROWS, np.bool_))


def segment(positions: list[int], first_step: int = 0, last_step: int = STEPS - 1, attempt: int = 0) -> Segment:
    p = np.array(positions, np.int64)
    meta = SegmentMeta("r", attempt, last_step + 1, 0, first_step, last_step)
    return Segment(meta, p, plan(p), CONTENT[plan(p)], p // BATCH, np.zeros(len(p), np.int32))


def stored(folder: Path, segments: list[Segment]) -> list[Segment]:
    """The same segments, as the reader has them of files."""
    found = []
    for number, each in enumerate(segments):
        rows = {name: getattr(each, name) for name in files.LEDGER}
        path = folder / f"{number}.arrow"
        path.write_bytes(files.segment(rows, asdict(each.meta)))
        seen = see_file(path, path.name, "ledger").segment
        assert seen is not None
        found.append(seen)
    return found


@pytest.fixture(params=["memory", "files"])
def covered(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """covered(segments, window, part): with windows and parts of this size, each segment in memory or in a file."""

    def judge(segments: list[Segment], window: int, part: int) -> Coverage:
        monkeypatch.setattr(windows_module, "_PART", part)
        return cover(segments if request.param == "memory" else stored(tmp_path, segments), WANT, window)

    return judge


SIZES = [(8, 8), (8, 5), (5, 8), (1, 1), (1 << 16, 8)]


@pytest.mark.parametrize(("window", "part"), SIZES)
def test_nothing_is_wrong_at_any_border(covered: Any, window: int, part: int) -> None:
    found = covered([segment(list(range(END)))], window, part)
    assert (found.never, found.repeated, found.uncertain, found.unread, found.epoch_faults) == (0, 0, 0, 0, [])
    tallies = (found.beyond, found.wrong_step, found.wrong_sample, found.wrong_content, found.outside_segment)
    assert [tally.count for tally in tallies] == [0] * 5


@pytest.mark.parametrize(("window", "part"), SIZES)
@pytest.mark.parametrize("gap", [(8, 8), (7, 8), (0, 0), (47, 47), (3, 20)])
def test_a_gap_at_the_border_is_one_gap(covered: Any, window: int, part: int, gap: tuple[int, int]) -> None:
    rows = [p for p in range(END) if not gap[0] <= p <= gap[1]]
    found = covered([segment(rows)], window, part)
    assert (found.first_gap, found.never, found.repeated) == (gap, gap[1] - gap[0] + 1, 0)
    assert (found.wrong_step.count, found.wrong_sample.count, found.wrong_content.count) == (0, 0, 0)


@pytest.mark.parametrize(("window", "part"), SIZES)
@pytest.mark.parametrize("position", [7, 8, 0, 47])
def test_a_position_twice_in_one_segment_across_the_border(covered: Any, window: int, part: int, position: int) -> None:
    found = covered([segment(sorted([*range(END), position]))], window, part)
    assert (found.repeated, found.never) == (1, 0)
    assert (found.first_repeat.first, found.first_repeat.last) == (position, position)
    assert [(spot.step, spot.position) for spot in found.first_repeat.spots] == [(position // BATCH, position)] * 2


@pytest.mark.parametrize(("window", "part"), SIZES)
def test_a_stretch_that_two_segments_applied_is_one_across_the_border(covered: Any, window: int, part: int) -> None:
    again = segment([6, 7, 8, 9, 10], 6, 6, attempt=1)
    again = replace(again, step=np.full(5, 6))
    first = replace(segment(list(range(END))), step=np.full(END, 2))
    found = covered([first, again], window, part)
    assert found.repeated == 5
    assert (found.first_repeat.first, found.first_repeat.last) == (6, 10)
    assert [(spot.step, spot.attempt) for spot in found.first_repeat.spots] == [(2, 0), (6, 1)]


def test_a_stretch_ends_at_the_border_where_another_step_applied_it(covered: Any) -> None:
    again = replace(segment([6, 7, 8, 9], 6, 6, attempt=1), step=np.array([6, 6, 7, 7]))
    first = replace(segment(list(range(END))), step=np.full(END, 2))
    found = covered([first, again], 8, 8)
    assert (found.first_repeat.first, found.first_repeat.last, found.repeated) == (6, 7, 4)


@pytest.mark.parametrize(("window", "part"), SIZES)
def test_two_samples_swapped_across_the_border(covered: Any, window: int, part: int) -> None:
    right = segment(list(range(END)))
    order = np.arange(END)
    order[[7, 8]] = [8, 7]
    found = covered([replace(right, sample_id=right.sample_id[order], content=right.content[order])], window, part)
    assert (found.wrong_sample.count, found.wrong_content.count) == (2, 0)
    first = found.wrong_sample.first
    assert (first.step, first.position, first.sample_id) == (1, 7, int(plan(8)))


@pytest.mark.parametrize("cut", [8, 16, 7])
def test_a_segment_ends_where_a_window_does(covered: Any, cut: int) -> None:
    step = cut // BATCH
    parts = [segment(list(range(cut)), 0, step), segment(list(range(cut, END)), step, STEPS - 1, attempt=1)]
    assert covered(parts, 8, 8).never == 0
    lost = [segment(list(range(cut - 1)), 0, step), segment(list(range(cut + 1, END)), step, STEPS - 1, attempt=1)]
    assert covered(lost, 8, 8).first_gap == (cut - 1, cut)
    both = [segment(list(range(cut + 1)), 0, step), segment(list(range(cut, END)), step, STEPS - 1, attempt=1)]
    repeat = covered(both, 8, 8).first_repeat
    assert (repeat.first, repeat.last, [spot.attempt for spot in repeat.spots]) == (cut, cut, [0, 1])


def test_an_epoch_that_ends_inside_a_window_is_judged_over_all_segments(covered: Any) -> None:
    right = segment(list(range(END)))
    ids = right.sample_id.copy()
    ids[15], ids[17] = ids[14], ids[16]  # one in each of two epochs
    halves = [replace(right, sample_id=ids).part(begin, end) for begin, end in ((0, 15), (15, 17), (17, END))]
    want = [f"epoch {epoch} holds sample {sample} more than once" for epoch, sample in ((0, ids[14]), (1, ids[16]))]
    for window in (4, 5, 16, 1 << 16):
        assert covered(halves, window, 4).epoch_faults == want


@settings(max_examples=40, deadline=None)
@given(
    positions=st.lists(st.lists(st.integers(-5, 40), max_size=12), min_size=1, max_size=4),
    window=st.integers(1, 20),
    part=st.integers(1, 9),
)
def test_windows_hold_every_row_once_in_order(positions: list[list[int]], window: int, part: int) -> None:
    segments = [segment(sorted(each)) for each in positions]
    held: list[tuple[int, int]] = []
    end = -100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows_module, "_PART", part)
        for start, limit, pieces in windows(segments, window, (0, 11)):
            rows = [(p, piece.owner) for piece in pieces for p in piece.position.tolist()]
            assert end <= start < limit <= start + window
            assert min(rows)[0] == start
            assert all(start <= p < limit for p, _ in rows)
            assert not start < 0 < limit
            assert not start < 11 < limit
            held += rows
            end = limit
    assert sorted(held) == sorted((p, n) for n, each in enumerate(positions) for p in each)


@pytest.mark.parametrize("short_rows", [0, 1024])
def test_a_stored_segment_has_its_rows_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_rows: int
) -> None:
    """Those of a long one are mapped at each look, those of a short one kept."""
    monkeypatch.setattr(read_files, "_SHORT_ROWS", short_rows)
    (seen,) = stored(tmp_path, [segment(list(range(10)))])
    assert (seen.rows, seen.first) == (10, 0)
    assert [part.position.tolist() for part in seen.parts(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert seen.sample_id.tolist() == plan(np.arange(10)).tolist()
    (empty,) = stored(tmp_path, [segment([])])
    assert (empty.rows, empty.first, list(empty.parts())) == (0, None, [])


def test_a_segment_that_changes_while_it_is_audited_is_no_evidence(tmp_path: Path) -> None:
    (seen,) = stored(tmp_path, [segment(list(range(10)))])
    stored(tmp_path, [segment(list(range(11)))])
    with pytest.raises(FormatError, match="has changed"):
        seen.part(0, 4)


# -- windows of segments in memory


def seen(segments: list[Segment], window: int, cuts: tuple[int, ...] = ()) -> list[tuple[int, int, list[Any]]]:
    """[start, limit) of each window, and (index of the segment, positions) of each of its pieces."""
    return [
        (start, limit, [(piece.owner, piece.position.tolist()) for piece in pieces])
        for start, limit, pieces in windows(segments, window, cuts)
    ]


def test_a_window_begins_at_the_first_row_that_was_not_in_one_before() -> None:
    assert seen([segment([2, 3, 9]), segment([4, 20])], 4) == [
        (2, 6, [(0, [2, 3]), (1, [4])]),
        (9, 13, [(0, [9])]),
        (20, 24, [(1, [20])]),
    ]


def test_a_row_at_the_end_of_a_window_is_in_the_next() -> None:
    assert seen([segment([0, 4])], 4) == [(0, 4, [(0, [0])]), (4, 8, [(0, [4])])]
    assert seen([segment([0]), segment([4])], 4) == [(0, 4, [(0, [0])]), (4, 8, [(1, [4])])]


@pytest.mark.parametrize("starts", [(-1, 0), (0, -1), (0, 1), (1, 0), (1, -1), (-1, 1), (7, 3), (1, 0, -1), (0, 2, 1)])
def test_segments_may_come_in_any_order(starts: tuple[int, ...]) -> None:
    found = seen([segment([start]) for start in starts], 1)
    assert found == [(start, start + 1, [(starts.index(start), [start])]) for start in sorted(starts)]


def test_a_window_ends_where_it_would_reach_across_a_cut() -> None:
    one = [segment([0, 1, 2, 3, 4, 5])]
    assert [found[:2] for found in seen(one, 4, (2,))] == [(0, 2), (2, 6)]
    assert [found[:2] for found in seen(one, 4, (3, 2))] == [(0, 2), (2, 3), (3, 7)]
    assert [found[:2] for found in seen(one, 4, (0, 4, 9))] == [(0, 4), (4, 8)]
    assert [found[:2] for found in seen([segment([-3, 1])], 8, (0,))] == [(-3, 0), (1, 9)]


def test_a_segment_without_rows_has_no_window() -> None:
    assert seen([], 4) == seen([segment([])], 4) == []
    assert seen([segment([]), segment([3])], 4) == [(3, 7, [(1, [3])])]


def test_of_a_long_segment_a_quarter_of_a_million_rows_are_mapped_at_once() -> None:
    rows = (1 << 18) + 1
    count = np.arange(rows)
    meta = SegmentMeta("r", 0, 1, 0, 0, 0)
    long = Segment(meta, count, count, count.astype(np.uint64), count, count.astype(np.int32))
    ((_, _, pieces),) = windows([long], rows, ())
    assert [len(piece.position) for piece in pieces] == [1 << 18, 1]


def test_a_row_is_told_with_what_it_says_and_whose_it_is() -> None:
    other = segment([4, 6], attempt=3)
    ((_, _, (piece,)),) = windows([segment([]), other], 4, ())
    assert piece.spot(1) == Spot(1, 6, int(plan(6)), 3, 1)
    assert (piece.meta, piece.step.tolist(), piece.sample_id.tolist()) == (
        other.meta,
        [1, 1],
        plan(other.position).tolist(),
    )
