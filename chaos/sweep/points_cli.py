"""The command `killpoint points`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chaos.shell import JsonOption, QuietOption, errors_reported, new_folder, print_json

if TYPE_CHECKING:
    from chaos.sweep.outline import Outline


def command(
    experiment: Annotated[
        Path | None,
        typer.Argument(metavar="[EXPERIMENT]", help="experiment file to record; without it `tiny` in 9 steps"),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="run the experiment twice, undisturbed and killed once, and count passages")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="new folder for the two runs; otherwise one below runs/")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List the kill points with what is in flight at each, or count how often a run and its recovery pass each."""
    with errors_reported():
        from chaos.report import print_results
        from chaos.sweep.listing import listing, render

        outline = None
        if record:
            outline = _recorded(experiment, output, quiet)
        elif experiment is not None or output is not None:
            what = "is needed with an EXPERIMENT or --output: they say what to run"
            raise typer.BadParameter(what, param_hint="--record")
        rows = listing(outline)
        if as_json:
            print_json([row.to_json() for row in rows])
        else:
            print_results(render(rows, recorded=record))


def _recorded(path: Path | None, output: Path | None, quiet: bool) -> Outline:
    from chaos.errors import OutputExists
    from chaos.experiment import load_experiment, packaged_experiment
    from chaos.interrupts import Interrupts
    from chaos.life import Place
    from chaos.sweep.progress import SweepProgress
    from chaos.sweep.record import record

    experiment = packaged_experiment("sweep.yaml") if path is None else load_experiment(path)
    folder = new_folder(output, "points")
    if folder.exists():
        raise OutputExists(f"{folder}: exists already and was left as it is; choose another --output")
    with Interrupts() as interrupts, Place(interrupts, reuse=True, spares=1) as place:
        if quiet:
            return record(experiment, folder, place, lambda text: None)
        with SweepProgress() as progress:
            return record(experiment, folder, place, progress.say)
