"""The gallery on the terminal: each bug with what the auditor said of it, then the counts."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from chaos.gallery.command import Gallery
from chaos.gallery.judge import Row
from chaos.printable import printable

_INDENT = (0, 0, 0, 4)


def render(gallery: Gallery) -> RenderableType:
    """Everything, the counts last."""
    told = gallery.to_json()
    counts = " · ".join(f"{what} {told[what]}" for what in ("planted", "caught", "named"))
    lines = [f"of {told['asked']}: {counts} · controls left alone {told['controls_valid']}"]
    if gallery.missing:
        lines.append(f"not planted: {', '.join(map(str, gallery.missing))}")
    return Group(*(each for row in gallery.rows for each in _row(row)), Text("\n".join(lines)))


def _row(row: Row) -> Iterator[RenderableType]:
    yield Text(f"{row.key:<12} {mark(row)}  {printable(row.title)}" + (f" ({row.seen_in})" if row.seen_in else ""))
    yield Padding(Text(f"auditor: {printable(row.witness)}"), _INDENT)
    unseen = printable(row.unseen) or "nothing is said of it"
    yield Padding(Text(f"latent: {row.control}; {unseen}", style="dim"), _INDENT)
    for why in row.why:
        yield Padding(Text(f"not as it must be: {printable(why)}"), _INDENT)


def mark(row: Row) -> str:
    """`caught, named` and what is not so."""
    words = ["caught" if row.caught else "NOT CAUGHT", "named" if row.named else "NOT NAMED"]
    return ", ".join([*words, *([] if row.control == "valid" and row.control_told else ["CONTROL"])])
