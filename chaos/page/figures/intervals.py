"""Intervals as figures: redo against its prediction, what saves cost, recovery by part, goodput and the choice."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.cost.values import Estimate, Intervals, Kill, Recommendation, Row
from chaos.page.figures.theme import Spec, c, hatch, lite, part_fills

_EVERY = {"field": "every", "type": "ordinal", "title": "steps between saves", "axis": {"labelAngle": 0}}


def redo(kills: Sequence[Kill]) -> Spec:
    """Each kill by itself: the range that was predicted as a bar, what was measured as a dot."""
    rows: list[Spec] = []
    places: dict[int, int] = {}
    for kill in sorted(kills, key=lambda each: (each.every, each.phase_steps or 0.0)):
        place = places[kill.every] = places.get(kill.every, -1) + 1
        low, high = kill.expected.redo_steps
        measured = None if kill.recovery is None else kill.recovery.redo_steps
        tip = {"title": f"every {kill.every} steps, {kill.run}", "killed at": kill.where,
               "held": kill.save or "nothing",
               "predicted": f"{low} steps" if low == high else f"{low} to {high} steps",
               "measured": "–" if measured is None else f"{measured} steps"}  # fmt: skip
        rows.append({"every": kill.every, "place": place, "low": low - 0.25, "high": high + 0.25, "redo": measured,
                     "met": kill.met is not False, "tip": tip})  # fmt: skip
    shared = {
        "x": {**_EVERY, "sort": None},
        "xOffset": {"field": "place", "type": "ordinal", "sort": None},
        "tooltip": {"field": "tip"},
    }
    value = {"type": "quantitative", "title": "steps redone", "axis": {"tickMinStep": 1}}
    bars = {"mark": {"type": "bar", "fill": c("kept2"), "stroke": c("kept-edge"), "strokeWidth": 1},
            "encoding": {**shared, "y": {**value, "field": "low"}, "y2": {"field": "high"}}}  # fmt: skip
    met = {"field": "met", "type": "nominal", "legend": None}
    dots = {
        "mark": {"type": "point", "filled": True, "opacity": 1, "size": 70, "stroke": c("card"), "strokeWidth": 1},
        "encoding": {**shared, "y": {**value, "field": "redo"},
                     "shape": {**met, "scale": {"domain": [True, False], "range": ["circle", "cross"]}},
                     "fill": {**met, "scale": {"domain": [True, False], "range": [c("kept-edge"), c("kill")]}}},
    }  # fmt: skip
    return lite(
        "Steps redone after each kill, predicted and measured, by interval.", 260, [bars, dots], data={"values": rows}
    )


def overhead(rows: Sequence[Row]) -> Spec:
    """What saves cost of the steps' time, in percent."""
    return _estimates(
        "Cost of saves by interval.", [(row.every, row.overhead) for row in rows], "of the steps' time, %", 100
    )


def _estimates(what: str, found: Sequence[tuple[int, Estimate | None]], title: str, scale: float) -> Spec:
    values = [
        {"every": every, "value": each.value * scale, "low": each.low * scale, "high": each.high * scale,
         "tip": {"title": f"every {every} steps", title: f"{each.value * scale:.3g}",
                 "95 % interval": f"{each.low * scale:.3g} to {each.high * scale:.3g}", "n": str(each.observations)}}
        for every, each in found if each is not None
    ]  # fmt: skip
    y = {"type": "quantitative", "title": title}
    return lite(
        what, 190,
        [{"mark": {"type": "rule", "stroke": c("kept-edge"), "strokeWidth": 3},
          "encoding": {"x": _EVERY, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "tooltip": {"field": "tip"}}},
         {"mark": {"type": "point", "filled": True, "opacity": 1, "size": 110, "fill": c("kept-edge"),
                   "stroke": c("card")},
          "encoding": {"x": _EVERY, "y": {**y, "field": "value"}, "tooltip": {"field": "tip"}}}],
        data={"values": values},
    )  # fmt: skip


