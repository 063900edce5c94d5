"""The arithmetic of the ledger check against a slow, obvious reference, on rows with any faults."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit.coverage import (
    Coverage,
    Expected,
    Spot,
    Tally,
    _judge_content,
    _judge_segment,
    _runs,
    _without,
    cover,
)
from chaos.audit.evidence import I64, Segment, SegmentMeta
from chaos.audit.windows import Rows

BATCH, ROWS = 4, 7
Row = tuple[int, int, int, int]  # position, sample id, content, step


def plan(positions: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    return (positions * 3 + positions // ROWS) % ROWS


CONTENT = np.arange(ROWS, dtype=np.uint64) * np.uint64(11)


def segment(rows: list[Row], attempt: int, first_step: int, last_step: int) -> Segment:
    rows = sorted(rows, key=lambda row: row[0])
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    meta = SegmentMeta("r", attempt, last_step + 1, 0, first_step, last_step)
    return Segment(
        meta, columns[0], columns[1], columns[2].astype(np.uint64), columns[3], np.zeros(len(rows), np.int32)
    )


def good_rows(first: int, end: int) -> list[Row]:
    return [
        (p, int(i), int(CONTENT[i]), p // BATCH)
        for p, i in zip(range(first, end), plan(np.arange(first, end)), strict=True)
    ]


def expected(cursor: int, absent: tuple[tuple[int, int], ...] = ()) -> Expected:
    known = np.ones(ROWS, np.bool_)
    known[6] = False
    return Expected(cursor, BATCH, ROWS, plan, CONTENT, known, absent)


@st.composite
def ledgers(draw: st.DrawFn) -> tuple[list[Segment], int]:
    """Some segments that cover 0 … cursor − 1, with rows dropped, repeated, moved and changed."""
    steps = draw(st.integers(1, 8))
    cuts = sorted({0, steps, *draw(st.lists(st.integers(0, steps), max_size=2))})
    segments = []
    for attempt, (first, end) in enumerate(itertools.pairwise(cuts)):
        rows = good_rows(first * BATCH, end * BATCH)
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, max(0, len(rows) - 1)))
            kind = draw(st.sampled_from(["drop", "repeat", "position", "sample", "content", "step"]))
            if not rows:
                break
            p, i, c, s = rows[at]
            match kind:
                case "drop":
                    del rows[at]
                case "repeat":
                    rows.append(rows[at])
                case "position":
                    rows[at] = (draw(st.integers(-3, steps * BATCH + 9)), i, c, s)
                case "sample":
                    rows[at] = (p, draw(st.integers(-1, ROWS)), c, s)
                case "content":
                    rows[at] = (p, i, c + 1, s)
                case _:
                    rows[at] = (p, i, c, draw(st.integers(0, steps + 1)))
        split = draw(st.integers(0, len(rows)))
        segments += [segment(part, attempt, first, end - 1) for part in (rows[:split], rows[split:])]
    return segments, steps * BATCH


def slow(segments: list[Segment], want: Expected) -> dict[str, object]:
    """Row by row, in dictionaries."""
    rows = [
        (Spot(int(s), int(p), int(i), seg.meta.attempt, n), int(c), seg.meta)
        for n, seg in enumerate(segments)
        for p, i, c, s in zip(seg.position, seg.sample_id, seg.content, seg.step, strict=True)
    ]
    times = Counter(spot.position for spot, _, _ in rows)
    lost = {p for first, end in want.absent for p in range(first, end)}
    never = [p for p in range(want.cursor) if not times[p]]
    faults: dict[str, list[Spot]] = {
        "beyond": [r for r, _, _ in rows if not 0 <= r.position < want.cursor],
        "wrong_step": [r for r, _, _ in rows if r.step != r.position // BATCH],
        "outside_segment": [r for r, _, m in rows if not m.first_step <= r.step <= m.last_step],
        "wrong_sample": [r for r, _, _ in rows if r.position >= 0 and r.sample_id != plan(np.array([r.position]))[0]],
        "wrong_content": [r for r, c, _ in rows if 0 <= r.sample_id < 6 and c != CONTENT[r.sample_id]],
    }
    repeated = [p for p in range(want.cursor) if times[p] > 1]
    gaps = [p for p in never if p not in lost]
    return {
        **{n: (len(f), min(f, key=lambda s: (s.step, s.position), default=None)) for n, f in faults.items()},
        "repeated": len(repeated), "first_repeat": min(repeated, default=None),
        "never": len(gaps), "first_gap": min(gaps, default=None), "uncertain": len(never) - len(gaps),
        "unread": sum(not 0 <= r.sample_id < 6 for r, _, _ in rows),
    }  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    ledgers(),
    st.sampled_from([1, 2, 5, 1 << 17]),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=2),
)
def test_equals_the_slow_reference(
    ledger: tuple[list[Segment], int], window: int, absent: list[tuple[int, int]]
) -> None:
    segments, cursor = ledger
    want = expected(cursor, tuple(absent))
    found, truth = cover(segments, want, window), slow(segments, want)
    for name in ("beyond", "wrong_step", "outside_segment", "wrong_sample", "wrong_content"):
        tally = getattr(found, name)
        count, first = truth[name]  # type: ignore[misc]
        assert tally.count == count, name
        if first is not None:
            assert (tally.first.step, tally.first.position) == (first.step, first.position), name
    assert (found.repeated, found.never, found.uncertain, found.unread) == (
        truth["repeated"], truth["never"], truth["uncertain"], truth["unread"],
    )  # fmt: skip
    assert (found.first_repeat.first if found.first_repeat else None) == truth["first_repeat"]
    assert (found.first_gap[0] if found.first_gap else None) == truth["first_gap"]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 9))
def test_a_right_ledger_has_no_fault(steps: int, window: int) -> None:
    found = cover([segment(good_rows(0, steps * BATCH), 0, 0, steps - 1)], expected(steps * BATCH), window)
    assert (found.repeated, found.never, found.epoch_faults) == (0, 0, [])
    assert found.wrong_sample.count == found.wrong_step.count == found.beyond.count == 0


SPLIT = {"ranks": 2, "microbatches": 2}  # of 4 positions: rank 0 has 0 and 1, microbatch 0 has 0 and 2


def inside(positions: list[int], start: tuple[int, int], end: tuple[int, int], attempt: int = 0) -> Segment:
    """A segment of right rows at these positions, from one (update, microbatch) to another, exclusive."""
    rows = [good_rows(p, p + 1)[0] for p in positions]
    last = end[0] if end[1] else end[0] - 1
    meta = SegmentMeta("r", attempt, end[0], 0, start[0], last, start[1], end[1])
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    return Segment(meta, columns[0], columns[1], columns[2].astype(np.uint64), columns[3],
                   np.array([p % 2 for p in positions], np.int32))  # fmt: skip


def wanted(cursor: int, partial: int = 0) -> Expected:
    return replace(expected(cursor), partial=partial, **SPLIT)  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [1, 3, 1 << 17])
def test_a_ledger_that_ends_inside_an_update_has_what_was_consumed_of_it(window: int) -> None:
    right = inside([0, 1, 2, 3, 4, 6], (0, 0), (1, 1))
    found = cover([right], wanted(4, 1), window)
    assert (found.never, found.repeated, found.beyond.count, found.outside_segment.count) == (0, 0, 0, 0)
    assert found.wrong_microbatch.count == 0
    missing = cover([inside([0, 1, 2, 3, 4], (0, 0), (1, 1))], wanted(4, 1), window)
    assert (missing.never, missing.first_gap) == (1, (6, 6))
    ahead = cover([inside([0, 1, 2, 3, 4, 5, 6], (0, 0), (1, 1))], wanted(4, 1), window)
    assert (ahead.beyond.count, ahead.outside_segment.count) == (1, 1)
    assert ahead.beyond.first is not None
    assert ahead.beyond.first.position == 5


@pytest.mark.parametrize("window", [1, 3, 1 << 17])
def test_an_update_in_two_segments_of_two_attempts(window: int) -> None:
    first = inside([0, 1, 2, 3, 4, 6], (0, 0), (1, 1))
    second = inside([5, 7, 8, 9, 10, 11], (1, 1), (3, 0), attempt=1)
    found = cover([first, second], wanted(12), window)
    assert (found.never, found.repeated, found.outside_segment.count, found.epoch_faults) == (0, 0, 0, [])
    again = inside([4, 5, 6, 7, 8, 9, 10, 11], (1, 1), (3, 0), attempt=1)
    twice = cover([first, again], wanted(12), window)
    assert (twice.repeated, twice.outside_segment.count) == (2, 2)
    assert twice.first_repeat is not None
    assert [spot.attempt for spot in twice.first_repeat.spots] == [0, 1]
    lost = cover([first, inside([7, 8, 9, 10, 11], (1, 1), (3, 0), attempt=1)], wanted(12), window)
    assert (lost.never, lost.first_gap) == (1, (5, 5))


def test_rows_of_another_microbatch_than_their_position() -> None:
    segment_ = inside([0, 1, 2, 3], (0, 0), (1, 0))
    changed = replace(segment_, microbatch=np.array([0, 0, 0, 1], np.int32))
    found = cover([changed], wanted(4))
    assert (found.wrong_microbatch.count, found.wrong_step.count) == (1, 0)
    assert found.wrong_microbatch.first is not None
    assert found.wrong_microbatch.first.position == 1


def test_a_repeat_is_told_with_its_whole_stretch_and_who_applied_it() -> None:
    segments = [
        segment(good_rows(0, 12), 0, 0, 2),
        segment([(p, i, c, 3) for p, i, c, _ in good_rows(8, 12)], 1, 3, 3),
    ]
    repeat = cover(segments, expected(12)).first_repeat
    assert repeat is not None
    assert (repeat.first, repeat.last) == (8, 11)
    assert [(spot.step, spot.attempt) for spot in repeat.spots] == [(2, 0), (3, 1)]


def test_a_repeat_ends_where_others_applied_it() -> None:
    again = [(p, i, c, s + 1) for p, i, c, s in good_rows(0, 8)]
    repeat = cover([segment(good_rows(0, 12), 0, 0, 2), segment(again, 1, 1, 2)], expected(12)).first_repeat
    assert repeat is not None
    assert (repeat.first, repeat.last) == (0, 3)


def test_a_gap_over_several_windows_is_one() -> None:
    rows = good_rows(0, 3) + good_rows(30, 40)
    found = cover([segment(rows, 0, 0, 9)], expected(40), window=4)
    assert (found.never, found.first_gap) == (27, (3, 29))


def test_epochs_are_judged_by_ids_alone() -> None:
    ids = [0, 1, 2, 3, 4, 5, 5, 0, 1, 2, 3, 4, 5, 9]
    rows = [(p, i, 0, p // BATCH) for p, i in enumerate(ids)]
    want = Expected(14, BATCH, ROWS)
    assert cover([segment(rows, 0, 0, 3)], want, window=3).epoch_faults == [
        "epoch 0 holds sample 5 more than once", "epoch 1 holds sample 9, which the dataset lacks",
    ]  # fmt: skip
    unfinished = Expected(13, BATCH, ROWS)
    assert len(cover([segment(rows[:13], 0, 0, 3)], unfinished).epoch_faults) == 1


def test_no_segments_leave_everything_out() -> None:
    found = cover([], expected(8))
    assert (found.never, found.first_gap) == (8, (0, 7))


def test_far_positions_cost_nothing() -> None:
    rows = [*good_rows(0, 4), (1 << 62, 0, 0, 0)]
    assert cover([segment(rows, 0, 0, 0)], expected(1 << 61)).never == (1 << 61) - 4


def test_each_of_several_gaps_counts_and_the_first_is_told() -> None:
    rows = [row for row in good_rows(0, 40) if row[0] not in (9, 10, 20, 30, 31, 32)]
    found = cover([segment(rows, 0, 0, 9)], expected(40))
    assert (found.never, found.first_gap) == (6, (9, 10))


def test_a_repeat_far_from_the_windows_start_is_told_whole() -> None:
    segments = [segment(good_rows(0, 40), 0, 0, 9), segment(good_rows(33, 36), 1, 8, 8)]
    found = cover(segments, expected(40), window=30)
    assert found.first_repeat is not None
    assert (found.first_repeat.first, found.first_repeat.last, found.repeated) == (33, 35, 3)


def test_an_unfinished_epoch_may_be_anything() -> None:
    rows = [(p, i, 0, p // BATCH) for p, i in enumerate([0, 1, 2, 3, 4, 5, 6, 1, 1])]
    assert cover([segment(rows, 0, 0, 2)], Expected(9, BATCH, ROWS)).epoch_faults == []


def test_repeats_and_gaps_are_not_told_again_as_epochs() -> None:
    found = cover([segment([*good_rows(0, 7), *good_rows(0, 1)], 0, 0, 1)], expected(7))
    assert (found.repeated, found.epoch_faults) == (1, [])


def test_the_first_position_and_the_one_after_the_last() -> None:
    wrong = [(0, 5, 55, 0), *good_rows(1, 8), (8, 3, 33, 2)]
    found = cover([segment(wrong, 0, 0, 2)], expected(8))
    assert (found.wrong_sample.count, found.beyond.count) == (1 + (int(plan(np.array([8]))[0]) != 3), 1)
    assert (found.never, found.first_gap, found.repeated) == (0, None, 0)
    assert found.beyond.first is not None
    assert found.beyond.first.position == 8


@pytest.mark.parametrize("window", [1, 3, 1 << 17])
def test_a_row_before_the_first_position_is_beyond_and_displaces_no_other(window: int) -> None:
    """At −1, where a window could begin, and further off, where one would reach over position 0."""
    for position in (-1, -2):
        found = cover([segment([(position, 3, 33, -1), *good_rows(0, 8)], 0, -1, 1)], expected(8), window)
        assert (found.beyond.count, found.never, found.repeated, found.epoch_faults) == (1, 0, 0, [])
        assert (found.wrong_step.count, found.wrong_sample.count, found.wrong_content.count) == (0, 0, 0)


@pytest.mark.parametrize("sample", [-1, ROWS])
def test_an_id_outside_of_a_dataset_that_is_known_whole_is_unread(sample: int) -> None:
    want = replace(expected(4), known=np.ones(ROWS, np.bool_))
    rows = [*good_rows(0, 3), (3, sample, 0, 0)]
    found = cover([segment(rows, 0, 0, 0)], want)
    assert (found.unread, found.wrong_content.count, found.wrong_sample.count) == (1, 0, 1)


# -- the whole of the first repeat and of the first gap, in windows of any size


def stretches(positions: list[int]) -> list[tuple[int, int]]:
    """Runs of consecutive integers, each as (first, last)."""
    found: list[tuple[int, int]] = []
    for position in positions:
        if found and found[-1][1] == position - 1:
            found[-1] = found[-1][0], position
        else:
            found.append((position, position))
    return found


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-5, 30), max_size=20, unique=True).map(sorted))
def test_runs_of_consecutive_integers(values: list[int]) -> None:
    assert list(_runs(np.array(values, np.int64))) == stretches(values)


pieces_of_positions = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), max_size=3)


@settings(max_examples=50, deadline=None)
@given(pieces_of_positions, st.integers(-2, 20), st.integers(-2, 20))
def test_pieces_without_what_is_cut_out_of_them(pieces: list[tuple[int, int]], first: int, end: int) -> None:
    pieces = [(begin, begin + number) for begin, number in pieces]
    left = _without(pieces, first, end)
    assert [p for begin, stop in left for p in range(begin, stop)] == [
        p for begin, stop in pieces for p in range(begin, stop) if not first <= p < end
    ]
    assert all(begin < stop for begin, stop in left)
    assert _without(pieces, first, first) == pieces


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(0, 1)), max_size=3),
    st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24)), max_size=2),
    st.sampled_from([1, 3, 8, 1 << 16]),
)
def test_the_first_stretch_of_each_kind(
    applied: list[tuple[int, int, int]], absent: list[tuple[int, int]], window: int
) -> None:
    """Of several segments, each a stretch of positions, all applied by one step."""
    segments = [
        segment([(p, 0, 0, step) for p in range(first, first + number)], attempt, 0, 9)
        for attempt, (first, number, step) in enumerate(applied)
    ]
    found = cover(segments, expected(24, tuple(absent)), window)
    by = {p: [(step, a) for a, (first, number, step) in enumerate(applied) if first <= p < first + number]
          for p in range(24)}  # fmt: skip
    repeats = [p for p in range(24) if len(by[p]) > 1]
    lost = {p for first, end in absent for p in range(first, end)}
    gaps = [p for p in range(24) if not by[p] and p not in lost]
    assert (found.repeated, found.never) == (len(repeats), len(gaps))
    assert found.uncertain == sum(not by[p] and p in lost for p in range(24))
    assert found.first_gap == (stretches(gaps)[0] if gaps else None)
    if not repeats:
        assert found.first_repeat is None
        return
    by_same = [p for p in repeats if by[p] == by[repeats[0]] or p > repeats[0]]
    last = repeats[0]
    while last + 1 in by_same and sorted(by[last + 1]) == sorted(by[repeats[0]]):
        last += 1
    repeat = found.first_repeat
    assert repeat is not None
    assert (repeat.first, repeat.last) == (repeats[0], last)
    assert [(spot.step, spot.attempt) for spot in repeat.spots] == sorted(by[repeats[0]])
    assert {spot.position for spot in repeat.spots} == {repeats[0]}


def test_a_later_window_does_not_take_the_first_repeat_up_again() -> None:
    again = [segment(good_rows(p, p + 1), 1 + n, 0, 9) for n, p in enumerate((2, 4, 9))]
    for window in (1, 2, 3, 4, 5, 1 << 16):
        repeat = cover([segment(good_rows(0, 12), 0, 0, 2), *again], expected(12), window).first_repeat
        assert repeat is not None
        assert (repeat.first, repeat.last) == (2, 2)


def test_a_position_three_times_has_three_that_applied_it() -> None:
    thrice = [segment(good_rows(2, 4), attempt, 0, 9) for attempt in (3, 1, 2)]
    found = cover([segment([*good_rows(0, 2), *good_rows(4, 8)], 0, 0, 1), *thrice], expected(8))
    assert (found.repeated, found.never) == (2, 0)
    assert found.first_repeat is not None
    assert [(spot.attempt, spot.segment) for spot in found.first_repeat.spots] == [(1, 2), (2, 3), (3, 1)]


def plain(first: int, end: int, attempt: int) -> Segment:
    """Long segments of which nothing but the positions counts."""
    positions = np.arange(first, end)
    meta = SegmentMeta("r", attempt, 1, 0, 0, 0)
    nothing = np.zeros(len(positions), np.int64)
    return Segment(meta, positions, nothing, nothing.astype(np.uint64), nothing, nothing.astype(np.int32))


def test_of_a_long_repeat_some_thousand_positions_are_looked_at() -> None:
    found = cover([plain(0, 5000, 0), plain(0, 5000, 1)], Expected(5000, 5000))
    assert found.first_repeat is not None
    assert (found.first_repeat.first, found.first_repeat.last, found.repeated) == (0, 4095, 5000)


def test_what_ought_to_be_there_is_computed_for_a_window_at_once() -> None:
    asked: list[int] = []

    def noting(positions: I64) -> I64:
        asked.append(len(positions))
        return np.zeros(len(positions), np.int64)

    rows = (1 << 16) + 4
    found = cover([plain(0, rows, 0)], Expected(rows, rows, plan=noting))
    assert (asked, found.never, found.wrong_sample.count) == ([1 << 16, 4], 0, 0)


# -- one thing at a time


def rows_of(rows: list[tuple[int, int, int]], *, owner: int = 0, meta: SegmentMeta | None = None) -> Rows:
    """rows: (position, step, microbatch); sample ids are positions."""
    position, step, microbatch = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    place = meta or SegmentMeta("r", 0, 9, 0, 0, 8)
    return Rows(
        Segment(place, position, position, position.astype(np.uint64), step, microbatch.astype(np.int32)), owner
    )


def test_a_tally_counts_and_keeps_the_first_by_step_and_position() -> None:
    tally = Tally()
    tally.add(rows_of([(4, 2, 0), (5, 2, 0)]), np.array([False, False]), 2)
    assert (tally.count, tally.first, tally.epochs) == (0, None, set())
    tally.add(rows_of([(4, 2, 0), (5, 2, 0), (6, 3, 0)], owner=1), np.array([False, True, True]), 2)
    assert (tally.count, tally.first, tally.epochs) == (2, Spot(2, 5, 5, 0, 1), {2, 3})
    tally.add(rows_of([(1, 3, 0), (8, 2, 0), (9, 1, 0)]), np.array([True, True, False]), 2)
    assert (tally.count, tally.first, tally.epochs) == (4, Spot(2, 5, 5, 0, 1), {0, 2, 3, 4})
    tally.add(rows_of([(7, 2, 0), (9, 1, 0), (11, 1, 0)]), np.array([True, True, True]))
    assert (tally.count, tally.first, tally.epochs) == (7, Spot(1, 9, 9, 0, 0), {0, 2, 3, 4})


moments = st.tuples(st.integers(0, 3), st.integers(0, 2))


@settings(max_examples=50, deadline=None)
@given(moments, moments, st.lists(moments, min_size=1, max_size=4))
def test_rows_that_their_segment_does_not_cover(
    start: tuple[int, int], end: tuple[int, int], rows: list[tuple[int, int]]
) -> None:
    """A segment is of the microbatches from one moment to another."""
    last = end[0] if end[1] else end[0] - 1
    meta = SegmentMeta("r", 0, end[0], 0, start[0], last, start[1], end[1])
    result = Coverage()
    _judge_segment(rows_of([(p, *row) for p, row in enumerate(rows)], meta=meta), result)
    outside = [(row, p) for p, row in enumerate(rows) if not start <= row < end]
    assert result.outside_segment.count == len(outside)
    if outside:
        assert result.outside_segment.first is not None
        (step, _), position = min(outside, key=lambda each: (each[0][0], each[1]))
        assert (result.outside_segment.first.step, result.outside_segment.first.position) == (step, position)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-2, 4), st.booleans()), min_size=1, max_size=5),
    st.lists(st.booleans(), max_size=3),
)
def test_contents_are_compared_where_the_datasets_row_is_known(rows: list[tuple[int, bool]], known: list[bool]) -> None:
    """rows: sample id, and whether its content is that of the dataset's row."""
    content = np.arange(len(known), dtype=np.uint64) + np.uint64(7)
    ids = np.array([sample for sample, _ in rows], np.int64)
    held = np.array([sample + 7 if right else 99 for sample, right in rows]).astype(np.uint64)
    count = np.arange(len(rows))
    part = Segment(SegmentMeta("r", 0, 1, 0, 0, 0), count, ids, held, count, count.astype(np.int32))
    want = Expected(9, 3, content=content, known=np.array(known, np.bool_))
    result = Coverage()
    _judge_content(Rows(part, 0), want, all(known), result)
    there = [0 <= sample < len(known) and known[sample] for sample, _ in rows]
    assert result.unread == there.count(False)
    assert result.wrong_content.count == sum(seen and not right for seen, (_, right) in zip(there, rows, strict=True))


