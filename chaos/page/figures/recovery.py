"""Seconds of recovery by part, and how the input kept up."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.page.figures.theme import Spec, c, hatch, lite, part_fills
from chaos.page.values import Cost, Waiting

_BARS = 24  # with more recoveries the bars stand upright
_RANKS = 6


def recovery(costs: Sequence[Cost]) -> Spec:
    """One stacked bar a recovery."""
    parts = list(dict.fromkeys(part for cost in costs for part, _ in cost.parts))
    rows = [
        {"attempt": cost.attempt, "part": part, "seconds": seconds, "order": parts.index(part),
         "tip": {"title": f"attempt {cost.attempt}: {part}", "seconds": f"{seconds:.3f} s"}}
        for cost in costs for part, seconds in cost.parts
    ]  # fmt: skip
    recoveries: Spec = {"field": "attempt", "type": "ordinal", "title": "attempt"}
    seconds = {"field": "seconds", "type": "quantitative", "title": "seconds since the strike", "stack": True}
    upright = len(costs) > _BARS
    if upright:
        recoveries |= {"axis": {"labelOverlap": True, "labelAngle": 0, "ticks": False}}
    else:
        recoveries |= {
            "axis": {"labelExpr": "'attempt ' + datum.label", "ticks": False, "domain": False},
            "title": None,
        }
    encoding = {
        "y" if not upright else "x": recoveries, "x" if not upright else "y": seconds,
        "order": {"field": "order"}, "tooltip": {"field": "tip"},
        "fill": {"field": "part", "type": "nominal", "sort": parts, "title": None,
                 "scale": {"domain": parts, "range": _fills(parts)}, "legend": {"columns": 4}},
    }  # fmt: skip
    mark = {"type": "bar", "stroke": c("card"), "strokeWidth": 0.4 if upright else 1.2}
    return lite("Seconds of each recovery, stacked by part.", 280 if upright else 34 * max(1, len(costs)),
                [{"data": {"values": rows}, "mark": mark, "encoding": encoding}])  # fmt: skip


def _fills(parts: Sequence[str]) -> list[str]:
    fills = part_fills(len(parts))
    return [{"unexplained": hatch("h-lost"), "catch up": hatch("h-redone")}.get(part, fill)
            for part, fill in zip(parts, fills, strict=True)]  # fmt: skip


def waiting(found: Sequence[Waiting]) -> tuple[Spec, Spec]:
    """(input wait, queue depth) over time, a line a rank; the greatest wait and the least depth of a bin as points."""
    ranks = sorted({each.rank for each in found})
    rows = [
        {"t": each.at_us / 1e6, "rank": f"rank {each.rank}", "wait": each.wait_s * 1e3, "most": each.wait_max_s * 1e3,
         "depth": each.depth, "least": each.depth_min,
         "tip": {"title": f"rank {each.rank}, {each.at_us / 1e6:.2f} s",
                 "input wait": f"{each.wait_s * 1e3:.2f} ms a step",
                 "greatest wait": f"{each.wait_max_s * 1e3:.2f} ms", "queue depth": f"{each.depth:.1f} microbatches",
                 "least depth": f"{each.depth_min:.0f} microbatches", "steps in this bin": str(each.updates)}}
        for each in found if len(ranks) <= _RANKS or each.rank in ranks[:_RANKS]
    ]  # fmt: skip
    wait = _lines(rows, "wait", "most", "input wait, ms a step (log)", {"type": "symlog", "constant": 0.1})
    return wait, _lines(rows, "depth", "least", "microbatches ready", {"zero": True})


def _lines(rows: list[Spec], mean: str, extreme: str, title: str, scale: Spec) -> Spec:
    names = list(dict.fromkeys(row["rank"] for row in rows))
    hues = [c(name) for name in ("p5", "p6", "p3", "p4", "p1", "p9")][: len(names)]
    dashes = [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3]][: len(names)]
    time = {
        "field": "t",
        "type": "quantitative",
        "title": "seconds since the run began",
        "scale": {"zero": True, "nice": False},
    }
    shared = {
        "x": time, "tooltip": {"field": "tip"},
        "color": {"field": "rank", "type": "nominal", "scale": {"domain": names, "range": hues}, "title": None},
    }  # fmt: skip

    def over(field: str) -> Spec:
        axis = {"grid": True, "tickCount": 4, **({"values": [0, 1, 10, 100, 1000, 10000]} if mean == "wait" else {})}
        return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}

    line = {
        "mark": {"type": "line", "strokeWidth": 1.6, "interpolate": "linear"},
        "encoding": {**shared, "y": over(mean),
                     "strokeDash": {"field": "rank", "type": "nominal", "scale": {"domain": names, "range": dashes}}},
    }  # fmt: skip
    points = {
        "mark": {"type": "point", "size": 22, "opacity": 0.75, "filled": True},
        "encoding": {**shared, "y": over(extreme), "shape": {"field": "rank", "type": "nominal",
                                                             "scale": {"domain": names}}},
    }  # fmt: skip
    what = "Input wait of each rank over time." if mean == "wait" else "Queue depth of each rank over time."
    return lite(what, 150, [line, points], data={"values": rows})
