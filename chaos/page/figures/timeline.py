"""The timeline as a figure. The page fills it with what is in view; a file on its own has all of it, in less detail."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.page.figures.theme import CROSS, Spec, c, hatch, part_fills, vega
from chaos.page.levels import Level, coarsest, levels
from chaos.page.values import Happening, Part, Saves, Stretches, Timeline

_DATA = ("pieces", "labels", "saves", "phases", "fences", "attempts", "kills", "symbols", "ticks")
TOP, RECOVERY, STEPS, SAVES, GAP = 26, 16, 26, 7, 9
_WHOLE = 1600  # pieces of a file on its own
_WIDE = 860  # pixels of it
_DENSE = 40  # kills in view, from which on their marks are small


def lane_tops(count: int) -> list[int]:
    """Where each rank's lane begins."""
    first = TOP + RECOVERY + GAP
    return [first + number * (STEPS + SAVES + GAP) for number in range(count)]


def height(shown: Timeline) -> int:
    """Of the figure."""
    return TOP + RECOVERY + GAP + max(1, len(shown.lanes)) * (STEPS + SAVES + GAP)


def figure(shown: Timeline, *, filled: bool) -> Spec:
    """filled: with all data, for a file on its own."""
    data: dict[str, list[Spec]] = {name: [] for name in _DATA}
    if filled:
        data |= rows(shown, coarsest(levels(shown), _WHOLE))
    tall = height(shown)
    end_s = max(shown.end_us / 1e6, 1e-6)
    labels = [{"name": f"rank {lane.rank}", "y": top + STEPS / 2}
              for lane, top in zip(shown.lanes, lane_tops(len(shown.lanes)), strict=True)]  # fmt: skip
    labels.append({"name": "recovery", "y": TOP + RECOVERY / 2})
    own = {"autosize": {"type": "pad"}, "legends": _legends()} if filled else {}
    return vega(
        "Timeline of all ranks: updates, saves, kills, detections and recoveries over time.", tall,
        signals=[{"name": "lo", "value": 0}, {"name": "hi", "value": end_s},
                 {"name": "dense", "value": sum(mark.kind is Happening.KILL for mark in shown.marks) > _DENSE}],
        data=[{"name": name, "values": values} for name, values in data.items()]
        + [{"name": "lanes", "values": labels}],
        scales=[
            {"name": "x", "type": "linear", "domain": {"signal": "[lo, hi]"}, "range": "width", "zero": False,
             "nice": False},
            {"name": "work", "type": "ordinal", "domain": ["kept", "lost", "redone"],
             "range": [c("kept"), hatch("h-lost"), hatch("h-redone")]},
            {"name": "edge", "type": "ordinal", "domain": ["kept", "lost", "redone"],
             "range": [c("kept-edge"), c("lost-edge"), c("redone-edge")]},
            {"name": "part", "type": "ordinal", "domain": [part.value for part in Part],
             "range": [*part_fills(3), hatch("h-redone")]},
        ],
        axes=[{"orient": "bottom", "scale": "x", "title": "seconds since the run began",
               "tickCount": {"signal": "width / 90"},
               "grid": True, "labelOverlap": True}],
        marks=[
            {"type": "text", "from": {"data": "lanes"}, "encode": {"update": {
                "x": {"value": -10}, "y": {"field": "y"}, "text": {"field": "name"}, "align": {"value": "right"},
                "baseline": {"value": "middle"}, "fontSize": {"value": 12.5}, "fill": {"value": c("ink")}}}},
            {"type": "group", "clip": True, "encode": {"update": {
                "width": {"signal": "width"}, "height": {"value": tall}}}, "marks": list(_inside(tall))},
        ],
        **own,
    )  # fmt: skip


def _legends() -> list[Spec]:
    """For a file on its own; the page has its own key, with the marks' shapes."""
    shared = {"orient": "bottom", "direction": "horizontal", "symbolType": "square", "titleOrient": "left"}
    return [{**shared, "fill": "work", "title": "steps"}, {**shared, "fill": "part", "title": "recovery"}]


