"""The command `killpoint report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chaos.shell import JsonOption, QuietOption, errors_reported, print_json


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs, of sweeps and of `intervals`")],
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="the page; otherwise report.html in RUN, of several in this folder"),
    ] = None,
    plots: Annotated[Path | None, typer.Option(metavar="DIR", help="its figures as SVG and PNG besides")] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="its data as Parquet besides")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write one HTML page that shows it all: verdict, timeline, ledger, lineage, costs. It needs no network."""
    with errors_reported():
        from chaos.page.command import report
        from chaos.progress import status

        with status(quiet) as say:
            written = report(runs, output, plots, data, say)
        if as_json:
            print_json(written.to_json())
        else:
            from chaos.page.terminal import render
            from chaos.report import print_results

            print_results(render(written))
