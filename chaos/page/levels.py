"""Levels of detail: the same stretches in fewer pieces. Every update is in one piece of each level.

A piece takes the stretches whose middle lies in one bin of time, so its extent is at most a bin and one stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chaos.page.values import I64, RankLane, Stretches, Timeline

_PIECES = 2400  # of the coarsest level, over all ranks
_FINER = 4
_WORTH = 0.75  # a level that has more of the pieces of the next finer one is left out


@dataclass(frozen=True, eq=False)
class Level:
    """bin_us: 0 of the level that has every update by itself. lanes: by place in the timeline."""

    bin_us: int
    lanes: tuple[Stretches, ...]

    @property
    def pieces(self) -> int:
        """Over all lanes."""
        return sum(map(len, self.lanes))


def levels(timeline: Timeline) -> tuple[Level, ...]:
    """Finest first."""
    found = [Level(0, tuple(lane.steps for lane in timeline.lanes))]
    each = max(64, _PIECES // max(1, len(timeline.lanes)))
    coarsest = max(1, timeline.end_us // each)
    for width in (coarsest // _FINER**2, coarsest // _FINER, coarsest):
        level = Level(width, tuple(grouped(lane.steps, width) for lane in timeline.lanes))
        if width and level.pieces < _WORTH * found[-1].pieces:
            found.append(level)
    return tuple(found)


def grouped(steps: Stretches, bin_us: int) -> Stretches:
    """The stretches of each bin as one. Counts add up; wait_us of unknown is none."""
    if not len(steps) or bin_us < 1:
        return steps
    bins = (steps.start_us + steps.end_us) // (2 * bin_us)
    heads = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
    known = np.where(steps.wait_us < 0, 0, steps.wait_us)

    def total(values: I64) -> I64:
        return np.add.reduceat(values, heads)

    return Stretches(
        np.minimum.reduceat(steps.start_us, heads), np.maximum.reduceat(steps.end_us, heads),
        np.minimum.reduceat(steps.first, heads), np.maximum.reduceat(steps.last, heads), steps.attempt[heads],
        total(steps.updates), total(steps.redone), total(steps.lost), total(known),
    )  # fmt: skip


def coarsest(found: Sequence[Level], pieces: int) -> Level:
    """The finest level with at most so many pieces; else the coarsest."""
    return next((level for level in found if level.pieces <= pieces), found[-1])


def lane_names(lanes: Sequence[RankLane]) -> list[str]:
    """`rank 0`, …"""
    return [f"rank {lane.rank}" for lane in lanes]
