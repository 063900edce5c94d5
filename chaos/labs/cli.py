"""`killpoint lab …`: one command a lab, each defined in its lab's own module and only named here.

Exit status 0 passed, 1 a comparison failed, 2 could not be completed.
"""

from __future__ import annotations

import typer

from chaos.labs.cursor import cursor
from chaos.labs.pipeline import pipeline

app = typer.Typer(
    name="lab",
    no_args_is_help=True,
    help="Small exercises with published figures: what a checkpoint must hold, and what an input pipeline hides.",
)


@app.callback()
def _labs() -> None:
    """Keeps `killpoint lab NAME` a group of commands however few there are."""


app.command("pipeline")(pipeline)
app.command("cursor")(cursor)
