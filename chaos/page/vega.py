"""Vega as it comes with vl-convert: its JavaScript for the page, and its drawing of SVG and PNG without a browser.

vl-convert carries the library inside the package and fetches nothing. A figure is drawn as SVG first, since only there
a hatching can be named; its definitions are added, and the PNG is made of that.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache

import vl_convert

from chaos.page.figures.theme import FONT, PALETTE, Spec, patterns, resolved, resolved_spec

_PNG_SCALE = 2.0


@cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; takes a second or two, once a process."""
    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    assert "</script" not in text.lower()
    return text


def source_of(script: str) -> str:
    """How a content security policy names this very script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def draw_svg(spec: Spec) -> str:
    """In the light colours, on white."""
    plain = resolved_spec(spec)
    plain["background"] = PALETTE["card"][0]
    draw = vl_convert.vegalite_to_svg if "vega-lite" in spec["$schema"] else vl_convert.vega_to_svg
    svg = str(draw(plain)).replace(FONT.replace("'", "&#39;"), "sans-serif")
    head, mark, rest = svg.partition(">")
    return f"{head}{mark}<defs>{resolved(patterns())}</defs>{rest}"


def draw_png(svg: str) -> bytes:
    """Of an SVG drawn here, in twice its size."""
    data: bytes = vl_convert.svg_to_png(svg, scale=_PNG_SCALE)
    return data