def parts(rows: Sequence[Row]) -> Spec:
    """Mean seconds of a recovery, stacked by part."""
    names = list(dict.fromkeys(part.name for row in rows for part in row.parts))
    known = [name for name in names if name != "unexplained"]
    values = [
        {"every": row.every, "part": part.name.replace("_", " "), "seconds": part.seconds.value,
         "order": names.index(part.name),
         "tip": {"title": f"every {row.every} steps: {part.name.replace('_', ' ')}",
                 "mean": f"{part.seconds.value:.4f} s", "n": str(part.seconds.observations),
                 "95 % interval": f"{part.seconds.low:.4f} to {part.seconds.high:.4f} s"}}
        for row in rows for part in row.parts
    ]  # fmt: skip
    shown = [name.replace("_", " ") for name in (*known, *(["unexplained"] if "unexplained" in names else []))]
    fills = [*part_fills(len(known)), hatch("h-lost")][: len(shown)]
    fill = {"field": "part", "type": "nominal", "title": None, "sort": shown, "legend": {"columns": 5},
            "scale": {"domain": shown, "range": fills}}  # fmt: skip
    every = {**_EVERY, "title": None, "axis": {"labelExpr": "'every ' + datum.label", "ticks": False, "domain": False}}
    return lite(
        "Mean seconds of a recovery by part, for each interval.", 34 * max(1, len(rows)),
        [{"mark": {"type": "bar", "stroke": c("card"), "strokeWidth": 1.2},
          "encoding": {"y": every, "x": {"field": "seconds", "type": "quantitative",
                                         "title": "seconds from the kill to the first new step"},
                       "order": {"field": "order"}, "fill": fill, "tooltip": {"field": "tip"}}}],
        data={"values": values},
    )  # fmt: skip


def goodput(result: Intervals) -> Spec:
    """The model's curve, what was measured, and what is recommended beside the formulas."""
    measured = [
        {"every": row.every, "value": row.goodput.value * 100, "low": row.goodput.low * 100,
         "high": row.goodput.high * 100,
         "tip": {"title": f"every {row.every} steps, measured", "goodput": f"{row.goodput.value:.2%}",
                 "95 % interval": f"{row.goodput.low:.2%} to {row.goodput.high:.2%}",
                 "n": str(row.goodput.observations)}}
        for row in result.rows if row.goodput is not None
    ]  # fmt: skip
    x = {"field": "every", "type": "quantitative", "scale": {"type": "log"}, "title": "steps between saves (log)",
         "axis": {"labelExpr": "format(datum.value, ',')", "labelOverlap": "greedy", "labelSeparation": 14,
                  "grid": False}}  # fmt: skip
    y = {"type": "quantitative", "title": "goodput, %", "scale": {"zero": False}}
    dots: list[Spec] = [
        {"data": {"values": measured}, "mark": {"type": "rule", "stroke": c("kept-edge"), "strokeWidth": 3},
         "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "tooltip": {"field": "tip"}}},
        {"data": {"values": measured}, "mark": {"type": "point", "filled": True, "opacity": 1, "size": 110,
                                                "fill": c("kept-edge"), "stroke": c("card")},
         "encoding": {"x": x, "y": {**y, "field": "value"}, "tooltip": {"field": "tip"}}},
    ]  # fmt: skip
    found = result.recommendation
    layers = dots if found is None else [*_chosen(found, x), *_model(found, x, y), *dots]
    return lite("Goodput by interval: model, measurement and recommendation.", 280, layers)


def _model(found: Recommendation, x: Spec, y: Spec) -> list[Spec]:
    curve = [{"every": point.every, "value": point.goodput * 100} for point in found.curve]
    return [{"data": {"values": curve}, "mark": {"type": "line", "stroke": c("muted"), "strokeWidth": 1.8,
                                                 "strokeDash": [6, 3]},
             "encoding": {"x": x, "y": {**y, "field": "value"}}}]  # fmt: skip


def _chosen(found: Recommendation, x: Spec) -> list[Spec]:
    """The recommendation with its interval as a band, formulas and the limit as lines with their names."""
    band = [{"every": max(1.0, found.every.low), "end": max(1.0, found.every.high)}]
    named = [("recommended", found.every.value, c("valid"), 4.0)]
    named += [
        (formula.name.partition(" ")[0], formula.every.value, c("redone-edge"), 1.6) for formula in found.formulas
    ]
    if found.limit is not None and found.limit.value:
        named.append(("limit", found.limit.value, c("kill"), 1.6))
    lines = [{"every": max(1.0, value), "name": name, "hue": hue, "width": width, "row": row * 15 + 10,
              "tip": {"title": name, "every": f"{value:,.0f} steps"}}
             for row, (name, value, hue, width) in enumerate(named)]  # fmt: skip
    return [
        {"data": {"values": band}, "mark": {"type": "rect", "fill": c("save-bg"), "opacity": 0.55},
         "encoding": {"x": x, "x2": {"field": "end"}}},
        {"data": {"values": lines}, "mark": {"type": "rule"},
         "encoding": {"x": x, "stroke": {"field": "hue", "type": "nominal", "scale": None},
                      "strokeWidth": {"field": "width", "type": "quantitative", "scale": None},
                      "tooltip": {"field": "tip"}}},
        {"data": {"values": lines}, "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 12,
                                             "fontWeight": 600},
         "encoding": {"x": x, "y": {"field": "row", "type": "quantitative", "scale": None, "axis": None},
                      "text": {"field": "name"}, "fill": {"field": "hue", "type": "nominal", "scale": None}}},
    ]  # fmt: skip