@pytest.mark.parametrize("sample", [0, 3, ROWS - 1])
def test_each_content_of_a_dataset_that_is_known_whole_is_compared(sample: int) -> None:
    want = Expected(ROWS, ROWS, content=CONTENT, known=np.ones(ROWS, np.bool_))
    right = [(p, p, int(CONTENT[p]), 0) for p in range(ROWS)]
    wrong = [(p, i, c + (i == sample), s) for p, i, c, s in right]
    assert cover([segment(right, 0, 0, 0)], want).wrong_content.count == 0
    found = cover([segment(wrong, 0, 0, 0)], want)
    assert (found.wrong_content.count, found.unread) == (1, 0)
    assert found.wrong_content.first == Spot(0, sample, sample, 0, 0)


@pytest.mark.parametrize("window", [1, 3, 1 << 16])
def test_what_is_to_come_of_an_update_is_beyond_and_never_repeated(window: int) -> None:
    """Positions 5 and 7 are of the second microbatch, of which nothing is consumed yet."""
    for positions in ([4, 5, 5, 6], [5, 5, 7], [4, 5, 5, 7, 7]):
        found = cover([inside([0, 1, 2, 3, *positions], (0, 0), (1, 1))], wanted(4, 1), window)
        assert (found.repeated, found.first_repeat) == (0, None)
        assert found.beyond.count == sum(position in (5, 7) for position in positions)
        assert found.never == sum(position not in positions for position in (4, 6))


