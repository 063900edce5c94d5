"""A sweep as figures: the map of points × processes, redo against its prediction, seconds to the first new step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from chaos.page.figures.theme import Spec, c, lite
from chaos.page.pages import Cell, TrialRow


def points(cells: Sequence[Cell]) -> Spec:
    """A number where all is as it has to be; letters on a dark ground elsewhere."""
    names = list(dict.fromkeys(cell.point for cell in cells))
    processes = sorted(dict.fromkeys(cell.who for cell in cells))
    rows = [
        {"point": cell.point, "who": cell.who, "bad": bool(cell.bad),
         "label": f"{cell.trials - cell.bad} of {cell.trials} {cell.letters}" if cell.bad else str(cell.trials),
         "tip": {"title": f"{cell.point}, {cell.who}", "trials": str(cell.trials),
                 "as they have to be": str(cell.trials - cell.bad),
                 "group": cell.group}}
        for cell in cells
    ]  # fmt: skip
    place = {
        "y": {"field": "point", "type": "ordinal", "sort": None, "scale": {"domain": names}, "title": None,
              "axis": {"labelLimit": 220, "labelPadding": 10, "ticks": False, "domain": False, "labelColor": c("ink")}},
        "x": {"field": "who", "type": "ordinal", "sort": None, "scale": {"domain": processes}, "title": None,
              "axis": {"orient": "top", "labelPadding": 8, "labelAngle": 0, "ticks": False, "domain": False,
                       "labelColor": c("ink")}},
    }  # fmt: skip
    bad = {"field": "bad", "type": "nominal", "legend": None}
    box = {"mark": {"type": "rect", "cornerRadius": 3, "stroke": c("card"), "strokeWidth": 2},
           "encoding": {**place, "tooltip": {"field": "tip"},
                        "fill": {**bad, "scale": {"domain": [False, True],
                                                  "range": [c("save-bg"), c("kill")]}}}}  # fmt: skip
    text = {"mark": {"type": "text", "fontSize": 12, "tooltip": None},
            "encoding": {**place, "text": {"field": "label"},
                         "fill": {**bad, "scale": {"domain": [False, True], "range": [c("ink"), c("on-kill")]}},
                         "fontWeight": {"condition": {"test": "datum.bad", "value": 700}, "value": 400}}}  # fmt: skip
    text["encoding"].pop("fontWeight")
    return lite("Map of kill points by process: trials, and what is wrong with them.", 23 * max(1, len(names)),
                [box, text],
                data={"values": rows}, resolve={"scale": {"fill": "independent"}})  # fmt: skip


def redo(rows: Sequence[TrialRow]) -> Spec | None:
    """Steps done again, measured against the range predicted; None without any prediction."""
    counted = Counter((row.low, row.high, row.redo_steps) for row in rows if row.redo_steps is not None)
    values = [
        {"low": low, "high": high, "redo": measured, "n": n, "met": low <= measured <= high, "middle": (low + high) / 2,
         "tip": {"title": f"{measured} steps redone",
                 "predicted": f"{low} steps" if low == high else f"{low} to {high} steps",
                 "recoveries": str(n)}}
        for (low, high, measured), n in counted.items() if low is not None and high is not None and measured is not None
    ]  # fmt: skip
    if not values:
        return None
    ordered = sorted(values, key=lambda row: (row["low"], row["high"], row["redo"]))
    for number, row in enumerate(ordered):
        row["row"] = number
    y = {"field": "row", "type": "ordinal", "axis": None}
    measured = {"field": "redo", "type": "quantitative", "title": "steps redone", "axis": {"tickMinStep": 1}}
    return lite(
        "Steps redone in each kind of trial against the range that was predicted.", 20 * len(ordered),
        [
            {"mark": {"type": "bar", "fill": c("kept2"), "stroke": c("kept-edge"), "height": 12, "cornerRadius": 3},
             "transform": [{"calculate": "datum.low - 0.12", "as": "a"}, {"calculate": "datum.high + 0.12", "as": "b"}],
             "encoding": {"y": y, "x": {**measured, "field": "a"}, "x2": {"field": "b"}, "tooltip": {"field": "tip"}}},
            {"mark": {"type": "point", "filled": True, "opacity": 1, "stroke": c("card"), "strokeWidth": 1},
             "encoding": {"y": y, "x": measured, "tooltip": {"field": "tip"},
                          "size": {"field": "n", "type": "quantitative", "scale": {"range": [60, 420]}, "legend": None},
                          "shape": {"field": "met", "type": "nominal", "legend": None,
                                    "scale": {"domain": [True, False], "range": ["circle", "cross"]}},
                          "fill": {"field": "met", "type": "nominal", "legend": None,
                                   "scale": {"domain": [True, False], "range": [c("kept-edge"), c("kill")]}}}},
        ],
        data={"values": ordered},
    )  # fmt: skip


def first_step(rows: Sequence[TrialRow]) -> Spec | None:
    """How long it took to the first new step; None without any recovery."""
    values = [{"s": row.first_step_s} for row in rows if row.first_step_s is not None]
    if not values:
        return None
    return lite(
        "How many recoveries took how long from the kill to the first new step.", 180,
        [{"mark": {"type": "bar", "fill": c("kept"), "stroke": c("kept-edge")},
          "encoding": {"x": {"field": "s", "type": "quantitative", "bin": {"maxbins": 40},
                             "title": "seconds from the kill to the first new step"},
                       "y": {"aggregate": "count", "type": "quantitative", "title": "recoveries"},
                       "tooltip": {"aggregate": "count", "title": "recoveries"}}}],
        data={"values": values},
    )  # fmt: skip
