"""`killpoint lab momentum`: two updates by hand, and what is lost without the momentum buffer (reference C)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chaos.shell import JsonOption, errors_reported, print_json


def command(
    output: Annotated[Path | None, typer.Option(help="new folder for results; otherwise one below runs/")] = None,
    as_json: JsonOption = False,
) -> None:
    """One parameter, two updates: uninterrupted, resumed after the first, and resumed without the momentum buffer.

    Exit status: 0 resumed equals uninterrupted and the missing buffer shows, 1 not so, 2 could not be completed.
    """
    with errors_reported():
        from chaos.labs.momentum_task import prove, render
        from chaos.report import print_results

        report, folder = prove(output)
        if as_json:
            print_json(report)
        else:
            print_results(render(report, folder))
        raise typer.Exit(0 if report["all_checks_passed"] else 1)
