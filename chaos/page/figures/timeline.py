"""The timeline as a figure. The page fills it with what is in view; a file on its own has all of it, in less detail."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.page.figures.theme import Spec, c, hatch, part_fills, vega
from chaos.page.levels import Level, coarsest, levels
from chaos.page.values import Happening, Part, Stretches, Timeline

TOP, RECOVERY, STEPS, SAVES, GAP = 26, 16, 26, 7, 9
_WHOLE = 1600  # pieces of a file on its own


def lane_tops(count: int) -> list[int]:
    """Where each rank's lane begins."""
    first = TOP + RECOVERY + GAP
    return [first + number * (STEPS + SAVES + GAP) for number in range(count)]


def height(shown: Timeline) -> int:
    """Of the figure."""
    return TOP + RECOVERY + GAP + max(1, len(shown.lanes)) * (STEPS + SAVES + GAP)


def figure(shown: Timeline, *, filled: bool) -> Spec:
    """filled: with all data, for a file on its own."""
    data = {"pieces": [], "saves": [], "phases": [], "marks": [], "ticks": []}
    if filled:
        data = rows(shown, coarsest(levels(shown), _WHOLE))
    tall = height(shown)
    end_s = max(shown.end_us / 1e6, 1e-6)
    labels = [{"name": f"rank {lane.rank}", "y": top + STEPS / 2}
              for lane, top in zip(shown.lanes, lane_tops(len(shown.lanes)), strict=True)]  # fmt: skip
    labels.append({"name": "recovery", "y": TOP + RECOVERY / 2})
    return vega(
        "Timeline of all ranks: updates, saves, kills, detections and recoveries over time.", tall,
        padding={"left": 76, "right": 14, "top": 4, "bottom": 4},
        signals=[{"name": "lo", "value": 0}, {"name": "hi", "value": end_s}],
        data=[{"name": name, "values": values} for name, values in data.items()]
        + [{"name": "lanes", "values": labels}],
        scales=[
            {"name": "x", "type": "linear", "domain": {"signal": "[lo, hi]"}, "range": "width", "zero": False, "nice": False},
            {"name": "work", "type": "ordinal", "domain": ["kept", "lost", "redone"],
             "range": [c("kept"), hatch("h-lost"), hatch("h-redone")]},
            {"name": "workEdge", "type": "ordinal", "domain": ["kept", "lost", "redone"],
             "range": [c("kept-edge"), c("lost-edge"), c("redone-edge")]},
            {"name": "part", "type": "ordinal", "domain": [part.value for part in Part],
             "range": [*part_fills(3), hatch("h-redone")]},
        ],
        axes=[{"orient": "bottom", "scale": "x", "title": "seconds since the run began", "tickCount": {"signal": "width / 90"},
               "grid": True, "labelOverlap": True}],
        marks=[
            {"type": "text", "from": {"data": "lanes"}, "encode": {"update": {
                "x": {"value": -10}, "y": {"field": "y"}, "text": {"field": "name"}, "align": {"value": "right"},
                "baseline": {"value": "middle"}, "fontSize": {"value": 12.5}, "fill": {"value": c("ink")}}}},
            {"type": "group", "clip": True, "encode": {"update": {
                "width": {"signal": "width"}, "height": {"value": tall}}}, "marks": list(_inside(tall))},
        ],
    )  # fmt: skip