@pytest.mark.parametrize("window", [1, 4, 1 << 16])
def test_epochs_of_wrong_samples_are_told(window: int) -> None:
    rows = [(p, i if p not in (1, 15, 16) else 6 - i, c, s) for p, i, c, s in good_rows(0, 20)]
    found = cover([segment(rows, 0, 0, 4)], expected(20), window)
    wrong = [p for p in (1, 15, 16) if 6 - int(plan(np.array([p]))[0]) != int(plan(np.array([p]))[0])]
    assert found.wrong_sample.count == len(wrong) > 0
    assert found.wrong_sample.epochs == {p // ROWS for p in wrong}


@pytest.mark.parametrize("window", [1, 3, 1 << 16])
def test_each_row_behind_the_cursor_is_beyond_and_judged_like_the_others(window: int) -> None:
    rows = [*good_rows(0, 8), *good_rows(9, 10), (12, 0, 0, 9)]
    found = cover([segment(rows, 0, 0, 9)], expected(8), window)
    assert (found.beyond.count, found.never, found.repeated, found.epoch_faults) == (2, 0, 0, [])
    assert found.beyond.first is not None
    assert (found.beyond.first.position, found.wrong_step.count) == (9, 1)


def test_repeats_behind_the_cursor_or_before_the_first_position_are_beyond_only() -> None:
    rows = [(-1, 0, 0, -1), (-1, 0, 0, -1), *good_rows(0, 8), *good_rows(9, 10), *good_rows(9, 10)]
    found = cover([segment(rows, 0, -1, 9)], expected(8))
    assert (found.beyond.count, found.repeated, found.never) == (4, 0, 0)


@pytest.mark.parametrize("window", [1, 3, 1 << 16])
def test_lost_positions_are_uncertain_and_what_is_to_come_is_not(window: int) -> None:
    want = replace(wanted(4, 1), absent=((1, 3), (5, 7)))
    found = cover([inside([0, 3, 4], (0, 0), (1, 1))], want, window)
    assert (found.uncertain, found.never, found.first_gap) == (3, 0, None)
    assert cover([inside([0, 3], (0, 0), (1, 1))], want, window).first_gap == (4, 4)


def test_epochs_are_not_judged_where_a_position_is_uncertain() -> None:
    ids = [0, 1, 2, 3, 4, 5, 5]
    rows = [(p, i, 0, p // BATCH) for p, i in enumerate(ids)]
    assert cover([segment(rows, 0, 0, 1)], Expected(7, BATCH, ROWS)).epoch_faults != []
    longer = Expected(8, BATCH, ROWS)
    assert cover([segment(rows, 0, 0, 1)], longer).epoch_faults == []
    lost = replace(longer, absent=((7, 8),))
    found = cover([segment(rows, 0, 0, 1)], lost)
    assert (found.uncertain, found.epoch_faults) == (1, [])


def test_the_split_of_an_update_is_judged_in_dense_windows_and_in_others() -> None:
    right = inside([0, 1, 2, 3], (0, 0), (1, 0))
    wrong = replace(right, microbatch=np.array([1, 1, 0, 1], np.int32))
    for cursor in (4, 40):
        found = cover([wrong], wanted(cursor))
        assert found.wrong_microbatch.count == 1
        assert found.wrong_microbatch.first == Spot(0, 0, int(plan(np.array([0]))[0]), 0, 0)
    assert cover([wrong], expected(4)).wrong_microbatch.count == 0
