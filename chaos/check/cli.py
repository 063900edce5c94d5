"""The command `killpoint check`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    from chaos.check.command import Checked, Watch

_EXIT = {"valid": 0, "invalid": 1}


def command(
    experiment: Annotated[
        Path, typer.Argument(metavar="EXPERIMENT", help="experiment file; its own faults are not used")
    ],
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="60s, 5m, 1h: no trial begins that would exceed it, and all of it is used; "
                     "without it every point once and no more"),
    ] = None,
    point: PointOption = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="stop at the first trial that fails")] = False,
    seed: Annotated[int, typer.Option(min=0, help="of the drawing of pairs")] = 0,
    jobs: JobsOption = 1,
    deadline_s: DeadlineOption = 60.0,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="write JUnit XML, one test case a trial")] = None,
    output: Annotated[Path | None, typer.Option(help="new folder; otherwise one below runs/")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Kill at as many points as a time budget allows, the most informative first: a gate before a merge.

    A budget in which not every point could be struck once gives status 2, not 0.
    """
    with errors_reported(), _junit_on_error(junit, experiment):
        from chaos.check.command import Limits, check
        from chaos.check.pace import parse_budget
        from chaos.experiment import load_experiment

        budget_s = None if budget is None else parse_budget(budget)
        limits = Limits(budget_s, tuple(point or ()), fail_fast, seed, deadline_s, jobs)
        found = load_experiment(experiment)
        folder = new_folder(output, "check")
        hint = f"a check does not go on; what was done is shown by: killpoint report {shlex.quote(str(folder))}"
        with interrupted_with(hint), _watch(limits.budget_s, quiet) as watch:
            checked = check(found, folder, limits, watch)
        if junit is not None:
            from chaos.check.junit import write_junit

            write_junit(junit, experiment.stem, checked)
    _finish(checked, as_json)


def _finish(checked: Checked, as_json: bool) -> None:
    if as_json:
        print_json(checked.to_json())
    else:
        from chaos.check.report import render
        from chaos.report import print_results

        print_results(render(checked))
    raise typer.Exit(_EXIT.get(checked.verdict, EXIT_UNJUDGED))


@contextmanager
def _junit_on_error(path: Path | None, experiment: Path) -> Iterator[None]:
    """A server that reads the file must not take a check that could not be made for one that found nothing."""
    try:
        yield
    except BaseException as error:
        if path is not None:
            from chaos.check.junit import write_error

            write_error(path, experiment.stem, str(error) or type(error).__name__)
        raise


@contextmanager
def _watch(budget_s: float | None, quiet: bool) -> Iterator[Watch]:
    from chaos.check.command import Watch

    if quiet:
        yield Watch()
        return
    from chaos.check.progress import CheckProgress

    with CheckProgress(budget_s) as progress:
        yield Watch(progress.say, progress.trial, progress.result)
