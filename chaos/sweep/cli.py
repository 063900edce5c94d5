"""The commands `killpoint sweep` and `killpoint soak`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chaos.shell import EXIT_UNJUDGED, JsonOption, QuietOption, errors_reported, print_json

if TYPE_CHECKING:
    from chaos.sweep.command import Watch

_EXIT = {"valid": 0, "invalid": 1}


class Kind(StrEnum):
    """What is done at each passage."""

    SIGKILL = "sigkill"
    SIGTERM = "sigterm"


def command(
    experiment: Annotated[
        Path | None, typer.Argument(metavar="[EXPERIMENT]", help="experiment file; without it `tiny` in 9 steps")
    ] = None,
    point: Annotated[
        list[str] | None, typer.Option(metavar="POINT", help="only kills at this point; repeatable")
    ] = None,
    rank: Annotated[list[int] | None, typer.Option(min=0, help="only kills of this rank; repeatable")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="so many trials, drawn with the seed")] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="two kills a trial: in training and in the recovery; 100 unless --sample")
    ] = False,
    kind: Annotated[
        Kind, typer.Option(help="sigterm: not a kill, but a notice to a rank at each of its passages in training")
    ] = Kind.SIGKILL,
    seed: Annotated[int, typer.Option(min=0, help="of the drawing")] = 0,
    deadline_s: Annotated[float, typer.Option(min=1.0, help="a trial that takes longer is `unfinished`")] = 60.0,
    output: Annotated[
        Path | None, typer.Option(help="folder of the sweep; one that was interrupted goes on")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Kill at every passage of every kill point, one trial each, and audit each recovery."""
    with errors_reported():
        from chaos.experiment import load_experiment, packaged_experiment
        from chaos.sweep.command import Choice, sweep

        found = packaged_experiment("sweep.yaml") if experiment is None else load_experiment(experiment)
        folder = output or Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-sweep"
        if pairs and kind is not Kind.SIGKILL:
            raise typer.BadParameter("pairs are of kills: leave --kind out", param_hint="--kind")
        choice = Choice(tuple(point or ()), tuple(rank or ()), sample, pairs, seed, kind.value)
        with _watch(quiet) as watch:
            swept = sweep(found, folder.resolve(), choice, deadline_s, watch)
        if as_json:
            print_json(swept.summary.to_json())
        else:
            from chaos.report import print_results
            from chaos.sweep.report import render

            print_results(render(swept.trials, swept.results, swept.summary))
        raise typer.Exit(_EXIT.get(swept.summary.verdict, EXIT_UNJUDGED))


def soak_command(
    experiment: Annotated[
        Path | None, typer.Argument(metavar="[EXPERIMENT]", help="experiment file; without it `tiny` in 300 steps")
    ] = None,
    kills: Annotated[int, typer.Option(min=1, help="how many processes are killed")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="of times and victims")] = 0,
    deadline_s: Annotated[float, typer.Option(min=1.0, help="a run that takes longer is `unfinished`")] = 120.0,
    output: Annotated[
        Path | None, typer.Option(help="folder of the soak; one that was interrupted goes on")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Kill ranks and committers at random times, run after run, and look what is left behind."""
    with errors_reported():
        from chaos.experiment import load_experiment, packaged_experiment
        from chaos.sweep.soak import soak

        found = packaged_experiment("soak.yaml") if experiment is None else load_experiment(experiment)
        folder = output or Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-soak"
        with _watch(quiet) as watch:
            soaked = soak(found, folder.resolve(), kills, seed, deadline_s, watch)
        if as_json:
            print_json(soaked.to_json())
        else:
            from chaos.report import print_results
            from chaos.sweep.report import render_soak

            print_results(render_soak(soaked))
        raise typer.Exit(_EXIT.get(soaked.verdict, EXIT_UNJUDGED))


@contextmanager
def _watch(quiet: bool) -> Iterator[Watch]:
    from chaos.sweep.command import Watch

    if quiet:
        yield Watch()
        return
    from chaos.sweep.progress import SweepProgress

    with SweepProgress() as progress:
        yield Watch(progress.say, progress.begin, progress.trial, progress.result)
