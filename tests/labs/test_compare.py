"""Comparing JSON values: what may deviate, and what never may."""

from __future__ import annotations

import math

import pytest

from chaos.labs.compare import TOLERANCE, compare, compare_fields, first_difference


def test_equal_values_do_not_deviate() -> None:
    value = {"a": [1, 2.5, None, "x"], "b": {"c": True}}
    assert compare(value, value).to_json() == {"deviation": 0.0, "unequal": []}


def test_the_tolerance_is_absolute() -> None:
    assert compare([1e-300], [1e-12]).within(TOLERANCE)
    assert not compare([1e6], [1e6 + 1e-6]).within(TOLERANCE)
    assert compare({"a": [0.0, 1.0]}, {"a": [0.5, 0.75]}).deviation == 0.5


@pytest.mark.parametrize(
    ("expected", "found", "place"),
    [
        (1, 2, "value"),
        (1, 1.0, "value"),
        (1, True, "value"),
        (math.nan, math.nan, "value"),
        (math.inf, math.inf, "value"),
        ("a", "b", "value"),
        ({"a": None}, {}, "a"),
        ({}, {"a": None}, "a"),
        ([1.0], [1.0, 2.0], "(length 1 and 2)"),
        ({"a": [{"b": 3}]}, {"a": [{"b": 4}]}, "a[0].b"),
    ],
)
def test_no_tolerance_covers_anything_but_floats(expected: object, found: object, place: str) -> None:
    comparison = compare(expected, found)
    assert comparison.unequal == (place,)
    assert not comparison.within(math.inf)


def test_a_field_that_only_one_has_is_unequal() -> None:
    fields = compare_fields({"a": 1.0}, {"a": 1.0, "b": 2.0})
    assert fields["a"].within(0.0)
    assert not fields["b"].within(math.inf)


def test_the_first_difference_is_the_earliest_step_then_the_first_field() -> None:
    shown = (("sample ids", ("ids",)), ("loss", ("loss",)))
    expected = [{"step": s, "ids": [s], "loss": 1.0} for s in range(1, 5)]
    found = [expected[1], {**expected[2], "loss": 1.25}, {**expected[3], "ids": [0], "loss": 2.0}]
    assert first_difference(expected, found, shown, 0.0) == {"step": 3, "what": "loss", "deviation": 0.25}
    assert first_difference(expected, found[2:], shown, 0.0) == {"step": 4, "what": "sample ids", "deviation": 0.0}
    assert first_difference(expected, expected[1:], shown, 0.0) is None
    assert first_difference(expected, [{**expected[0], "step": 9}], shown, 0.0) == {"step": 9, "what": "step"}
