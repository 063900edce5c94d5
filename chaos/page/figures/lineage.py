"""The lineage as a figure: attempts one below the other, checkpoints at their steps, and what descends from what."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.page.figures.theme import CROSS, Spec, c, hatch, vega
from chaos.page.values import Lineage, Node, Standing


def figure(shown: Lineage) -> Spec:
    """One row an attempt."""
    row = 58 if len(shown.starts) <= 12 else 34 if len(shown.starts) <= 40 else 20
    tall = row * max(1, len(shown.starts))
    last = max([1, *(start.reached for start in shown.starts), *(node.step for node in shown.nodes)])
    place = {"signal": f"scale('y', datum.attempt) + {row / 2}"}
    return vega(
        "Checkpoints by step and attempt, with the ones that each attempt started from.", tall,
        data=[
            {"name": "starts", "values": [_start(shown, number) for number in range(len(shown.starts))]},
            {"name": "nodes", "values": [_node(node) for node in shown.nodes]},
            {"name": "edges", "values": list(_edges(shown)), "transform": [
                {"type": "formula", "as": "sx", "expr": "scale('x', datum.from)"},
                {"type": "formula", "as": "sy", "expr": f"scale('y', datum.parent) + {row / 2}"},
                {"type": "formula", "as": "tx", "expr": "scale('x', datum.to)"},
                {"type": "formula", "as": "ty", "expr": f"scale('y', datum.attempt) + {row / 2}"},
                {"type": "linkpath", "orient": "vertical", "shape": "diagonal", "sourceX": "sx", "sourceY": "sy",
                 "targetX": "tx", "targetY": "ty"}]},
        ],
        scales=[
            {"name": "x", "type": "linear", "domain": [0, last], "range": "width", "nice": False},
            {"name": "y", "type": "band", "domain": [start.attempt for start in shown.starts], "range": [0, tall]},
        ],
        axes=[{"orient": "bottom", "scale": "x", "title": "step (updates done)", "grid": True, "tickMinStep": 1,
               "tickCount": {"signal": "width / 70"}}],
        marks=list(_marks(row, place)),
    )  # fmt: skip


def _marks(row: int, place: Spec) -> Iterator[Spec]:
    small = row < 30
    yield {"type": "text", "from": {"data": "starts"}, "encode": {"update": {
        "x": {"value": -12}, "y": place, "text": {"signal": "'attempt ' + datum.attempt"}, "align": {"value": "right"},
        "baseline": {"value": "middle"}, "fontSize": {"value": 11 if small else 12.5},
        "fill": {"value": c("ink")}}}}  # fmt: skip
    for extent, fill in (("kept", c("kept2")), ("lost", hatch("h-lost"))):
        begin = "datum.step" if extent == "kept" else "max(datum.step, datum.kept)"
        end = "min(datum.kept, datum.reached)" if extent == "kept" else "datum.reached"
        yield {"type": "rect", "from": {"data": "starts"}, "encode": {"update": {
            "x": {"signal": f"scale('x', {begin})"}, "x2": {"signal": f"scale('x', max({end}, {begin}))"},
            "yc": place, "height": {"value": 8 if small else 14}, "fill": {"value": fill}, "cornerRadius": {"value": 3},
            "tooltip": {"field": "tip"}}}}  # fmt: skip
    yield {"type": "path", "from": {"data": "edges"}, "interactive": False, "encode": {"update": {
        "path": {"field": "path"}, "fill": {"value": None},
        "stroke": {"signal": f"datum.restart ? '{c('ink')}' : '{c('kept-edge')}'"},
        "strokeWidth": {"signal": "datum.restart ? 2 : 1.6"},
        "strokeDash": {"signal": "datum.restart ? [5, 3] : [1, 0]"}}}}  # fmt: skip
    kinds = "datum.kind"
    yield {"type": "symbol", "name": "nodes-drawn", "from": {"data": "nodes"}, "encode": {
        "update": {
            "x": {"scale": "x", "field": "step"}, "y": place, "tooltip": {"field": "tip"},
            "shape": {"signal": f"{kinds} == 'rejected' ? '{CROSS}'"
                                f" : {kinds} == 'chosen' ? 'diamond' : 'circle'"},
            "size": {"signal": f"({kinds} == 'chosen' ? 240 : {kinds} == 'rejected' ? 200 : 110) * "
                               f"{0.5 if small else 1}"},
            "fill": {"signal": f"{kinds} == 'rejected' ? '{c('kill')}' : {kinds} == 'abandoned' || datum.retired ? "
                               f"'{c('card')}' : '{c('kept-edge')}'"},
            "stroke": {"signal": f"{kinds} == 'rejected' ? '{c('card')}' : "
                                 f"{kinds} == 'abandoned' ? '{c('lost-edge')}' : "
                                 f"{kinds} == 'chosen' ? '{c('ink')}' : '{c('kept-edge')}'"},
            "strokeDash": {"signal": f"{kinds} == 'abandoned' ? [2, 2] : [1, 0]"}, "strokeWidth": {"value": 1.8}},
        "hover": {"stroke": {"value": c("redone-edge")}}}}  # fmt: skip
    if not small:
        yield {"type": "text", "from": {"data": "nodes"}, "interactive": False, "encode": {"update": {
            "x": {"scale": "x", "field": "step"}, "y": {"signal": f"{place['signal']} + 22"},
            "align": {"value": "center"},
            "text": {"field": "label"}, "fontSize": {"value": 11}, "fontWeight": {"signal": "datum.bold ? 600 : 400"},
            "fill": {"signal": f"{kinds} == 'rejected' ? '{c('kill')}' : '{c('ink')}'"}}}}  # fmt: skip


def _start(shown: Lineage, number: int) -> Spec:
    start = shown.starts[number]
    later = [other.step for other in shown.starts[number + 1 :] if other.chose]
    kept = min([start.reached, *later])
    what = "started from nothing" if start.parent is None else f"started from {start.parent}"
    return {"attempt": start.attempt, "step": start.step, "reached": start.reached, "kept": kept,
            "tip": {"title": f"attempt {start.attempt}", "": what if start.chose else "died before it chose",
                    "trained": f"steps {start.step + 1} to {start.reached}" if start.reached > start.step
                    else "nothing",
                    "lost": f"{max(0, start.reached - max(kept, start.step))} steps"}}  # fmt: skip


def _node(node: Node) -> Spec:
    kind = "rejected" if node.rejected_by else "chosen" if node.chosen_by else node.standing.value
    tip = {"title": node.name, "step": f"{node.step}" + (f", microbatch {node.microbatch}" if node.microbatch else ""),
           "standing": {Standing.LINEAGE: "in the lineage",
                        Standing.ABANDONED: "abandoned"}[node.standing]}  # fmt: skip
    if node.chosen_by:
        tip["chosen by"] = ", ".join(f"attempt {number}" for number in node.chosen_by)
    if node.rejected_by:
        tip["rejected by"] = "; ".join(f"attempt {number}: {why}" for number, why in node.rejected_by)
    if node.retired:
        tip["retired"] = "its shards were removed, its ledger stays"
    if node.damage:
        tip["damage now"] = node.damage
    words = {"rejected": "rejected", "chosen": "chosen"}.get(kind, "")
    return {"attempt": node.attempt, "step": node.step + node.microbatch / 1000, "kind": kind, "retired": node.retired,
            "label": f"{node.step}" + (f" {words}" if words else ""), "bold": bool(words), "tip": tip}  # fmt: skip


def _edges(shown: Lineage) -> Iterator[Spec]:
    """Restarts go from the chosen checkpoint down to where the attempt begins; what it saved follows on its own row."""
    nodes = {node.name: node for node in shown.nodes}
    for start in shown.starts:
        parent = None if start.parent is None else nodes.get(start.parent)
        if parent is not None:
            yield {
                "from": parent.step,
                "parent": parent.attempt,
                "to": start.step,
                "attempt": start.attempt,
                "restart": True,
            }
    begins = {start.attempt: start.step for start in shown.starts}
    for edge in shown.edges:
        child = nodes[edge.child]
        before = nodes.get(edge.parent) if edge.parent is not None and not edge.restart else None
        begin = before.step if before is not None else begins.get(child.attempt, 0)
        yield {"from": begin, "parent": child.attempt, "to": child.step, "attempt": child.attempt, "restart": False}