def _inside(tall: int) -> Iterator[Spec]:
    across = {"x": {"scale": "x", "field": "t0"},
              "x2": {"signal": "max(scale('x', datum.t1), scale('x', datum.t0) + 1.5)"},
              "y": {"field": "y"}, "height": {"field": "h"}, "tooltip": {"signal": "datum"}}  # fmt: skip
    wide = "scale('x', datum.t1) - scale('x', datum.t0)"
    yield {"type": "rule", "from": {"data": "fences"}, "encode": {"update": {
        "x": {"scale": "x", "field": "t"}, "y": {"value": 14}, "y2": {"value": tall}, "stroke": {"value": c("muted")},
        "strokeDash": {"value": [3, 3]}, "opacity": {"signal": "dense ? 0.25 : 0.75"}}}}  # fmt: skip
    yield {"type": "rect", "name": "phases-drawn", "from": {"data": "phases"}, "encode": {"update": {
        **across, "fill": {"scale": "part", "field": "part"}, "stroke": {"value": c("ink")},
        "strokeWidth": {"signal": f"{wide} > 4 ? 0.6 : 0"}}}}  # fmt: skip
    yield {"type": "rect", "name": "pieces-drawn", "from": {"data": "pieces"}, "encode": {
        "update": {**across, "fill": {"scale": "work", "field": "work"}, "stroke": {"scale": "edge", "field": "work"},
                   "strokeWidth": {"signal": f"{wide} > 4 ? 0.8 : 0"},
                   "cornerRadius": {"signal": f"{wide} > 9 ? 2 : 0"}},
        "hover": {"strokeWidth": {"value": 2.2}, "stroke": {"value": c("ink")}}}}  # fmt: skip
    yield {"type": "rule", "from": {"data": "ticks"}, "interactive": False, "encode": {"update": {
        "x": {"scale": "x", "field": "t"}, "y": {"signal": "datum.y + datum.h - 8"},
        "y2": {"signal": "datum.y + datum.h - 1"}, "stroke": {"value": c("ink")},
        "strokeWidth": {"value": 1.4}}}}  # fmt: skip
    yield {"type": "text", "from": {"data": "labels"}, "interactive": False, "encode": {"update": {
        "x": {"signal": "(max(scale('x', datum.t0), 0) + min(scale('x', datum.t1), width)) / 2"},
        "y": {"signal": f"datum.y + {STEPS / 2}"}, "align": {"value": "center"}, "baseline": {"value": "middle"},
        "fontSize": {"value": 11}, "fontWeight": {"value": 600}, "fill": {"value": c("ink")},
        "text": {"field": "label"}}}}  # fmt: skip
    yield {"type": "rect", "name": "saves-drawn", "from": {"data": "saves"}, "encode": {"update": {
        **across, "fill": {"signal": f"datum.part == 'stall' ? '{c('save')}' : '{c('save-bg')}'"},
        "stroke": {"value": c("save")}, "strokeWidth": {"signal": f"{wide} > 5 ? 0.8 : 0"}}}}  # fmt: skip
    yield from _marks()


def _marks() -> Iterator[Spec]:
    kill, seen = f"datum.kind == '{Happening.KILL}'", f"datum.kind == '{Happening.DETECTED}'"
    yield {"type": "rule", "from": {"data": "kills"}, "interactive": False, "encode": {"update": {
        "x": {"scale": "x", "field": "t"}, "y": {"field": "y"}, "y2": {"signal": "datum.y + datum.h"},
        "stroke": {"value": c("kill")}, "strokeWidth": {"signal": "dense ? 1 : 2.4"}}}}  # fmt: skip
    yield {"type": "symbol", "name": "marks-drawn", "from": {"data": "symbols"}, "encode": {
        "update": {
            "x": {"scale": "x", "field": "t"}, "y": {"field": "y"}, "tooltip": {"signal": "datum"},
            "shape": {"signal": f"{kill} ? '{CROSS}' : {seen} ? 'triangle-down' : 'diamond'"},
            "size": {"signal": f"{kill} ? (dense ? 34 : 150) : {seen} ? 74 : 34"},
            "fill": {"signal": f"{kill} ? '{c('kill')}' : {seen} ? '{c('card')}' : '{c('save')}'"},
            "stroke": {"signal": f"{kill} ? '{c('card')}' : {seen} ? '{c('kill')}' : '{c('card')}'"},
            "strokeWidth": {"signal": f"{seen} ? 1.8 : 1"}},
        "hover": {"stroke": {"value": c("ink")}}}}  # fmt: skip
    yield {"type": "text", "from": {"data": "attempts"}, "interactive": False, "encode": {"update": {
        "x": {"signal": "scale('x', datum.t) + 4"}, "y": {"value": 13}, "fontSize": {"value": 11.5},
        "fill": {"value": c("muted")}, "text": {"field": "label"}}}}  # fmt: skip


