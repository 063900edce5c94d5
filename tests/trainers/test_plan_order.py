"""The plan: test vectors that must never change, the slow reading of its description, and what it promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_reference import sample_id

from chaos.audit.plan import Plan as AuditorsPlan
from trainers.plan import FORMAT, Plan

FILE = json.loads((Path(__file__).parent / "plan_vectors.json").read_text())
SEEDS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("implementation", [Plan, AuditorsPlan])
@pytest.mark.parametrize("vector", FILE["vectors"], ids=lambda v: f"{v['rows']}-{v['group_rows']}-{v['window_groups']}")
def test_vectors(implementation: Any, vector: dict[str, Any]) -> None:
    assert FILE["format"] == FORMAT
    plan = implementation(vector["rows"], vector["group_rows"], vector["window_groups"], vector["seed"])
    positions = vector["first_position"] + np.arange(len(vector["sample_ids"]))
    assert plan.sample_ids(positions).tolist() == vector["sample_ids"]


@pytest.mark.no_cover
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 80), st.integers(1, 24), st.integers(1, 6), SEEDS, st.integers(0, 2**50))
def test_any_stretch_equals_the_slow_reading(rows: int, group_rows: int, window: int, seed: int, first: int) -> None:
    slow = [sample_id(p, rows, group_rows, window, seed) for p in range(first, first + 20)]
    assert Plan(rows, group_rows, window, seed).sample_ids(np.arange(first, first + 20)).tolist() == slow


@pytest.mark.no_cover
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 16, 17, 63, 64, 65, 255, 1000])
@pytest.mark.parametrize("group_rows", [1, 2, 5, 16, 64, 2000])
@pytest.mark.parametrize("window", [1, 2, 4, 7])
def test_every_epoch_holds_every_sample_once(rows: int, group_rows: int, window: int) -> None:
    plan = Plan(rows, group_rows, window, 11)
    for epoch in (0, 1, 10**9):
        ids = plan.sample_ids(epoch * rows + np.arange(rows))
        assert np.array_equal(np.sort(ids), np.arange(rows)), epoch


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3_000), st.integers(1, 400), st.integers(1, 9), SEEDS, st.integers(0, 2**30))
def test_every_epoch_of_any_size(rows: int, group_rows: int, window: int, seed: int, epoch: int) -> None:
    ids = Plan(rows, group_rows, window, seed).sample_ids(epoch * rows + np.arange(rows))
    assert np.array_equal(np.bincount(ids, minlength=rows), np.ones(rows))


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 500), st.integers(1, 40), st.integers(1, 5), SEEDS)
def test_how_positions_are_asked_for_does_not_matter(
    data: st.DataObject, rows: int, group_rows: int, window: int, seed: int
) -> None:
    plan = Plan(rows, group_rows, window, seed)
    positions = np.array(data.draw(st.lists(st.integers(0, 3 * rows), max_size=60)), dtype=np.int64)
    together = plan.sample_ids(positions)
    one_by_one = [plan.sample_ids([p])[0] for p in positions]
    assert together.tolist() == one_by_one
    cut = data.draw(st.integers(0, len(positions)))
    pieces = [plan.sample_ids(positions[:cut]), plan.sample_ids(positions[cut:])]
    assert np.concatenate(pieces).tolist() == together.tolist()


def test_epochs_and_seeds_differ() -> None:
    plan, other = Plan(500, 20, 4, 1), Plan(500, 20, 4, 2)
    first = plan.sample_ids(np.arange(500))
    assert not np.array_equal(first, plan.sample_ids(500 + np.arange(500)))
    assert not np.array_equal(first, other.sample_ids(np.arange(500)))
    assert not np.array_equal(first, np.arange(500))


def test_one_step_reads_few_row_groups() -> None:
    plan = Plan(1_000_000, 256, 4, 3)
    for start in range(0, 1_000_000, 250_000):
        touched = np.unique(plan.sample_ids(start + np.arange(64)) // 256)
        assert len(touched) <= 8  # of two windows at most


def test_a_dataset_of_a_trillion_rows_needs_no_memory() -> None:
    plan = Plan(10**12, 10**6, 4, 5)
    ids = plan.sample_ids([0, 10**12 - 1, 10**12, 5 * 10**17])
    assert ids.shape == (4,)
    assert ((ids >= 0) & (ids < 10**12)).all()


def test_no_positions_no_samples() -> None:
    assert Plan(5, 2, 2, 0).sample_ids(np.empty(0, dtype=np.int64)).shape == (0,)


def test_a_negative_position_is_refused() -> None:
    with pytest.raises(ValueError, match="never negative"):
        Plan(5, 2, 2, 0).sample_ids([3, -1])


@pytest.mark.parametrize("parameters", [(0, 1, 1, 0), (1, 0, 1, 0), (1, 1, 0, 0)])
def test_a_plan_of_nothing_is_refused(parameters: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        Plan(*parameters)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="unsigned 64-bit"):
        Plan(1, 1, 1, seed)


def test_the_fingerprint_covers_every_parameter() -> None:
    plans = [Plan(9, 3, 2, 1), Plan(8, 3, 2, 1), Plan(9, 4, 2, 1), Plan(9, 3, 1, 1), Plan(9, 3, 2, 0)]
    prints = {plan.fingerprint for plan in plans}
    assert len(prints) == len(plans)
    assert Plan(9, 3, 2, 1).fingerprint == plans[0].fingerprint
    assert all(each.startswith("sha256:") and len(each) == 71 for each in prints)
