"""Which interval to choose: the model and the formulas, evaluated with what was measured. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from chaos.cost import model
from chaos.cost.bootstrap import F64, Bootstrap, estimate, rounded
from chaos.cost.model import Cost
from chaos.cost.samples import Samples, samples
from chaos.cost.table import contention
from chaos.cost.values import Asked, Costs, Estimate, Formula, Kill, Point, Recommendation, Run

_CURVE_POINTS = 60
_BEYOND = 4  # times the longest interval that a formula gives, or that was run: as far as the model looks


def recommend(
    asked: Asked, runs: Sequence[Run], kills: Sequence[Kill], costs: Mapping[str, Costs], boot: Bootstrap
) -> Recommendation | None:
    """None without a step, a published save and a recovery: then nothing follows.

    Costs of all intervals are taken together, each sample resampled apart. Contention that comes out below zero, which
    is noise, counts as none.
    """
    seen = samples(runs, costs, kills)
    baseline = seen.alone_s or seen.touched_s
    if not baseline or not seen.saves or not seen.downtime_s:
        return None
    value, drawn = _costs(seen, baseline, boot)
    counts = {"step_s": len(baseline), "save_s": len(seen.saves), "background_s": len(seen.background_s),
              "downtime_s": len(seen.downtime_s)}  # fmt: skip
    tried = sorted({kill.every for kill in kills})
    intervals = model.grid(_longest(asked, drawn, tried[-1]))

    def estimated(of: Callable[[Cost], Any], observations: int) -> Estimate:
        return estimate(float(np.ravel(of(value))[0]), np.ravel(of(drawn)), observations)

    def chosen(cost: Cost) -> F64:
        best = model.best_interval(cost, intervals, asked.mtbf_s)
        return np.minimum(best, np.maximum(1.0, limit(cost))) if limited else best

    def limit(cost: Cost) -> F64:
        return model.longest_within(cost, intervals, asked.max_redo_s, asked.max_redo_steps)

    limited = asked.max_redo_s is not None or asked.max_redo_steps is not None
    least = min(counts.values())
    unlimited = estimated(lambda cost: model.best_interval(cost, intervals, asked.mtbf_s), least)
    every = estimated(chosen, least)
    at_best = estimated(lambda cost: model.expected_goodput(cost, chosen(cost)[:, None], asked.mtbf_s), least)
    return Recommendation(
        every, "limit" if every.value < unlimited.value else "goodput", unlimited,
        estimated(limit, least) if limited else None, at_best, tuple(_formulas(asked.mtbf_s, estimated, counts)),
        **{name: estimated(attrgetter(name), count) for name, count in counts.items()},
        tried=(tried[0], tried[-1]), curve=_curve(value, intervals, asked.mtbf_s),
    )  # fmt: skip


def _costs(seen: Samples, baseline: Sequence[float], boot: Bootstrap) -> tuple[Cost, Cost]:
    """As measured, of shape [1, 1], and resampled, [resamples, 1]."""
    stalls = [save.stall_s for save in seen.saves]
    extra, extras = contention(seen, baseline, boot) if seen.alone_s else (None, np.zeros(boot.resamples))
    save_s = float(np.mean(stalls)) + max(0.0, extra.value if extra else 0.0)
    means = (np.mean(baseline), save_s, np.mean(seen.background_s), np.mean(seen.downtime_s))
    drawn = (boot.means(baseline), boot.means(stalls) + np.maximum(0.0, extras), boot.means(seen.background_s),
             boot.means(seen.downtime_s))  # fmt: skip
    return Cost(*(np.full((1, 1), mean) for mean in means)), Cost(*(each[:, None] for each in drawn))


def _formulas(
    mtbf_s: float, estimated: Callable[[Callable[[Cost], Any], int], Estimate], counts: Mapping[str, int]
) -> list[Formula]:
    found = []
    formulas: tuple[tuple[str, Callable[[Any, float], Any]], ...] = (("Young", model.young_s), ("Daly", model.daly_s))
    for name, formula in formulas:

        def seconds(cost: Cost, of: Callable[[Any, float], Any] = formula) -> Any:
            return of(cost.save_s, mtbf_s)

        def steps(cost: Cost, of: Callable[[Any, float], Any] = formula) -> Any:
            return np.maximum(1.0, np.rint(of(cost.save_s, mtbf_s) / cost.step_s))

        found.append(Formula(name, estimated(seconds, counts["save_s"]), estimated(steps, counts["save_s"])))
    return found


def _longest(asked: Asked, drawn: Cost, tried: int) -> float:
    """How far to look: well beyond what was run, what the formulas give, and what the limits allow."""
    within = [asked.max_redo_steps or 0, (asked.max_redo_s or 0.0) / float(np.min(drawn.step_s))]
    young = float(np.max(model.young_s(drawn.save_s, asked.mtbf_s) / drawn.step_s))
    return max(_BEYOND * max(tried, young), *within)


def _curve(value: Cost, intervals: Any, mtbf_s: float) -> tuple[Point, ...]:
    """Of so many intervals, evenly over their logarithm."""
    at = np.unique(np.geomspace(1, len(intervals), _CURVE_POINTS).astype(int)) - 1
    points = intervals[at]
    expected = np.ravel(model.expected_goodput(value, points, mtbf_s))
    return tuple(Point(int(each), rounded(float(good))) for each, good in zip(points, expected, strict=True))
