"""Comparing two decoded JSON values: the largest difference of their numbers, and every other inequality. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-12  # absolute; none relative


@dataclass(frozen=True, slots=True)
class Comparison:
    """deviation: largest absolute difference of two floats. unequal: what differs otherwise, by its place."""

    deviation: float
    unequal: tuple[str, ...]

    def within(self, tolerance: float) -> bool:
        return not self.unequal and self.deviation <= tolerance

    def to_json(self) -> dict[str, Any]:
        return {"deviation": self.deviation, "unequal": list(self.unequal)}


def compare(expected: object, found: object) -> Comparison:
    """Only floats may deviate. Integers, texts, types, lengths, missing and extra keys, NaN and infinities may not."""
    deviation, unequal = 0.0, []
    for place, difference in _differences(expected, found, ""):
        if difference is None:
            unequal.append(place)
        else:
            deviation = max(deviation, difference)
    return Comparison(deviation, tuple(unequal))


def compare_fields(expected: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Comparison]:
    """One comparison a field; a field that only one has is unequal."""
    names = [*expected, *(name for name in found if name not in expected)]
    return {
        name: compare(expected[name], found[name]) if name in expected and name in found
        else Comparison(0.0, ("is not in both",))
        for name in names
    }


def first_difference(
    expected: Sequence[Mapping[str, Any]],
    found: Sequence[Mapping[str, Any]],
    shown: Sequence[tuple[str, tuple[str, ...]]],
    tolerance: float,
) -> dict[str, Any] | None:
    """The earliest step of `found` that is not as expected, and in what.

    shown: (what, names of fields), in the order in which one follows from the other within a step. None: no step is.
    """
    rows = {row["step"]: row for row in expected}
    for row in found:
        other = rows.get(row["step"])
        if other is None:
            return {"step": row["step"], "what": "step"}
        for what, names in shown:
            comparisons = [compare(other[name], row[name]) for name in names]
            if not all(comparison.within(tolerance) for comparison in comparisons):
                return {"step": row["step"], "what": what,
                        "deviation": max(comparison.deviation for comparison in comparisons)}
    return None


def _differences(expected: object, found: object, place: str) -> Iterator[tuple[str, float | None]]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys()):
            where = f"{place}.{key}" if place else str(key)
            if key in expected and key in found:
                yield from _differences(expected[key], found[key], where)
            else:
                yield where, None
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            yield f"{place} (length {len(expected)} and {len(found)})".strip(), None
        for index, (one, other) in enumerate(zip(expected, found, strict=False)):
            yield from _differences(one, other, f"{place}[{index}]")
    elif type(expected) is float and type(found) is float:
        finite = math.isfinite(expected) and math.isfinite(found)
        yield place or "value", abs(expected - found) if finite else None
    elif type(expected) is not type(found) or expected != found:
        yield place or "value", None
