"""By how much one series runs ahead of another: sample ids by n samples, rates by k updates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
_LEAST_MATCH = 8  # ids that must agree before a shift is believed, where there are that many


@dataclass(frozen=True)
class SampleShift:
    """B reads what A read, n samples further on. whole: as long as both are known, otherwise for `matched` samples."""

    samples: int
    matched: int
    whole: bool


def sample_shifts(a: I64, b: I64, expected: int) -> tuple[SampleShift, ...]:
    """a: ids that A consumed; b: those of B, which should begin at a[expected]. The longest matches, nearest first.

    Empty if B's ids are found nowhere in A. Where several shifts match equally long, all are returned.
    """
    if not len(a) or not len(b):
        return ()
    least = min(len(b), _LEAST_MATCH)
    found: list[SampleShift] = []
    for at in np.flatnonzero(a == b[0]).tolist():
        length = min(len(a) - at, len(b))
        unequal = np.flatnonzero(a[at : at + length] != b[:length])
        matched = int(unequal[0]) if len(unequal) else length
        if matched >= least:
            found.append(SampleShift(at - expected, matched, whole=not len(unequal)))
    if not found:
        return ()
    # A match that lasts as long as A is known counts as whole, however short A's rest is.
    best = max((shift.whole, 0 if shift.whole else shift.matched) for shift in found)
    kept = [shift for shift in found if (shift.whole, 0 if shift.whole else shift.matched) == best]
    return tuple(sorted(kept, key=lambda shift: (abs(shift.samples), shift.samples)))


def rate_shifts(
    a: Mapping[int, Sequence[str]], b: Mapping[int, Sequence[str]], most: int = 10_000
) -> tuple[int, ...]:
    """a, b: update → its rates. Every k ≠ 0 for which B's update t has the rates of A's t + k, nearest first.

    A k counts if at least half of B's updates, and two if B has two, have a partner in A.
    """
    least = max(min(len(b), 2), len(b) // 2)
    furthest = min(most, max(a, default=0) + max(b, default=0))
    found = []
    for distance in range(1, furthest + 1):
        for k in (-distance, distance):
            pairs = [(a[t + k], rates) for t, rates in b.items() if t + k in a]
            if len(pairs) >= least and pairs and all(x == y for x, y in pairs):
                found.append(k)
    return tuple(found)