def _inside(tall: int) -> Iterator[Spec]:
    across = {"x": {"scale": "x", "field": "t0"}, "x2": {"signal": "max(scale('x', datum.t1), scale('x', datum.t0) + 1.5)"},
              "y": {"field": "y"}, "height": {"field": "h"}, "tooltip": {"signal": "datum"}}  # fmt: skip
    wide = "scale('x', datum.t1) - scale('x', datum.t0)"
    fences = f"datum.kind == '{Happening.FENCE}'"
    yield {"type": "rule", "from": {"data": "marks"}, "encode": {"update": {
        "x": {"scale": "x", "field": "t"}, "y": {"value": 14}, "y2": {"value": tall},
        "stroke": {"value": c("muted")}, "strokeDash": {"value": [3, 3]}, "strokeWidth": {"value": 1},
        "opacity": {"signal": f"{fences} ? 0.75 : 0"}}}}  # fmt: skip
    yield {"type": "rect", "name": "phases-drawn", "from": {"data": "phases"}, "encode": {"update": {
        **across, "fill": {"scale": "part", "field": "part"}, "stroke": {"value": c("ink")}, "strokeWidth": {"value": 0.6},
        "cursor": {"value": "default"}}}}  # fmt: skip
    yield {"type": "rect", "name": "pieces-drawn", "from": {"data": "pieces"}, "encode": {
        "update": {**across, "fill": {"scale": "work", "field": "work"}, "stroke": {"scale": "workEdge", "field": "work"},
                   "strokeWidth": {"signal": f"{wide} > 4 ? 0.8 : 0"}, "cornerRadius": {"signal": f"{wide} > 9 ? 2 : 0"}},
        "hover": {"strokeWidth": {"value": 2.2}, "stroke": {"value": c("ink")}}}}  # fmt: skip
    yield {"type": "rule", "from": {"data": "ticks"}, "interactive": False, "encode": {"update": {
        "x": {"scale": "x", "field": "t"}, "y": {"signal": "datum.y + datum.h - 8"}, "y2": {"signal": "datum.y + datum.h - 1"},
        "stroke": {"value": c("kept-edge")}, "strokeWidth": {"value": 1.3}}}}  # fmt: skip
    yield {"type": "text", "from": {"data": "pieces"}, "interactive": False, "encode": {"update": {
        "x": {"signal": "(max(scale('x', datum.t0), 0) + min(scale('x', datum.t1), width)) / 2"},
        "y": {"signal": "datum.y + datum.h / 2"}, "align": {"value": "center"}, "baseline": {"value": "middle"},
        "fontSize": {"value": 11}, "fontWeight": {"value": 600},
        "fill": {"value": c("ink")}, "text": {"field": "label"},
        "stroke": {"signal": f"datum.work == 'kept' ? null : '{c('card')}'"}, "strokeWidth": {"value": 0},
        "opacity": {"signal": f"{wide} > 7 + 7 * length(datum.label) ? 1 : 0"}}}}  # fmt: skip
    yield {"type": "rect", "name": "saves-drawn", "from": {"data": "saves"}, "encode": {"update": {
        **across, "fill": {"signal": f"datum.part == 'stall' ? '{c('save')}' : '{c('save-bg')}'"},
        "stroke": {"value": c("save")}, "strokeWidth": {"signal": f"{wide} > 5 ? 0.8 : 0"}}}}  # fmt: skip
    yield from _marks(tall, fences)


def _marks(tall: int, fences: str) -> Iterator[Spec]:
    kill, seen = f"datum.kind == '{Happening.KILL}'", f"datum.kind == '{Happening.DETECTED}'"
    yield {"type": "rule", "from": {"data": "marks"}, "interactive": False, "encode": {"update": {
        "x": {"scale": "x", "field": "t"}, "y": {"field": "y"}, "y2": {"signal": "datum.y + datum.h"},
        "stroke": {"value": c("kill")}, "strokeWidth": {"value": 2.4},
        "opacity": {"signal": f"{kill} ? 1 : 0"}}}}  # fmt: skip
    yield {"type": "symbol", "name": "marks-drawn", "from": {"data": "marks"}, "encode": {
        "update": {
            "x": {"scale": "x", "field": "t"}, "y": {"field": "y"}, "tooltip": {"signal": "datum"},
            "shape": {"signal": f"{kill} ? 'M-.7,-1L0,-.3L.7,-1L1,-.7L.3,0L1,.7L.7,1L0,.3L-.7,1L-1,.7L-.3,0L-1,-.7Z' : "
                                f"{seen} ? 'triangle-down' : 'diamond'"},
            "size": {"signal": f"{kill} ? 150 : {seen} ? 74 : {fences} ? 0 : 34"},
            "fill": {"signal": f"{kill} ? '{c('kill')}' : {seen} ? '{c('card')}' : '{c('save')}'"},
            "stroke": {"signal": f"{kill} ? '{c('card')}' : {seen} ? '{c('kill')}' : '{c('card')}'"},
            "strokeWidth": {"signal": f"{seen} ? 1.8 : 1"}},
        "hover": {"stroke": {"value": c("ink")}}}}  # fmt: skip
    yield {"type": "text", "from": {"data": "marks"}, "interactive": False, "encode": {"update": {
        "x": {"signal": "scale('x', datum.t) + 4"}, "y": {"value": 13}, "fontSize": {"value": 11.5},
        "fill": {"value": c("muted")}, "text": {"field": "label"},
        "opacity": {"signal": f"{fences} && datum.label ? 1 : 0"}}}}  # fmt: skip


