"""What each position ought to hold, beside a count of an update's samples one by one; and when it is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit.ideal import Expected, Ideal, Ideals
from chaos.audit.plan import Plan
from chaos.audit.plan_ahead import DEPTH, PlanAhead


def placed(expected: Expected, positions: npt.NDArray[np.int64]) -> tuple[Any, Any]:
    """Steps and microbatches there."""
    ideal = Ideal.of(positions, expected)
    return ideal.step, ideal.microbatch


def microbatches(ranks: int, microbatches: int, each: int) -> list[int]:
    """The microbatch of each sample of an update, in order: rank by rank, each of them one microbatch by another."""
    return [m for _ in range(ranks) for m in range(microbatches) for _ in range(each)]


@st.composite
def splits(draw: st.DrawFn) -> tuple[Expected, list[int]]:
    """An update's split, a cursor between updates or inside one, and the microbatch of each of an update's samples."""
    ranks, number, each = (draw(st.integers(1, 3)) for _ in range(3))
    batch = ranks * number * each
    cursor, partial = draw(st.integers(0, 3)) * batch, draw(st.integers(0, number))
    split = microbatches(ranks, number, each)
    return Expected(cursor, batch, ranks=ranks, microbatches=number, partial=partial), split


@settings(max_examples=50, deadline=None)
@given(splits())
def test_each_position_has_the_microbatch_of_its_place_in_the_update(drawn: tuple[Expected, list[int]]) -> None:
    expected, split = drawn
    batch = expected.global_batch
    positions = np.arange(-2 * batch, 5 * batch)
    want = [split[p % batch] for p in positions.tolist()]
    assert expected.microbatch(positions).tolist() == want
    step, microbatch = placed(expected, positions)
    assert step.tolist() == [p // batch for p in positions.tolist()]
    assert microbatch is not None
    assert microbatch.tolist() == want
    assert microbatch.dtype == np.int32


@settings(max_examples=50, deadline=None)
@given(splits())
def test_what_is_consumed_and_what_is_to_come(drawn: tuple[Expected, list[int]]) -> None:
    expected, split = drawn
    batch, cursor = expected.global_batch, expected.cursor
    positions = range(-batch, cursor + 3 * batch)
    under_way = range(cursor, cursor + batch)
    want = {p for p in positions if 0 <= p < cursor}
    want |= {p for p in under_way if split[p - cursor] < expected.partial}
    assert {p for p in positions if expected.consumed(np.array([p]))[0]} == want
    assert expected.consumed(np.arange(-batch, cursor + 3 * batch)).tolist() == [p in want for p in positions]
    to_come = [p for first, end in expected.to_come() for p in range(first, end)]
    assert to_come == ([p for p in under_way if p not in want] if expected.partial else [])
    assert expected.end == (cursor + batch if expected.partial else cursor)


@pytest.mark.parametrize("far", [1 << 40, 1 << 57, 1 << 62])
def test_positions_far_off_have_the_microbatch_of_their_place_too(far: int) -> None:
    expected = Expected(12, 12, ranks=2, microbatches=3)
    far = far // 12 * 12 + 12
    assert expected.microbatch(np.arange(far, far + 12)).tolist() == microbatches(2, 3, 2)
    assert placed(expected, np.arange(far, far + 12))[0].tolist() == [far // 12] * 12


def test_an_update_of_one_sample_has_no_split_among_several_ranks() -> None:
    expected = Expected(8, 1)
    assert (expected.end, list(expected.to_come())) == (8, [])


def test_without_a_split_nothing_is_known_of_microbatches() -> None:
    expected = Expected(8, 4)
    step, microbatch = placed(expected, np.array([3, 4, -1]))
    assert (step.tolist(), microbatch) == ([0, 1, -1], None)
    assert list(expected.to_come()) == []
    assert expected.end == 8
    assert expected.consumed(np.array([-1, 0, 7, 8])).tolist() == [False, True, True, False]


def test_what_nobody_named_is_not_known() -> None:
    expected = Expected(8, 4)
    assert (expected.rows, expected.ranks, expected.microbatches, expected.partial) == (0, 0, 0, 0)
    assert (len(expected.content), len(expected.known)) == (0, 0)


# -- step, microbatch and sample of positions

PLAN = Plan(30, 5, 2, 3)


class Counted:
    """A plan that notes how many positions it was asked for at once."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, positions: Any) -> Any:
        assert positions.min(initial=0) >= 0
        self.calls.append(len(positions))
        return PLAN.sample_ids(positions)


