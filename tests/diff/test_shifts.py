"""Shifts of samples and rates against a brute-force search."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chaos.diff.shifts import rate_shifts, sample_shifts


def ids(*numbers: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(numbers, dtype=np.int64)


@given(seed=st.integers(0, 999), expected=st.integers(0, 40), shift=st.integers(-30, 30), length=st.integers(8, 20))
def test_a_planted_shift_is_found(seed: int, expected: int, shift: int, length: int) -> None:
    a = np.random.Generator(np.random.PCG64(seed)).permutation(80).astype(np.int64)
    at = expected + shift
    b = a[max(at, 0) : max(at, 0) + length]
    (found,) = sample_shifts(a, b, expected)
    assert (found.samples, found.matched, found.whole) == (max(at, 0) - expected, len(b), True)


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.integers(0, 3), max_size=12), st.integers(0, 20))
def test_all_whole_matches_are_those_of_a_plain_search(a: list[int], b: list[int], expected: int) -> None:
    least = min(len(b), 8)
    whole = [at - expected for at in range(len(a)) if b and min(len(a) - at, len(b)) >= least
             and a[at : at + len(b)] == b[: len(a) - at]]  # fmt: skip
    found = [shift.samples for shift in sample_shifts(ids(*a), ids(*b), expected) if shift.whole]
    assert sorted(found) == sorted(whole)
    assert found == sorted(found, key=lambda n: (abs(n), n))


def test_a_shift_that_holds_for_a_while_only() -> None:
    a = ids(*range(30))
    (found,) = sample_shifts(a, ids(*range(5, 15), 99, 98), 10)
    assert (found.samples, found.matched, found.whole) == (-5, 10, False)


def test_a_few_samples_that_agree_are_no_shift() -> None:
    assert sample_shifts(ids(*range(30)), ids(3, 4, 5, 90, 91, 92, 93, 94, 95), 0) == ()


def test_rates() -> None:
    a = {t: (f"{t}",) for t in range(1, 30)}
    assert rate_shifts(a, {t: (f"{t - 4}",) for t in range(10, 20)}) == (-4,)
    assert rate_shifts(a, {t: (f"{t + 1}",) for t in range(10, 29)}) == (1,)
    assert rate_shifts(a, dict.fromkeys(range(10, 20), ("other",))) == ()
    stepped = {t: (f"{t // 10}",) for t in range(1, 40)}
    assert rate_shifts(stepped, {10: ("0",), 11: ("0",), 12: ("1",), 13: ("1",)}) == (-2,)
    assert rate_shifts(stepped, {10: ("0",), 11: ("0",)})[:3] == (-2, -3, -4)
