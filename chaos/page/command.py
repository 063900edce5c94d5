"""`killpoint report`: reads, draws and writes. The only module of the package that creates files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.errors import ReportError
from chaos.page import vega
from chaos.page.document import document, parts_of
from chaos.page.figures import timeline
from chaos.page.pages import IntervalsPage, RunPage, SweepPage
from chaos.page.read import Shown, read_folder
from chaos.page.sections import Figure
from chaos.page.tables import prefix, write_tables

REPORT = "report.html"
_KINDS: dict[type, str] = {RunPage: "run", SweepPage: "sweep", IntervalsPage: "intervals"}
_GENERATOR, _HEAD_BYTES = b'<meta name="generator" content="killpoint', 8192


@dataclass(frozen=True)
class Written:
    """What there is now. pages: what it is of."""

    output: Path
    size_bytes: int
    pages: tuple[Shown, ...]
    plots: tuple[Path, ...]
    data: tuple[Path, ...]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "output": str(self.output), "bytes": self.size_bytes, "plots": list(map(str, self.plots)),
            "data": list(map(str, self.data)),
            "of": [{"folder": page.folder, "kind": _KINDS[type(page)], "title": page.title,
                    "verdict": page.verdict, "says": list(page.sentences),
                    "numbers": [{"label": each.label, "value": each.value, "unit": each.unit, "of": each.observations,
                                 "note": each.note} for each in page.numbers]} for page in self.pages],
        }  # fmt: skip


def report(
    folders: Sequence[Path],
    output: Path | None,
    plots: Path | None,
    data: Path | None,
    say: Callable[[str], None] = lambda text: None,
) -> Written:
    """Writes the page, and pictures and tables where they are asked for; an older page of that name is replaced.

    Raises NotARun, ReportError, OSError.
    """
    pages = tuple(read_folder(folder, say) for folder in folders)
    target = output or (folders[0] / REPORT if len(folders) == 1 else Path(REPORT))
    if target.is_dir():
        raise ReportError(f"{target}: is a folder: give --output the name of a file")
    _require_ours(target)
    say("drawing")
    text = document(pages)
    _replace(target, text.encode())
    pictures = () if plots is None else tuple(_plots(pages, plots, say))
    written = () if data is None else tuple(write_tables(pages, data))
    return Written(target, len(text.encode()), pages, pictures, written)


def _require_ours(target: Path) -> None:
    """Only an older page is replaced."""
    if target.is_file():
        with target.open("rb") as file:
            if _GENERATOR not in file.read(_HEAD_BYTES):
                raise ReportError(f"{target}: is there and is no page of `killpoint report`: give another --output")


def _plots(pages: Sequence[Shown], folder: Path, say: Callable[[str], None]) -> Sequence[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, page in enumerate(pages):
        for part in parts_of(page):
            for figure in part.figures:
                say(f"drawing {figure.name}")
                stem = folder / f"{prefix(page, number, len(pages))}{figure.name}"
                svg = vega.draw_svg(_whole(figure))
                written += [stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")]
                written[-2].write_text(svg, "utf-8")
                written[-1].write_bytes(vega.draw_png(svg))
    return written


def _whole(figure: Figure) -> dict[str, Any]:
    """The timeline is empty in the page, which fills it itself; a file has all of it."""
    return figure.spec if figure.timeline is None else timeline.figure(figure.timeline, filled=True)


def _replace(target: Path, data: bytes) -> None:
    """Whole or not at all: a reader of the old page is not shown half of the new one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
