"""The page's story on the terminal: the verdict in words and the figures with their observations."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from chaos.page.command import Written
from chaos.page.read import Shown
from chaos.printable import printable
from chaos.report import STYLES, Records


def render(written: Written) -> RenderableType:
    """Every run, then what was written."""
    lines = [line for page in written.pages for line in _story(page)]
    files = [Text(f"page: {written.output} ({written.size_bytes / 1e6:.2f} MB)", no_wrap=True, overflow="ignore")]
    for name, paths in (("plots", written.plots), ("data", written.data)):
        if paths:
            files.append(Text(f"{name}: {len(paths)} files in {paths[0].parent}", no_wrap=True, overflow="ignore"))
    return Group(*lines, *files)


def _story(page: Shown) -> Iterator[RenderableType]:
    title, headline = printable(page.title), printable(page.headline)
    yield Text.assemble((page.verdict, STYLES.get(page.verdict, "")), f"  {title}: {headline}")
    yield from (Text(f"  {printable(sentence)}") for sentence in page.sentences)
    yield Text()
    rows = [(each.label, f"{each.value} {each.unit}".strip(), each.observations, each.note) for each in page.numbers]
    yield Records("Numbers", ("what", "value", "of", "note"), rows, numbers=("value",))
