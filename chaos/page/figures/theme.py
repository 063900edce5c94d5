"""Colours, hatchings and type of all figures and of the page.

The hues are those of Okabe and Ito, told apart by the colour-blind too; besides, whatever colour tells has a hatching,
a shape or a word. Figures name a colour as a CSS variable: in the page the style sheet gives it its value, light or
dark, and for a file on its own `resolved` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

Spec: TypeAlias = dict[str, Any]

PALETTE: dict[str, tuple[str, str]] = {  # name: light, dark
    "paper": ("#faf8f4", "#13161b"), "card": ("#ffffff", "#1b2027"), "sunk": ("#f2efe8", "#0f1216"),
    "ink": ("#1c2330", "#e8ecf2"), "muted": ("#5a6372", "#a3adbb"), "rule": ("#e3dfd6", "#313944"),
    "edge": ("#c9c4b8", "#475160"),
    "kept": ("#8db4d8", "#3d6891"), "kept2": ("#b9d2e8", "#345877"), "kept-edge": ("#3b6a98", "#93bfe6"),
    "lost": ("#dedad1", "#353c46"), "lost-edge": ("#6f7682", "#98a2b0"),
    "redone": ("#fbd9a0", "#5c4012"), "redone-edge": ("#a35a00", "#ffb545"),
    "kill": ("#bf2f0a", "#ff7d57"), "on-kill": ("#ffffff", "#1b0a04"),
    "save": ("#0b7d5c", "#4cc9a0"), "save-bg": ("#a9dccb", "#1d5645"),
    "wrong": ("#8c3f78", "#e5a3d2"), "wrong-bg": ("#ecd0e3", "#552748"),
    "valid": ("#0b6e4f", "#56d3a6"), "invalid": ("#b3270a", "#ff8a66"), "unknown": ("#7a5600", "#f2c14e"),
    "p1": ("#e69f00", "#e8a820"), "p2": ("#56b4e9", "#4aa3d6"), "p3": ("#009e73", "#19b088"),
    "p4": ("#cc79a7", "#d48bb4"), "p5": ("#0072b2", "#4d9fd6"), "p6": ("#d55e00", "#e97a2a"),
    "p7": ("#8a8f98", "#8a939f"), "p8": ("#b8a200", "#d6c22e"), "p9": ("#5d4a8a", "#a08fd0"),
}  # fmt: skip
PARTS = tuple(f"p{number}" for number in range(1, 10))
CROSS = "M-.7,-1L0,-.3L.7,-1L1,-.7L.3,0L1,.7L.7,1L0,.3L-.7,1L-1,.7L-.3,0L-1,-.7Z"  # a symbol's shape
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"


def c(name: str) -> str:
    """The colour, by name."""
    assert name in PALETTE, name
    return f"var(--{name})"


def hatch(name: str) -> str:
    """A fill with a hatching, by name: one of `patterns`."""
    return f"url(#{name})"


def _pattern(
    name: str, ground: str, line: str, size: float, angle: float, width: float, *, crossed: bool = False
) -> str:
    lines = f'<rect width="{width}" height="{size}" fill="{c(line)}"/>'
    lines += f'<rect width="{size}" height="{width}" fill="{c(line)}"/>' if crossed else ""
    return (
        f'<pattern id="{name}" width="{size}" height="{size}" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate({angle})"><rect width="{size}" height="{size}" fill="{c(ground)}"/>{lines}</pattern>'
    )


def _dots(name: str, ground: str, dot: str, size: float, radius: float) -> str:
    return (
        f'<pattern id="{name}" width="{size}" height="{size}" patternUnits="userSpaceOnUse">'
        f'<rect width="{size}" height="{size}" fill="{c(ground)}"/>'
        f'<circle cx="{size / 2}" cy="{size / 2}" r="{radius}" fill="{c(dot)}"/></pattern>'
    )


def patterns() -> str:
    """SVG definitions of every hatching."""
    return "".join((
        _pattern("h-redone", "redone", "redone-edge", 6, 45, 1.8),
        _dots("h-lost", "lost", "lost-edge", 5, 0.9),
        _pattern("h-repeated", "kill", "on-kill", 6, 45, 1.1, crossed=True),
        _pattern("h-wrong", "wrong-bg", "wrong", 5, 135, 2),
        _pattern("h-unknown", "lost", "lost-edge", 7, 135, 1),
        _pattern("h-p1", "p1", "ink", 7, 45, 1), _dots("h-p2", "p2", "ink", 6, 0.9),
        _pattern("h-p3", "p3", "card", 7, 135, 1.2), _pattern("h-p4", "p4", "ink", 8, 0, 1),
        _pattern("h-p5", "p5", "card", 7, 90, 1.2), _pattern("h-p6", "p6", "card", 8, 45, 1.1, crossed=True),
        _pattern("h-p7", "p7", "card", 6, 0, 1), _dots("h-p8", "p8", "card", 7, 1.6),
        _pattern("h-p9", "p9", "card", 8, 0, 1, crossed=True),
    ))  # fmt: skip


def part_fills(count: int) -> list[str]:
    """So many fills, each another hue and another hatching."""
    return [hatch(f"h-{PARTS[number % len(PARTS)]}") for number in range(count)]


def config() -> Spec:
    """Of every figure."""
    label = {"labelColor": c("muted"), "titleColor": c("muted"), "labelFontSize": 12, "titleFontSize": 12,
             "titleFontWeight": "normal"}  # fmt: skip
    return {
        "font": FONT, "background": None, "view": {"stroke": None},
        "axis": {**label, "gridColor": c("rule"), "domainColor": c("edge"), "tickColor": c("edge"), "titlePadding": 8,
                 "labelOverlap": "greedy", "labelSeparation": 5},
        "legend": {**label, "labelColor": c("ink"), "symbolSize": 160, "symbolStrokeWidth": 1, "orient": "top"},
        "text": {"fill": c("ink")}, "aria": False,
    }  # fmt: skip


def lite(description: str, height: int, layers: Sequence[Spec], **more: Any) -> Spec:
    """A Vega-Lite figure as wide as its place."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json", "description": description, "width": 860,
        "height": height, "autosize": {"type": "fit-x", "contains": "padding"}, "config": config(),
        "layer": list(layers),
        **more,
    }  # fmt: skip


def vega(description: str, height: int, **more: Any) -> Spec:
    """A Vega figure as wide as its place, with room for names on the left and for an axis below."""
    return {
        "$schema": "https://vega.github.io/schema/vega/v6.json", "description": description, "width": 860,
        "height": height,
        "padding": {"left": 84, "right": 16, "top": 6, "bottom": 46}, "autosize": {"type": "none"}, "config": config(),
        **more,
    }  # fmt: skip


def style_sheet() -> str:
    """The colours as CSS variables: light, dark by the reader's system, and either by the page's own switch."""
    light, dark = ("".join(f"--{name}:{values[place]};" for name, values in PALETTE.items()) for place in (0, 1))
    return (
        f":root{{color-scheme:light;{light}}}"
        f'@media screen and (prefers-color-scheme:dark){{:root:not([data-theme="light"]){{color-scheme:dark;{dark}}}}}'
        f'@media screen{{:root[data-theme="dark"]{{color-scheme:dark;{dark}}}}}'
    )


def resolved(text: str) -> str:
    """With the light colours in place of the variables."""
    return re.sub(r"var\(--([a-z0-9-]+)\)", lambda found: PALETTE[found[1]][0], text)


def resolved_spec(spec: Spec) -> Spec:
    """`resolved`, of a specification."""
    result: Spec = json.loads(resolved(json.dumps(spec)))
    return result
