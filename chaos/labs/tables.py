"""Tables of the labs' reports."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

STYLES: Mapping[str, str] = {"valid": "green", "invalid": "bold red"}


def table(title: str, *columns: str) -> Table:
    """An empty table; long cells are folded."""
    made = Table(title=title or None, title_justify="left", title_style="bold", header_style="dim")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made