def test_ideals_of_some_positions() -> None:
    positions = np.array([9, 0, 4])
    ideal = Ideal.of(positions, Expected(12, 4, plan=PLAN.sample_ids, ranks=2, microbatches=2))
    assert ideal.microbatch is not None
    assert ideal.sample_id is not None
    assert (ideal.step.tolist(), ideal.microbatch.tolist()) == ([2, 0, 1], [1, 0, 0])
    assert ideal.sample_id.tolist() == PLAN.sample_ids(positions).tolist()
    unknown = Ideal.of(positions, Expected(12, 4))
    assert (unknown.step.tolist(), unknown.microbatch, unknown.sample_id) == ([2, 0, 1], None, None)


def test_a_negative_position_has_no_sample_and_the_others_have_theirs() -> None:
    plan = Counted()
    ideal = Ideal.of(np.array([-1, 7, -5, 0]), Expected(12, 4, plan=plan))
    assert ideal.sample_id is not None
    assert ideal.sample_id.tolist() == [-1, int(PLAN.sample_ids([7])[0]), -1, int(PLAN.sample_ids([0])[0])]
    assert plan.calls == [2]
    alone = Ideal.of(np.array([-1]), Expected(12, 4, plan=plan)).sample_id
    assert alone is not None
    assert alone.tolist() == [-1]


@pytest.mark.parametrize("positions", [[0, 4], [1], []])
def test_where_no_position_is_negative_what_the_plan_says_is_taken_as_it_is(positions: list[int]) -> None:
    known = np.arange(len(positions))
    assert Ideal.of(np.array(positions, np.int64), Expected(12, 4, plan=lambda _: known)).sample_id is known


def test_samples_that_are_known_already_are_not_computed_again() -> None:
    plan, known = Counted(), np.array([5, 6])
    assert Ideal.of(np.array([0, 1]), Expected(12, 4, plan=plan), known).sample_id is known
    assert plan.calls == []


def test_ideals_are_taken_out_by_index() -> None:
    ideal = Ideal.of(np.arange(8), Expected(12, 4, plan=PLAN.sample_ids, ranks=2, microbatches=2))
    taken = ideal.take(np.array([6, 1]))
    assert taken.microbatch is not None
    assert taken.sample_id is not None
    assert (taken.step.tolist(), taken.microbatch.tolist()) == ([1, 0], [0, 1])
    assert taken.sample_id.tolist() == PLAN.sample_ids([6, 1]).tolist()
    unknown = Ideal.of(np.arange(8), Expected(12, 4)).take(np.array([6, 1]))
    assert (unknown.step.tolist(), unknown.microbatch, unknown.sample_id) == ([1, 0], None, None)


# -- one window after the other