def rows(shown: Timeline, level: Level) -> dict[str, list[Spec]]:
    """Everything, for a file on its own, by dataset."""
    tops = lane_tops(len(shown.lanes))
    pieces = [row for steps, top in zip(level.lanes, tops, strict=True) for row in _pieces(steps, top)]
    saves = [row for lane, top in zip(shown.lanes, tops, strict=True) for row in _saves(lane.saves, top + STEPS + 1)]
    phases = [{"t0": each.start_us / 1e6, "t1": each.end_us / 1e6, "part": each.part.value, "y": TOP, "h": RECOVERY}
              for each in shown.phases]  # fmt: skip
    marks = list(mark_rows(shown))
    of = {kind: [mark for mark in marks if mark["kind"] == kind] for kind in Happening}
    kills = of[Happening.KILL]
    symbols = (
        kills if len(kills) > _DENSE else [mark for kind in Happening if kind != Happening.FENCE for mark in of[kind]]
    )
    second = _WIDE / max(shown.end_us / 1e6, 1e-6)
    return {
        "pieces": pieces, "saves": saves if len(saves) <= _WHOLE else [], "phases": phases, "kills": kills,
        "labels": [row for row in pieces if (row["t1"] - row["t0"]) * second > 7 + 7 * len(row["label"])],
        "fences": of[Happening.FENCE], "attempts": [mark for mark in of[Happening.FENCE] if mark["label"]],
        "symbols": symbols,
    }  # fmt: skip


def mark_rows(shown: Timeline) -> Iterator[Spec]:
    """A mark of a rank is on its lane, others at the top. Of fences whose names would overlap one has none."""
    tops = {lane.rank: top for lane, top in zip(shown.lanes, lane_tops(len(shown.lanes)), strict=True)}
    free = 0
    for mark in shown.marks:
        label = ""
        if mark.kind is Happening.FENCE and free <= mark.at_us < 0.93 * shown.end_us:
            label, free = f"attempt {mark.attempt}", mark.at_us + max(1, shown.end_us // 12)
        top = tops.get(mark.rank) if mark.rank is not None else None
        high = RECOVERY / 2 + TOP if mark.kind in (Happening.KILL, Happening.DETECTED) else TOP - 6
        yield {"t": mark.at_us / 1e6, "kind": mark.kind.value, "y": high if top is None else top,
               "h": 0 if top is None else STEPS, "text": mark.text, "label": label,
               "attempt": mark.attempt}  # fmt: skip


def _pieces(steps: Stretches, top: int) -> Iterator[Spec]:
    """A piece of several updates shows how many of them were done again, and how many lost, by the height of each."""
    columns = (each.tolist() for each in (steps.start_us, steps.end_us, steps.first, steps.last, steps.updates,
                                          steps.redone, steps.lost))  # fmt: skip
    for start, end, first, last, updates, redone, lost in zip(*columns, strict=True):
        row = {"t0": start / 1e6, "t1": end / 1e6, "y": top, "h": STEPS, "work": "kept",
               "label": str(first) if first == last else f"{first}–{last}"}  # fmt: skip
        again = redone / updates
        gone = min(lost / updates, 1 - again)
        if again == 1 or gone == 1:
            yield {**row, "work": "redone" if again == 1 else "lost"}
            continue
        yield row
        if again:
            yield {**row, "label": "", "work": "redone", "y": top + STEPS * (1 - again), "h": STEPS * again}
        if gone:
            yield {**row, "label": "", "work": "lost", "y": top + STEPS * (1 - again - gone), "h": STEPS * gone}


def _saves(saves: Saves, top: int) -> Iterator[Spec]:
    columns = (each.tolist() for each in (saves.due_us, saves.staged_us, saves.written_us, saves.published_us))
    for due, staged, written, published in zip(*columns, strict=True):
        end = max(staged, written, published)
        yield {"t0": due / 1e6, "t1": max(staged, due) / 1e6, "y": top, "h": SAVES, "part": "stall"}
        if end > staged >= 0:
            yield {"t0": staged / 1e6, "t1": end / 1e6, "y": top, "h": SAVES, "part": "background"}
