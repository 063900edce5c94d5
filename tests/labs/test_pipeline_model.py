"""Reference D to the digit, and what holds for every producer, queue and consumer."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.labs.pipeline_answer import Settings, answer
from chaos.labs.pipeline_model import preparation_times_us, schedule, slower_stage_us

TIMES = st.integers(0, 50)
RUNS = st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=24).map(lambda pairs: tuple(zip(*pairs, strict=True)))


def published(prepare_ms: int, depth: int) -> dict[str, object]:
    return answer(Settings(prepare_ms * 1000, 10_000, 4, depth, 0, 7)).to_json()


@pytest.mark.parametrize(("prepare_ms", "serial_ms", "pipelined_ms", "steady_ms"), [(6, 64, 46, 10), (14, 96, 66, 14)])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_reference_d(prepare_ms: int, serial_ms: int, pipelined_ms: int, steady_ms: int, depth: int) -> None:
    told = published(prepare_ms, depth)
    assert (told["serial_ms"], told["total_ms"], told["steady_state_ms"]) == (serial_ms, pipelined_ms, steady_ms)
    assert published(prepare_ms, 0)["total_ms"] == serial_ms


def test_reference_d_batch_by_batch() -> None:
    records = published(14, 2)["records"]
    assert isinstance(records, list)
    assert [(r["train_start_ms"], r["train_end_ms"]) for r in records] == [(14, 24), (28, 38), (42, 52), (56, 66)]
    assert [r["wait_ms"] for r in records] == [14, 4, 4, 4]


def test_what_lies_ahead_of_training_by_hand() -> None:
    """Preparation 5, training 10, depth 2: batch 2 is prepared at 15, the moment at which batch 1 is taken."""
    passages = schedule([5] * 4, [10] * 4, 2).passages
    assert [(p.prepare_start_us, p.train_start_us) for p in passages] == [(0, 5), (5, 15), (10, 25), (15, 35)]
    assert [p.ready for p in passages] == [0, 1, 1, 0]
    assert [p.in_flight for p in passages] == [1, 2, 2, 1]


def test_two_data_workers_by_hand() -> None:
    """Preparation 14, training 10: with two workers and room for both, training is the slower stage again."""
    assert schedule([14] * 4, [10] * 4, 4, workers=2).total_us == 14 + 4 * 10
    assert schedule([14] * 4, [10] * 4, 1, workers=2).total_us == 66  # one place: one works at a time


def test_no_depth_changes_anything_without_jitter() -> None:
    by_depth = published(6, 2)["by_depth"]
    assert isinstance(by_depth, list)
    assert {each["total_ms"] for each in by_depth if each["depth"] > 0} == {46}


def test_a_deeper_queue_absorbs_jitter_down_to_what_the_slower_stage_needs() -> None:
    prepare_us = preparation_times_us(9_000, 9_000, 100, 7)
    train_us = [10_000] * 100
    totals = [schedule(prepare_us, train_us, depth).total_us for depth in (1, 2, 4, 8, 100)]
    assert totals[0] > totals[1] > totals[2] >= totals[3] >= totals[4] >= slower_stage_us(prepare_us, train_us)


@given(RUNS, st.integers(1, 30))
def test_no_depth_beats_the_slower_stage_and_deeper_is_never_slower(run, depth: int) -> None:  # type: ignore[no-untyped-def]
    prepare_us, train_us = run
    here, deeper = schedule(prepare_us, train_us, depth), schedule(prepare_us, train_us, depth + 1)
    serial = schedule(prepare_us, train_us, 0)
    assert slower_stage_us(prepare_us, train_us) <= deeper.total_us <= here.total_us <= serial.total_us
    assert serial.total_us == sum(prepare_us) + sum(train_us)


@given(RUNS, st.integers(1, 6), st.integers(1, 8))
def test_the_depth_bounds_what_is_in_flight(run, depth: int, workers: int) -> None:  # type: ignore[no-untyped-def]
    assert schedule(*run, depth, workers).most_in_flight <= depth


@given(RUNS)
def test_an_unbounded_queue_is_the_longest_path(run) -> None:  # type: ignore[no-untyped-def]
    """All preparation up to some batch, then all training from that batch on: the longest such path is the total."""
    prepare_us, train_us = run
    paths = [sum(prepare_us[: at + 1]) + sum(train_us[at:]) for at in range(len(prepare_us))]
    assert schedule(prepare_us, train_us, len(prepare_us)).total_us == max(paths)


@given(RUNS, st.integers(0, 6), st.integers(1, 4))
def test_every_batch_takes_its_time_in_order(run, depth: int, workers: int) -> None:  # type: ignore[no-untyped-def]
    prepare_us, train_us = run
    passages = schedule(prepare_us, train_us, depth, workers).passages
    assert [p.prepare_end_us - p.prepare_start_us for p in passages] == list(prepare_us)
    assert [p.train_end_us - p.train_start_us for p in passages] == list(train_us)
    assert all(p.train_start_us >= p.prepare_end_us for p in passages)
    assert all(after.train_start_us - before.train_end_us == after.wait_us >= 0
               for before, after in itertools.pairwise(passages))
    for moment in {p.prepare_start_us for p in passages}:
        assert sum(p.prepare_start_us <= moment < p.prepare_end_us for p in passages) <= workers


@given(RUNS, st.integers(1, 4))
def test_more_data_workers_never_beat_training(run, workers: int) -> None:  # type: ignore[no-untyped-def]
    prepare_us, train_us = run
    one, many = (schedule(prepare_us, train_us, 8, count).total_us for count in (1, workers))
    assert prepare_us[0] + sum(train_us) <= many <= one


@given(RUNS, st.integers(1, 4))
def test_a_window_is_full_before_a_batch_is_taken(run, behind: int) -> None:  # type: ignore[no-untyped-def]
    prepare_us, train_us = run
    passages = schedule(prepare_us, train_us, len(prepare_us) + behind, behind=behind).passages
    for passage, last in zip(passages, passages[behind:], strict=False):
        assert passage.train_start_us >= last.prepare_end_us


def test_jitter_is_of_the_seed_and_within_its_bounds() -> None:
    drawn = preparation_times_us(6_000, 2_000, 200, 1)
    assert drawn == preparation_times_us(6_000, 2_000, 200, 1) != preparation_times_us(6_000, 2_000, 200, 2)
    assert 4_000 <= min(drawn) < 4_200
    assert 7_800 < max(drawn) <= 8_000
    assert preparation_times_us(6_000, 0, 3, 1) == [6_000] * 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: schedule([], [], 1),
        lambda: schedule([1], [1, 2], 1),
        lambda: schedule([-1], [1], 1),
        lambda: schedule([1], [1], -1),
        lambda: schedule([1], [1], 1, workers=0),
        lambda: schedule([1, 1, 1], [1, 1, 1], 2, behind=2),
        lambda: preparation_times_us(5, 6, 1, 0),
    ],
)
def test_what_cannot_be_is_refused(wrong) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=r"."):
        wrong()
