"""The page itself: one HTML file that holds all it needs, asks nothing of a network, and runs two scripts of its own.

Whatever comes from a run is text: the template escapes it, data for the scripts is base64, and the content security
policy names the two scripts by their digests, so that nothing else could run if it got in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from chaos.errors import ReportError
from chaos.page import vega
from chaos.page.figures.theme import Spec, patterns, style_sheet
from chaos.page.pages import IntervalsPage, RunPage, SweepPage
from chaos.page.payload import deflated, pack
from chaos.page.read import Shown
from chaos.page.sections import Figure, Part, Table, intervals_parts, run_parts, sweep_parts
from chaos.printable import printable
from trainers.spec import VERSION

LIMIT_BYTES = 2_000_000
_TALL = 700  # figures from this height on scroll in a box of their own
_SHORT = {"timeline": "Timeline", "ledger": "Ledger", "lineage": "Lineage", "recoveries": "Recovery", "input": "Input",
          "unseen": "Not seen"}  # fmt: skip


@dataclass(frozen=True)
class _Drawn:
    """A figure in its place. packed: of the timeline, its data."""

    id: str
    spec: Spec
    caption: str
    tall: bool
    packed: str = ""
    note: str = ""


def parts_of(shown: Shown) -> tuple[Part, ...]:
    """The page's parts, whatever it is of."""
    match shown:
        case RunPage():
            return tuple(run_parts(shown))
        case SweepPage():
            return tuple(sweep_parts(shown))
        case IntervalsPage():
            return tuple(intervals_parts(shown))


def document(pages: Sequence[Shown]) -> str:
    """The page as text, below LIMIT_BYTES in UTF-8. Raises ReportError if it cannot be."""
    library, program = vega.library(), _static("page.js")
    parts = [parts_of(shown) for shown in pages]
    bare = _rendered(pages, parts, library, program, 0)
    timelines = sum(figure.timeline is not None for each in parts for part in each for figure in part.figures)
    room = LIMIT_BYTES - len(bare.encode()) - 4096
    if room < 0:
        raise ReportError(
            f"the page would have {len(bare.encode()):,} bytes, more than {LIMIT_BYTES:,}: give fewer RUNs"
        )
    text = _rendered(pages, parts, library, program, room // timelines) if timelines else bare
    size = len(text.encode())
    if size > LIMIT_BYTES:
        raise ReportError(f"the page would have {size:,} bytes, more than {LIMIT_BYTES:,}: give fewer RUNs")
    return text


def _rendered(pages: Sequence[Shown], parts: Sequence[Sequence[Part]], library: str, program: str, room: int) -> str:
    specs: dict[str, Spec] = {}
    shown = [_page(page, each, f"r{number}", specs, room)
             for number, (page, each) in enumerate(zip(pages, parts, strict=True))]  # fmt: skip
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    template = environment.from_string(_template())
    policy = (f"default-src 'none'; script-src {vega.source_of(library)} {vega.source_of(program)}; "
              "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'")  # fmt: skip
    title = " · ".join(str(page.title) for page in pages)
    return template.render(
        policy=policy, title=f"{title} – Killpoint", version=VERSION, pages=shown, specs=deflated(specs),
        styles=Markup(style_sheet() + _static("page.css")), patterns=Markup(patterns()),
        library=Markup(library), program=Markup(program),
    )  # fmt: skip


def _shown(value: object) -> object:
    """Text from disk without control characters; what is markup is our own."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _template() -> str:
    """With its macros in front, where they have to be."""
    body, mark, macros = _static("page.html").partition("{%- macro")
    return mark + macros + body


def _page(shown: Shown, parts: Sequence[Part], anchor: str, specs: dict[str, Spec], room: int) -> dict[str, Any]:
    run = shown if isinstance(shown, RunPage) else None
    return {
        **{name: getattr(shown, name) for name in ("title", "folder", "verdict", "headline", "sentences")},
        "facts": shown.facts, "numbers": shown.numbers, "anchor": anchor,
        "reproduce": shown.reproduce,
        "invariants": run.invariants if run else (), "struck": run.struck if run else (),
        "struck_table": _struck(run) if run else None,
        "parts": [_part(part, f"{anchor}-{part.name}", specs, room) for part in parts],
    }  # fmt: skip


def _struck(shown: RunPage) -> Table:
    rows = tuple((str(s.attempt), s.who, s.where, s.kind, "struck" if s.fired else "did not fire",
                  s.observed or "nothing")
                 for s in shown.struck)  # fmt: skip
    return Table(("attempt", "who", "where", "kind", "receipt", "observed"), rows, frozenset({0}))


def _part(part: Part, anchor: str, specs: dict[str, Spec], room: int) -> dict[str, Any]:
    return {
        "name": part.name, "title": part.title, "short": _SHORT.get(part.name, part.title), "lead": part.lead,
        "key": part.key, "alarms": part.alarms, "calm": part.calm, "numbers": part.numbers, "table": part.table,
        "table_title": part.table_title, "bullets": part.bullets,
        "figures": list(_figures(part.figures, anchor, specs, room)),
    }  # fmt: skip


def _figures(figures: Sequence[Figure], anchor: str, specs: dict[str, Spec], room: int) -> Iterator[_Drawn]:
    for figure in figures:
        name = f"{anchor}-{figure.name}"
        specs[name] = figure.spec
        height = figure.spec["height"]
        tall = isinstance(height, int) and height > _TALL
        if figure.timeline is None:
            yield _Drawn(name, figure.spec, figure.caption, tall)
        else:
            packed = pack(figure.timeline, room)
            yield _Drawn(name, figure.spec, figure.caption, tall, packed.text or " ", packed.note)


def _static(name: str) -> str:
    return (files("chaos.page") / "static" / name).read_text("utf-8")
