"""`killpoint lab …`: one command a lab, each defined in its lab's own module and only named here.

Exit status 0 passed, 1 a comparison failed, 2 could not be completed.
"""

from __future__ import annotations

import typer

from chaos.labs import cursor, linreg, momentum, pipeline, resume

app = typer.Typer(
    name="lab",
    no_args_is_help=True,
    help="Small exercises with published figures: what a checkpoint must hold, and what an input pipeline hides.",
)
app.command("linreg")(linreg.command)
app.command("momentum")(momentum.command)
app.command("resume")(resume.command)
app.command("pipeline")(pipeline.command)
app.command("cursor")(cursor.command)


@app.callback()
def _labs() -> None:
    """Keeps `killpoint lab NAME` a group of commands however few there are."""
