"""The auditor's plan against the slow reading of the description, and against vectors that must never change."""

from __future__ import annotations

import numpy as np
import plan_reference
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit import plan as plan_module
from chaos.audit.plan import Plan, splitmix64

# (rows, group_rows, window_groups, seed) → sample ids of the first positions, by plan_reference
VECTORS = {
    (1, 1, 1, 0): [0, 0, 0, 0, 0, 0, 0, 0],
    (2, 1, 1, 3): [1, 0, 0, 1, 0, 1, 1, 0],
    (10, 3, 2, 42): [1, 3, 4, 0, 2, 5, 7, 9, 6, 8, 9, 4, 3, 5, 7, 1, 0, 2, 8, 6],
    (100, 8, 4, (1 << 64) - 1): [11, 14, 24, 31, 7, 44, 12, 40, 5, 9, 2, 4, 10, 0, 30, 25],
}


@pytest.mark.parametrize("parameters", VECTORS)
def test_vectors(parameters: tuple[int, int, int, int]) -> None:
    expected = VECTORS[parameters]
    assert Plan(*parameters).sample_ids(np.arange(len(expected))).tolist() == expected


def test_splitmix64_is_the_published_generator() -> None:
    # Steele, Lea and Flood's generator seeded with 1234567: its outputs are splitmix64 of the successive states.
    states = [(1234567 + i * 0x9E3779B97F4A7C15) & ((1 << 64) - 1) for i in range(3)]
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert splitmix64(np.array(states, np.uint64)).tolist() == expected
    assert [plan_reference.splitmix64(state) for state in states] == expected


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 90),
    group_rows=st.integers(1, 20),
    window_groups=st.integers(1, 6),
    seed=st.integers(0, (1 << 64) - 1),
    first=st.integers(0, 10**12),
)
def test_any_stretch_equals_the_slow_reading(
    rows: int, group_rows: int, window_groups: int, seed: int, first: int
) -> None:
    positions = range(first, first + 25)
    slow = [plan_reference.sample_id(p, rows, group_rows, window_groups, seed) for p in positions]
    assert Plan(rows, group_rows, window_groups, seed).sample_ids(list(positions)).tolist() == slow


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 70), st.integers(1, 9), st.integers(0, 99), st.integers(0, 5))
def test_every_epoch_holds_every_sample_once(
    rows: int, group_rows: int, window_groups: int, seed: int, epoch: int
) -> None:
    ids = Plan(rows, group_rows, window_groups, seed).sample_ids(np.arange(rows) + epoch * rows)
    assert sorted(ids.tolist()) == list(range(rows))


def test_pieces_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = np.arange(5000)[::-1]
    whole = Plan(700, 16, 3, 5).sample_ids(positions)
    monkeypatch.setattr(plan_module, "_PIECE", 7)
    assert np.array_equal(whole, Plan(700, 16, 3, 5).sample_ids(positions))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 500), st.integers(0, (1 << 64) - 1), st.data())
def test_a_permutation_can_be_undone(size: int, key: int, data: st.DataObject) -> None:
    x = data.draw(st.integers(0, size - 1))
    assert plan_module.unpermute(size, key, plan_reference.feistel(size, key, x)) == x


def test_a_plan_of_any_size_costs_the_same() -> None:
    plan = Plan(3 * 10**15, 1, 4, 3)
    assert len(set(plan.sample_ids(np.arange(1000)).tolist())) == 1000


def test_no_positions_no_samples() -> None:
    assert Plan(3, 1, 1, 0).sample_ids([]).tolist() == []


@pytest.mark.parametrize(
    "parameters", [(0, 1, 1, 0), (1, 0, 1, 0), (1, 1, 0, 0), (1, 1, 1, -1), (1, 1, 1, 1 << 64)]
)
def test_impossible_parameters(parameters: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="no plan has these parameters"):
        Plan(*parameters)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=3), st.integers(0, 99))
def test_tabled_rounds_permute_alike(size: int, keys: list[int], start: int) -> None:
    x = np.tile(np.arange(start, start + size) % size, 8)  # long enough for tables to pay
    which = np.arange(len(x)) % len(keys)
    tabled = plan_module.permute_tabled(size, np.array(keys, np.uint64), which, x)
    slow = {(k, v): plan_reference.feistel(size, k, v) for k in set(keys) for v in range(size)}
    assert tabled.tolist() == [slow[keys[w], v] for w, v in zip(which.tolist(), x.tolist(), strict=True)]


@pytest.mark.parametrize("parameters", [(700, 16, 3, 5), (1000, 100, 4, 9), (999, 7, 11, 1)])
def test_long_stretches_equal_the_slow_reading(parameters: tuple[int, int, int, int]) -> None:
    first = parameters[0] - 40  # over an epoch's border
    slow = [plan_reference.sample_id(p, *parameters) for p in range(first, first + 90)]
    ids = Plan(*parameters).sample_ids(np.arange(first, first + 4000))
    assert ids[:90].tolist() == slow
