"""The model of what an interval costs, and the formulas beside it. Pure; every function takes numbers or arrays.

Training makes a step in s seconds. Every T steps a save costs it C seconds (copy, slower steps beside the write), and
is published b seconds after the copy. A failure comes every M seconds on average and costs D seconds until training is
back, and L seconds of work done again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cost:
    """Numbers, or arrays of one shape: s, C (without waiting for the save before), b, D in seconds."""

    step_s: Any
    save_s: Any
    background_s: Any
    downtime_s: Any


def cycle_s(cost: Cost, every: Any) -> Any:
    """From one save to the next. One that falls due while another is in flight waits: it is never shorter than b."""
    return np.maximum(every * cost.step_s + cost.save_s, cost.background_s)


def lost_s(cost: Cost, every: Any) -> Any:
    """Mean work lost to a failure at any moment alike of the cycle τ: τ/2, and a whole τ more while the last save is
    not published, which is for b of every τ: τ/2 + b.
    """
    return cycle_s(cost, every) / 2 + cost.background_s


def worst_lost_s(cost: Cost, every: Any) -> Any:
    """Just before a save is published everything since the one before it is lost: τ + b."""
    return cycle_s(cost, every) + cost.background_s


def worst_redo_steps(cost: Cost, every: Any) -> Any:
    """T, and what is done while the save is in flight, at most another T."""
    return every + np.minimum(every, np.ceil(cost.background_s / cost.step_s))


def goodput(useful_s: Any, wall_s: Any, lost: Any, downtime: Any, mtbf_s: float) -> Any:
    """Useful step time over wall time: useful_s/wall_s of undisturbed training, times 1 − (D + L)/M; at least 0.

    W seconds of wall time hold W/M failures, each of which takes D + L; what is left is undisturbed training.
    """
    return np.maximum(0.0, 1.0 - (downtime + lost) / mtbf_s) * useful_s / wall_s


def expected_goodput(cost: Cost, every: Any, mtbf_s: float) -> Any:
    """Of the model."""
    useful = every * cost.step_s
    return goodput(useful, cycle_s(cost, every), lost_s(cost, every), cost.downtime_s, mtbf_s)


def grid(longest: float) -> npt.NDArray[np.int64]:
    """int64[n]: intervals to choose from, every one up to 256 steps, then in steps of about one percent."""
    top = max(256, int(longest))
    coarse = np.geomspace(256, top, max(2, int(np.log(top / 256) * 100) + 2)).astype(np.int64)
    return np.unique(np.concatenate([np.arange(1, 257), coarse]))


def best_interval(cost: Cost, intervals: npt.NDArray[np.int64], mtbf_s: float) -> F64:
    """float64[resamples] for costs of shape [resamples, 1]: the interval of the greatest expected goodput.

    Where failures leave nothing whatever the interval, the shortest one.
    """
    found: F64 = intervals[np.argmax(expected_goodput(cost, intervals, mtbf_s), axis=-1)].astype(np.float64)
    return found


def longest_within(
    cost: Cost, intervals: npt.NDArray[np.int64], max_redo_s: float | None, max_redo_steps: int | None
) -> F64:
    """float64[resamples]: the longest interval at which not even the worst moment costs more; 0 if none does."""
    fits = np.ones(np.broadcast_shapes(np.shape(cost.step_s), intervals.shape), dtype=bool)
    if max_redo_s is not None:
        fits &= worst_lost_s(cost, intervals) <= max_redo_s
    if max_redo_steps is not None:
        fits &= worst_redo_steps(cost, intervals) <= max_redo_steps
    found: F64 = np.where(fits, intervals, 0).max(axis=-1).astype(np.float64)
    return found


def young_s(save_s: Any, mtbf_s: float) -> Any:
    """√(2·C·M), seconds of training between saves.

    J. W. Young, "A first order approximation to the optimum checkpoint interval", Comm. ACM 17 (9), 1974.
    """
    return np.sqrt(2.0 * save_s * mtbf_s)


def daly_s(save_s: Any, mtbf_s: float) -> Any:
    """√(2·C·M)·[1 + ⅓·(C/2M)^½ + ⅑·(C/2M)] − C for C < 2M, else M; seconds of training between saves.

    J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
    Computer Systems 22 (3), 2006, equation 37.
    """
    ratio = save_s / (2.0 * mtbf_s)
    higher = np.sqrt(2.0 * save_s * mtbf_s) * (1.0 + np.sqrt(ratio) / 3.0 + ratio / 9.0) - save_s
    return np.where(ratio < 1.0, higher, mtbf_s)
