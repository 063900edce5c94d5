"""The command `killpoint intervals`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from chaos.shell import EXIT_UNJUDGED, JsonOption, QuietOption, complain, errors_reported, print_json

if TYPE_CHECKING:
    from chaos.cost.study import Watch
    from chaos.experiment import Experiment

_EXIT = {"valid": 0, "invalid": 1}
_RESAMPLES = 2000


def command(
    experiment: Annotated[
        Path | None, typer.Argument(metavar="[EXPERIMENT]", help="experiment file; without it the default one")
    ] = None,
    every: Annotated[str, typer.Option(metavar="STEPS,…", help="the intervals: steps between checkpoints")] = (
        "1,2,5,10,20,50"
    ),
    kills: Annotated[int, typer.Option(min=1, help="for each interval")] = 30,
    mtbf_s: Annotated[
        float, typer.Option(min=1.0, help="mean time between failures; the default is that of Llama 3's training")
    ] = 10_800.0,
    max_redo_s: Annotated[
        float | None, typer.Option(min=0.0, help="lose no more work than this to one failure, in seconds")
    ] = None,
    max_redo_steps: Annotated[int | None, typer.Option(min=0, help="the same, in steps")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the kills and of the resampling")] = 0,
    spread: Annotated[
        str, typer.Option(metavar="even|exponential", help="kills evenly over the interval, or at random times")
    ] = "even",
    resamples: Annotated[int, typer.Option(min=100, help="of the bootstrap")] = _RESAMPLES,
    output: Annotated[
        Path | None, typer.Option(help="folder of the result; one that was interrupted goes on")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure what each checkpoint interval costs, in saves and in work lost to kills, and recommend one."""
    with errors_reported():
        from dataclasses import asdict

        from chaos.cost.command import intervals
        from chaos.cost.files import RESULT
        from chaos.cost.values import Asked
        from chaos.experiment import load_experiment

        if not math.isfinite(mtbf_s):
            raise typer.BadParameter("needs a number of seconds", param_hint="--mtbf-s")
        asked = Asked(_numbers(every), kills, _spread(spread), seed, mtbf_s, max_redo_s, max_redo_steps, resamples)
        found = load_experiment(experiment)
        folder = (output or _default_output(found)).resolve()
        with _watch(quiet) as watch:
            result = intervals(found, folder, asked, watch)
        if as_json:
            print_json(asdict(result))
        else:
            from chaos.cost.report import render
            from chaos.report import print_results

            print_results(render(result, folder / RESULT))
        if not result.complete:
            complain(f"interrupted; the same command goes on with: --output {folder}")
        raise typer.Exit(_EXIT.get(result.verdict, EXIT_UNJUDGED) if result.complete else EXIT_UNJUDGED)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        what = f"{text!r}: needs whole numbers of steps with commas between them, such as 1,5,20"
        raise typer.BadParameter(what, param_hint="--every") from None


def _spread(text: str) -> Literal["even", "exponential"]:
    if text == "even":
        return "even"
    if text == "exponential":
        return "exponential"
    raise typer.BadParameter(f"{text!r}: is even or exponential", param_hint="--spread")


def _default_output(experiment: Experiment) -> Path:
    from chaos.runfolder import short_name

    return Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{short_name(experiment.run.workload)}-intervals"


@contextmanager
def _watch(quiet: bool) -> Iterator[Watch]:
    from chaos.cost.study import Watch

    if quiet:
        yield Watch()
        return
    from chaos.cost.progress import IntervalsProgress

    with IntervalsProgress() as progress:
        yield progress.watch
