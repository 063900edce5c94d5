"""The ledger map as a figure: calm where every position was applied once; a number and a frame at each fault."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.page.figures.theme import Spec, c, hatch, vega
from chaos.page.values import Fate, LedgerMap

BADGES = 12
_TOP, _TALL = 40, 216
_LINES = 40  # attempts, up to which their borders are drawn as lines
_NAMES = {Fate.GAP: "gap", Fate.REPEATED: "duplicate", Fate.WRONG: "wrong", Fate.UNKNOWN: "unknown"}


def figure(shown: LedgerMap) -> Spec:
    """Updates from left to right, the places of the global batch from top to bottom."""
    faults = [_fault(shown, number) for number in range(len(shown.faults))]
    top = _TOP if faults else 8
    tall = top + min(_TALL, max(140, 12 * shown.batch))
    share = shown.batch / max(1, shown.ranks)
    ranks = [{"rank": f"rank {rank}", "at": rank * share, "mid": (rank + 0.5) * share} for rank in range(shown.ranks)]
    return vega(
        "Map of the sample ledger: each position of the run by step and place in the global batch.", tall,
        data=[
            {"name": "blocks", "values": list(_blocks(shown))}, {"name": "faults", "values": faults},
            {"name": "ranks", "values": ranks if shown.ranks <= 16 else []},
            {"name": "steps", "values": [{"at": n} for n in range(1, shown.updates)] if shown.updates <= 160 else []},
            {"name": "places", "values": [{"at": n} for n in range(1, shown.batch)] if shown.batch <= 64 else []},
        ],
        scales=[
            {"name": "x", "type": "linear", "domain": [0, max(1, shown.updates)], "range": "width", "nice": False},
            {"name": "y", "type": "linear", "domain": [0, max(1, shown.batch)], "range": [top, tall], "nice": False},
            {"name": "fill", "type": "ordinal", "domain": list(_NAMES.values()),
             "range": [c("card"), hatch("h-repeated"), hatch("h-wrong"), hatch("h-unknown")]},
        ],
        axes=[{"orient": "bottom", "scale": "x", "title": "step, counted from 0 as in the ledger", "tickMinStep": 1,
               "tickCount": {"signal": "width / 70"}, "labelOverlap": True}],
        marks=list(_marks(top, tall)),
    )  # fmt: skip


def _marks(top: int, tall: int) -> Iterator[Spec]:
    yield {"type": "rect", "from": {"data": "blocks"}, "encode": {"update": {
        "x": {"scale": "x", "field": "first"}, "x2": {"scale": "x", "field": "end"}, "y": {"value": top},
        "y2": {"value": tall},
        "fill": {"signal": f"datum.attempt % 2 ? '{c('kept2')}' : '{c('kept')}'"},
        "tooltip": {"field": "tip"}}}}  # fmt: skip
    fine = {"stroke": {"value": c("card")}, "strokeWidth": {"value": 0.7}, "opacity": {"value": 0.55}}
    yield {"type": "rule", "from": {"data": "steps"}, "interactive": False, "encode": {"update": {
        "x": {"scale": "x", "field": "at"}, "y": {"value": top}, "y2": {"value": tall}, **fine}}}  # fmt: skip
    yield {"type": "rule", "from": {"data": "places"}, "interactive": False, "encode": {"update": {
        "x": {"value": 0}, "x2": {"signal": "width"}, "y": {"scale": "y", "field": "at"}, **fine}}}  # fmt: skip
    yield {"type": "rule", "from": {"data": "ranks"}, "interactive": False, "encode": {"update": {
        "x": {"value": 0}, "x2": {"signal": "width"}, "y": {"scale": "y", "field": "at"},
        "stroke": {"value": c("card")}, "strokeWidth": {"signal": "datum.at ? 3 : 0"}}}}  # fmt: skip
    yield {"type": "rule", "from": {"data": "blocks"}, "interactive": False, "encode": {"update": {
        "x": {"scale": "x", "field": "first"}, "y": {"value": top}, "y2": {"value": tall},
        "stroke": {"value": c("ink")}, "strokeWidth": {"signal": "datum.restart ? 1.6 : 0"},
        "strokeDash": {"value": [5, 3]}}}}  # fmt: skip
    yield {"type": "text", "from": {"data": "ranks"}, "encode": {"update": {
        "x": {"value": -10}, "y": {"scale": "y", "field": "mid"}, "text": {"field": "rank"},
        "align": {"value": "right"},
        "baseline": {"value": "middle"}, "fontSize": {"value": 12.5}, "fill": {"value": c("ink")}}}}  # fmt: skip
    yield {"type": "text", "from": {"data": "blocks"}, "interactive": False, "encode": {"update": {
        "x": {"signal": "scale('x', datum.first) + 6"}, "y": {"value": top + 15}, "text": {"field": "label"},
        "fontSize": {"value": 11.5}, "fontWeight": {"value": 600}, "fill": {"value": c("ink")},
        "opacity": {"signal": "scale('x', datum.until) - scale('x', datum.first) > 62 ? 1 : 0"}}}}  # fmt: skip
    yield from _faults(top, tall)


def _faults(top: int, tall: int) -> Iterator[Spec]:
    middle = "(scale('x', datum.first) + scale('x', datum.end)) / 2"
    wide = "max(9, scale('x', datum.end) - scale('x', datum.first))"
    high = "max(9, scale('y', datum.bottom) - scale('y', datum.low))"
    badge = f"clamp({middle}, 12, width - 12)"
    yield {"type": "rule", "from": {"data": "faults"}, "interactive": False, "encode": {"update": {
        "x": {"signal": badge}, "x2": {"signal": middle}, "y": {"value": 20}, "y2": {"scale": "y", "field": "low"},
        "stroke": {"value": c("kill")}, "strokeWidth": {"value": 2},
        "opacity": {"signal": "datum.badge ? 1 : 0"}}}}  # fmt: skip
    yield {"type": "rect", "name": "faults-drawn", "from": {"data": "faults"}, "encode": {
        "update": {
            "xc": {"signal": middle}, "width": {"signal": wide},
            "yc": {"signal": "(scale('y', datum.low) + scale('y', datum.bottom)) / 2"}, "height": {"signal": high},
            "fill": {"scale": "fill", "field": "kind"}, "stroke": {"value": c("kill")}, "strokeWidth": {"value": 3},
            "tooltip": {"field": "tip"}},
        "hover": {"strokeWidth": {"value": 5}}}}  # fmt: skip
    yield {"type": "symbol", "from": {"data": "faults"}, "encode": {"update": {
        "x": {"signal": badge}, "y": {"value": 14}, "size": {"signal": "datum.badge ? 420 : 0"},
        "fill": {"value": c("kill")},
        "tooltip": {"field": "tip"}}}}  # fmt: skip
    yield {"type": "text", "from": {"data": "faults"}, "interactive": False, "encode": {"update": {
        "x": {"signal": badge}, "y": {"value": 14.5}, "text": {"field": "badge"}, "align": {"value": "center"},
        "baseline": {"value": "middle"}, "fontSize": {"value": 13}, "fontWeight": {"value": 700},
        "fill": {"value": c("on-kill")}}}}  # fmt: skip


def _blocks(shown: LedgerMap) -> Iterator[Spec]:
    parted = len({block.attempt for block in shown.blocks})
    for number, block in enumerate(shown.blocks):
        before = shown.blocks[number - 1].attempt if number else block.attempt
        restart = number > 0 and before != block.attempt and parted <= _LINES
        until = block.last + 1
        for later in shown.blocks[number + 1 :]:
            if later.attempt != block.attempt:
                break
            until = later.last + 1
        samples = (block.last - block.first + 1) * shown.batch
        yield {"first": block.first, "end": block.last + 1, "until": until, "attempt": block.attempt,
               "restart": restart,
               "label": f"attempt {block.attempt}" if restart or not number else "",
               "tip": {"title": block.checkpoint, "steps": f"{block.first} to {block.last}",
                       "positions": f"{block.first * shown.batch} to {(block.last + 1) * shown.batch - 1}",
                       "samples": f"{samples:,}", "by": f"attempt {block.attempt}"}}  # fmt: skip


def _fault(shown: LedgerMap, number: int) -> Spec:
    fault = shown.faults[number]
    name = _NAMES[fault.fate]
    return {"first": fault.first, "end": fault.last + 1, "low": fault.low, "bottom": fault.high + 1, "kind": name,
            "badge": str(number + 1) if number < BADGES else "",
            "tip": {"title": f"{number + 1}: {name}", "": fault.words}}  # fmt: skip
