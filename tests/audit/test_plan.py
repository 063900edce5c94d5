"""The auditor's plan against the slow reading of the description, and against vectors that must never change."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import plan_reference
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chaos.audit import plan as plan_module
from chaos.audit.facts import PlanSpec
from chaos.audit.plan import Plan, permute, permute_tabled, plan_fingerprint, splitmix64

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


@pytest.mark.parametrize("parameters", [(0, 1, 1, 0), (1, 0, 1, 0), (1, 1, 0, 0), (1, 1, 1, -1), (1, 1, 1, 1 << 64)])
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


# -- the parts, each beside the slow reading

KEYS = [0, 1, 12345, (1 << 63) + 9, (1 << 64) - 1, (1 << 64) - 5]  # the last two wrap within the rounds


def words(*values: int) -> Any:
    return np.array(values, np.uint64)


def root(size: int) -> int:
    return next(a for a in range(1, size + 2) if a * a >= size)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 90), st.sampled_from(KEYS), st.integers(0, 89)), max_size=8))
def test_numbers_of_different_domains_are_permuted_side_by_side(drawn: list[tuple[int, int, int]]) -> None:
    size, key, x = ([each[i] if i < 2 else each[2] % each[0] for each in drawn] for i in range(3))
    found = permute(words(*size), words(*key), words(*x), words(*map(root, size)))
    assert found.tolist() == [plan_reference.feistel(*each) for each in zip(size, key, x, strict=True)]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.sampled_from(KEYS))
def test_a_whole_domain_is_permuted_and_undone(size: int, key: int) -> None:
    slow = [plan_reference.feistel(size, key, x) for x in range(size)]
    assert sorted(slow) == list(range(size))
    alone = permute(*(words(*values) for values in ([size] * size, [key] * size, range(size), [root(size)] * size)))
    assert alone.tolist() == slow
    few = [permute_tabled(size, words(key), None, np.array([x])).item() for x in range(size)]
    assert few == slow
    many = np.tile(np.arange(size), 60)
    assert permute_tabled(size, words(key), None, many).tolist() == slow * 60
    assert many.tolist() == [*range(size)] * 60
    assert [plan_module.unpermute(size, key, y) for y in slow] == list(range(size))


@pytest.mark.parametrize("size", [3, 12, 17, 90])
@pytest.mark.parametrize("count", [1, 500])
def test_several_keys_over_one_domain(size: int, count: int) -> None:
    x, which = np.arange(len(KEYS) * count) % size, np.arange(len(KEYS) * count) // count
    slow = {(w, v): plan_reference.feistel(size, key, v) for w, key in enumerate(KEYS) for v in range(size)}
    found = permute_tabled(size, words(*KEYS), which, x)
    assert found.tolist() == [slow[w, v] for w, v in zip(which.tolist(), x.tolist(), strict=True)]


def test_tables_are_made_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    walked: list[int] = []
    tables, plain = plan_module._tables, permute

    def tabled(*given: Any) -> Any:
        made.append(1)
        return tables(*given)

    def permuted(*given: Any) -> Any:
        walked.append(len(given[2]))
        return plain(*given)

    monkeypatch.setattr(plan_module, "_tables", tabled)
    monkeypatch.setattr(plan_module, "permute", permuted)
    for keys in (words(3), words(*range(40))):
        short = np.arange(50)
        permute_tabled(2500, keys, None if len(keys) == 1 else np.zeros(50, np.int64), short)
        assert (made, walked) == ([], [50])
        walked.clear()
    long = np.arange(9000) % 90
    permute_tabled(90, words(3), None, long)
    assert made == [1]
    assert sum(walked) < len(long) / 2


def test_the_root_is_the_smallest_whose_square_is_enough() -> None:
    for size in (*range(1, 70), 10**6 - 1, 10**6, 10**6 + 1, (1 << 62) - 1, 1 << 62):
        found = plan_module._ceil_root(size)
        assert (found - 1) ** 2 < size <= found**2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=12))
@example([4, 7, 5])
@example([0, 2])
def test_numbers_are_counted_off_in_order(values: list[int]) -> None:
    distinct, which = plan_module._numbered(np.array(values))
    assert distinct[which].tolist() == values
    assert set(values) <= set(distinct.tolist()) <= set(range(min(values), max(values) + 1))
    assert distinct.tolist() == sorted(set(distinct.tolist()))
    assert len(distinct) <= len(values)


@pytest.mark.parametrize("rows", [27, 28, 29])
@pytest.mark.parametrize(("group_rows", "window_groups"), [(1, 2), (4, 1), (4, 5), (7, 2)])
def test_any_position_alone_and_in_any_order(rows: int, group_rows: int, window_groups: int) -> None:
    """Over three epochs: short groups stand at other places, and windows are short at the end."""
    positions = list(range(3 * rows))
    slow = [plan_reference.sample_id(p, rows, group_rows, window_groups, 11) for p in positions]
    plan = Plan(rows, group_rows, window_groups, 11)
    assert [plan.sample_ids([p]).item() for p in positions] == slow
    assert plan.sample_ids(positions[::-1]).tolist() == slow[::-1]
    for begin in range(0, 3 * rows, 5):
        assert plan.sample_ids(positions[begin : begin + 7]).tolist() == slow[begin : begin + 7]
        assert plan.sample_ids(positions[begin::20]).tolist() == slow[begin::20]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_any_two_positions(rows: int) -> None:
    """Of one epoch, of neighbouring ones, or far from each other."""
    plan, positions = Plan(rows, 2, 1, 11), range(4 * rows)
    slow = [plan_reference.sample_id(p, rows, 2, 1, 11) for p in positions]
    for first in positions:
        for second in positions:
            assert plan.sample_ids([first, second]).tolist() == [slow[first], slow[second]]


def test_positions_are_worked_off_once_and_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, the memory of 2^14 is enough."""
    asked: list[tuple[int, int]] = []

    def zeros(plan: Plan, epoch: int, offsets: Any) -> Any:
        asked.append((epoch, len(offsets)))
        return np.zeros(len(offsets), np.int64)

    monkeypatch.setattr(Plan, "_in_epoch", zeros)
    Plan(90_000, 9, 2, 4).sample_ids(np.arange(100_000))
    for epoch, whole in ((0, 90_000), (1, 10_000)):
        pieces = [length for each, length in asked if each == epoch]
        assert sum(pieces) == whole
        assert max(pieces) <= 1 << 14
    assert len(asked) < 20