class Noting(PlanAhead):
    """Has no process, and notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__(PLAN)
        self.asked: list[tuple[int, int]] = []
        self.used: list[tuple[int, int]] = []

    def ask(self, start: int, limit: int) -> None:
        self.asked.append((start, limit))

    def ids(self, start: int, limit: int) -> Any:
        self.used.append((start, limit))
        return super().ids(start, limit)


@pytest.mark.parametrize(("rows", "limit", "dense"), [(2, 8, True), (2, 9, False), (1, 5, False), (0, 8, False)])
def test_a_window_with_a_row_for_every_fourth_position_is_computed_once(rows: int, limit: int, dense: bool) -> None:
    plan = Counted()
    ideals = Ideals(Expected(40, 4, plan=plan), 8, None)
    ideals.turn(0, limit, rows)
    assert plan.calls == ([limit] if dense else [])
    for positions in (np.array([0, 1]), np.array([limit - 1])):
        found = ideals.at(positions)
        assert found.sample_id is not None
        assert found.sample_id.tolist() == PLAN.sample_ids(positions).tolist()
        assert found.step.tolist() == (positions // 4).tolist()
    assert plan.calls == ([limit] if dense else [2, 1])


@pytest.mark.parametrize(
    ("start", "dense"), [(-4, False), (-1, False), (0, True), (36, True), (40, False), (44, False)]
)
def test_outside_of_what_is_consumed_each_row_is_computed(start: int, dense: bool) -> None:
    plan = Counted()
    ideals = Ideals(Expected(40, 4, plan=plan), 4, None)
    ideals.turn(start, start + 4, 4)
    assert plan.calls == ([4] if dense else [])
    found = ideals.at(np.array([start + 1, start + 3]))
    assert found.step.tolist() == [(start + 1) // 4, (start + 3) // 4]


def test_a_window_forgets_the_one_before() -> None:
    plan = Counted()
    ideals = Ideals(Expected(40, 4, plan=plan), 8, None)
    ideals.turn(0, 8, 8)
    ideals.turn(16, 24, 8)
    assert ideals.at(np.array([17])).step.tolist() == [4]
    ideals.turn(33, 40, 1)
    assert ideals.at(np.array([39])).step.tolist() == [9]
    assert plan.calls == [8, 8, 1]


def test_the_part_of_an_update_that_is_under_way_has_a_window_too() -> None:
    plan = Counted()
    ideals = Ideals(Expected(8, 4, plan=plan, ranks=1, microbatches=2, partial=1), 4, None)
    ideals.turn(8, 12, 2)
    assert plan.calls == [4]
    microbatch = ideals.at(np.array([9, 11])).microbatch
    assert microbatch is not None
    assert microbatch.tolist() == [0, 1]


def test_the_windows_that_follow_are_asked_for_beforehand() -> None:
    ahead = Noting()
    ideals = Ideals(Expected(40, 4, plan=PLAN.sample_ids), 8, ahead)
    ideals.turn(0, 8, 8)
    assert ahead.used == [(0, 8)]
    assert ahead.asked == [(8, 16), (16, 24), (24, 32)]
    assert len(ahead.asked) == DEPTH
    found = ideals.at(np.array([3])).sample_id
    assert found is not None
    assert found.tolist() == PLAN.sample_ids([3]).tolist()
    ahead.asked.clear()
    ideals.turn(24, 30, 6)
    assert ahead.asked == [(30, 38), (38, 40)]
    ahead.asked.clear()
    ideals.turn(32, 40, 8)
    assert ahead.asked == []


def test_a_window_ends_at_the_cursor_and_the_next_begins_there() -> None:
    ahead = Noting()
    expected = Expected(20, 10, plan=PLAN.sample_ids, ranks=1, microbatches=2, partial=1)
    ideals = Ideals(expected, 16, ahead)
    ideals.turn(0, 16, 16)
    assert ahead.asked == [(16, 20), (20, 30)]
    ahead.asked.clear()
    ideals.turn(16, 20, 4)
    assert ahead.asked == [(20, 30)]
    ahead.asked.clear()
    ideals.turn(20, 25, 5)
    assert ahead.asked == [(25, 30)]


def test_nothing_is_asked_for_where_the_rows_are_few() -> None:
    ahead = Noting()
    Ideals(Expected(40, 4, plan=PLAN.sample_ids), 8, ahead).turn(0, 8, 1)
    assert (ahead.used, ahead.asked) == ([], [])


@pytest.mark.parametrize(("known", "all_known"), [([True, True], True), ([True, False], False), ([False], False)])
def test_whether_the_content_of_every_row_is_known(known: list[bool], all_known: bool) -> None:
    assert Ideals(Expected(8, 4, known=np.array(known)), 8, None).all_known is all_known