def rows(shown: Timeline, level: Level) -> dict[str, list[Spec]]:
    """Everything, for a file on its own."""
    tops = lane_tops(len(shown.lanes))
    pieces = [row for steps, top in zip(level.lanes, tops, strict=True) for row in _pieces(steps, top)]
    saves = [row for lane, top in zip(shown.lanes, tops, strict=True) for row in _saves(lane.saves.columns(), top + STEPS + 1)]
    phases = [{"t0": each.start_us / 1e6, "t1": each.end_us / 1e6, "part": each.part.value, "y": TOP, "h": RECOVERY}
              for each in shown.phases]  # fmt: skip
    return {"pieces": pieces, "saves": saves if len(saves) <= _WHOLE else [], "phases": phases,
            "marks": list(mark_rows(shown)), "ticks": []}  # fmt: skip


def mark_rows(shown: Timeline) -> Iterator[Spec]:
    """A mark of a rank is on its lane, others at the top. Labels of fences that would cover one another are left out."""
    tops = {lane.rank: top for lane, top in zip(shown.lanes, lane_tops(len(shown.lanes)), strict=True)}
    free = 0
    for mark in shown.marks:
        label = ""
        if mark.kind is Happening.FENCE and mark.at_us >= free:
            label, free = f"attempt {mark.attempt}", mark.at_us + max(1, shown.end_us // 12)
        top = tops.get(mark.rank) if mark.rank is not None else None
        high = RECOVERY / 2 + TOP if mark.kind in (Happening.KILL, Happening.DETECTED) else TOP - 6
        yield {"t": mark.at_us / 1e6, "kind": mark.kind.value, "y": high if top is None else top,
               "h": 0 if top is None else STEPS, "text": mark.text, "label": label, "attempt": mark.attempt}  # fmt: skip


def work(redone: int, lost: int) -> str:
    """What a stretch is drawn as: what was done again, was lost, or stays."""
    return "redone" if redone else "lost" if lost else "kept"


def _pieces(steps: Stretches, top: int) -> Iterator[Spec]:
    columns = (each.tolist() for each in (steps.start_us, steps.end_us, steps.first, steps.last, steps.redone, steps.lost))
    for start, end, first, last, redone, lost in zip(*columns, strict=True):
        yield {"t0": start / 1e6, "t1": end / 1e6, "y": top, "h": STEPS, "work": work(redone, lost),
               "label": str(first) if first == last else f"{first}–{last}"}  # fmt: skip


def _saves(columns: dict[str, object], top: int) -> Iterator[Spec]:
    names = ("due_us", "staged_us", "written_us", "published_us")
    for due, staged, written, published in zip(*(columns[name].tolist() for name in names), strict=True):  # type: ignore[attr-defined]
        end = max(staged, written, published)
        yield {"t0": due / 1e6, "t1": max(staged, due) / 1e6, "y": top, "h": SAVES, "part": "stall"}
        if end > staged >= 0:
            yield {"t0": staged / 1e6, "t1": end / 1e6, "y": top, "h": SAVES, "part": "background"}
