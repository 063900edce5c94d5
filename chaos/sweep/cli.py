"""The commands `killpoint sweep` and `killpoint soak`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chaos.shell import (
    EXIT_UNJUDGED,
    DeadlineOption,
    JobsOption,
    JsonOption,
    PointOption,
    QuietOption,
    errors_reported,
    interrupted_with,
    new_folder,
    print_json,
)

if TYPE_CHECKING:
    from chaos.experiment import Experiment
    from chaos.sweep.command import Swept, Watch
    from chaos.sweep.soak import Soaked

_EXIT = {"valid": 0, "invalid": 1}
OutputOption = Annotated[Path | None, typer.Option(help="folder of the results; what was interrupted there goes on")]


class Kind(StrEnum):
    """What is done at each passage."""

    SIGKILL = "sigkill"
    SIGTERM = "sigterm"


def command(
    experiment: Annotated[
        Path | None, typer.Argument(metavar="[EXPERIMENT]", help="experiment file; without it `tiny` in 9 steps")
    ] = None,
    point: PointOption = None,
    rank: Annotated[list[int] | None, typer.Option(min=0, help="only kills of this rank; repeatable")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="so many trials, drawn with the seed")] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="two kills a trial: in training and in the recovery; 100 unless --sample")
    ] = False,
    kind: Annotated[
        Kind, typer.Option(help="sigterm: not a kill, but a notice to a rank at each of its passages in training")
    ] = Kind.SIGKILL,
    seed: Annotated[int, typer.Option(min=0, help="of the drawing")] = 0,
    jobs: JobsOption = 1,
    deadline_s: DeadlineOption = 60.0,
    output: OutputOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Kill at every passage of every kill point, one trial each, and audit each recovery."""
    with errors_reported():
        from chaos.sweep.command import Choice, sweep
        from chaos.sweep.report import render

        if pairs and kind is not Kind.SIGKILL:
            raise typer.BadParameter("pairs are of kills: leave --kind out", param_hint="--kind")
        choice = Choice(tuple(point or ()), tuple(rank or ()), sample, pairs, seed, kind.value)
        found, folder = _experiment(experiment, "sweep"), new_folder(output, "sweep")
        with interrupted_with(_go_on(folder)), _watch(quiet) as watch:
            swept = sweep(found, folder, choice, deadline_s, watch, jobs)
        _finish(swept, swept.summary.verdict, render, as_json)


def soak_command(
    experiment: Annotated[
        Path | None, typer.Argument(metavar="[EXPERIMENT]", help="experiment file; without it `tiny` in 300 steps")
    ] = None,
    kills: Annotated[int, typer.Option(min=1, help="how many processes are killed")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="of times and victims")] = 0,
    deadline_s: DeadlineOption = 120.0,
    output: OutputOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Kill ranks and committers at random times, run after run, and look what is left behind."""
    with errors_reported():
        from chaos.sweep.report import render_soak
        from chaos.sweep.soak import soak

        found, folder = _experiment(experiment, "soak"), new_folder(output, "soak")
        with interrupted_with(_go_on(folder)), _watch(quiet) as watch:
            soaked = soak(found, folder, kills, seed, deadline_s, watch)
        _finish(soaked, soaked.verdict, render_soak, as_json)


def _go_on(folder: Path) -> str:
    return f"the same command goes on with: --output {shlex.quote(str(folder))}"


def _experiment(path: Path | None, packaged: str) -> Experiment:
    from chaos.experiment import load_experiment, packaged_experiment

    return packaged_experiment(f"{packaged}.yaml") if path is None else load_experiment(path)


def _finish(done: Swept | Soaked, verdict: str, render: Any, as_json: bool) -> None:
    """render: makes of what was done what people read."""
    if as_json:
        print_json(done.to_json())
    else:
        from chaos.report import print_results

        print_results(render(done))
    raise typer.Exit(_EXIT.get(verdict, EXIT_UNJUDGED))


@contextmanager
def _watch(quiet: bool) -> Iterator[Watch]:
    from chaos.sweep.command import Watch

    if quiet:
        yield Watch()
        return
    from chaos.sweep.progress import SweepProgress

    with SweepProgress() as progress:
        yield Watch(progress.say, progress.begin, progress.trial, progress.result)
