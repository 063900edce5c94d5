"""Stretches of time that overlap, each instant given to one of them. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Stretch = tuple[float, float]  # start, end


def shared_out(stretches: Sequence[tuple[int, float, float]], whole: Stretch) -> dict[int, float]:
    """How long each kind has `whole`: kind → duration. Each stretch is (kind, start, end).

    An instant belongs to the lowest kind that has a stretch there, so that no time is counted twice; what belongs to
    none is in no kind's duration.
    """
    begin, end = whole
    clipped = [(kind, max(begin, start), min(end, stop)) for kind, start, stop in stretches]
    clipped = [each for each in clipped if each[1] < each[2]]
    edges = sorted({edge for _kind, start, stop in clipped for edge in (start, stop)})
    found = {kind: 0.0 for kind, _start, _stop in clipped}
    for left, right in itertools.pairwise(edges):
        owners = [kind for kind, start, stop in clipped if start <= left and right <= stop]
        if owners:
            found[min(owners)] += right - left
    return found


def covered(stretches: Sequence[Stretch], whole: Stretch) -> float:
    """How much of `whole` lies in any of the stretches."""
    return shared_out([(0, start, stop) for start, stop in stretches], whole).get(0, 0.0)