@pytest.mark.parametrize("keys", [1, 3])
def test_tables_are_no_longer_than_a_half_can_reach(keys: int) -> None:
    """A half of a number of 90 is below 10, and each of its three rounds adds less than that."""
    evens, odds, firsts, seconds = plan_module._tables(90, words(*KEYS[:keys]).tobytes())
    assert evens.shape == (3, keys * 4 * 9)
    assert odds.shape == (3, keys * 4 * 10)
    assert (firsts.tolist(), seconds.tolist()) == ([9 * i for i in range(10)] * 4 * keys, [*range(9)] * 4 * keys)


def test_one_bijection_is_looked_up_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of windows of one size are neither picked out nor, where there is one key only, counted off."""
    given_: list[tuple[Any, ...]] = []

    def tabled(*arguments: Any) -> Any:
        given_.append(arguments)
        return permute_tabled(*arguments)

    monkeypatch.setattr(plan_module, "permute_tabled", tabled)
    x, which = np.arange(6), np.array([0, 1] * 3)
    slow = [[plan_reference.feistel(6, key, v) for v in range(6)] for key in KEYS]
    one = plan_module._permuted(np.array([6]), words(KEYS[2]), which * 0, x)
    two = plan_module._permuted(np.array([6, 6]), words(*KEYS[2:4]), which, x)
    assert one.tolist() == slow[2]
    assert two.tolist() == [slow[2 + w][v] for w, v in zip(which.tolist(), range(6), strict=True)]
    assert all(arguments[3] is x for arguments in given_)
    assert given_[0][2] is None


def test_windows_of_several_sizes() -> None:
    sizes, keys = [6, 4, 6, 5], KEYS[1:5]
    rows = [(w, v) for w, size in enumerate(sizes) for v in range(size)][::-1]
    which, x = (np.array([row[i] for row in rows]) for i in range(2))
    slow = [plan_reference.feistel(sizes[w], keys[w], v) for w, v in rows]
    assert plan_module._permuted(np.array(sizes), words(*keys), which, x).tolist() == slow


def test_more_groups_than_a_piece_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "_PIECE", 16)
    for rows in (48, 50, 51, 54):
        slow = [plan_reference.sample_id(p, rows, 3, 2, 8) for p in range(2 * rows)]
        assert Plan(rows, 3, 2, 8).sample_ids(np.arange(2 * rows)).tolist() == slow


@pytest.mark.parametrize(
    ("rows", "group_rows", "groups"), [(1, 1, 1), (9, 3, 3), (10, 3, 4), (11, 3, 4), (12, 3, 4), (2, 5, 1)]
)
def test_groups_hold_every_row(rows: int, group_rows: int, groups: int) -> None:
    assert Plan(rows, group_rows, 1, 0).groups == groups


@pytest.mark.parametrize("seed", [0, (1 << 64) - 1])
def test_the_least_parameters_and_the_greatest_seed(seed: int) -> None:
    assert Plan(1, 1, 1, seed).sample_ids([0, 5]).tolist() == [0, 0]


def test_a_fingerprint_is_of_format_and_parameters() -> None:
    text = b'{"format":"killpoint.plan/1","group_rows":3,"rows":10,"seed":42,"window_groups":2}'
    assert plan_fingerprint(PlanSpec(10, 3, 2, 42)) == f"sha256:{hashlib.sha256(text).hexdigest()}"
