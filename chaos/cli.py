"""The command line: `killpoint run | audit | diff | export | points | sweep | soak | check | intervals | …`.

Exit status 0 valid, 1 invalid, 2 could not judge; more in each `--help`. Results go to standard output, all else to
standard error.
Ray and torch are imported by the commands that train, never by `audit` or `version`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chaos.check.cli import command as check_command
from chaos.cost.cli import command as intervals_command
from chaos.gallery.cli import command as gallery_command
from chaos.labs.cli import app as labs
from chaos.page.cli import command as report_command
from chaos.shell import EXIT_UNJUDGED, JsonOption, QuietOption
from chaos.shell import complain as _complain
from chaos.shell import errors_reported as _errors_reported
from chaos.shell import print_json as _print_json
from chaos.sweep.cli import command as sweep_command
from chaos.sweep.cli import soak_command
from chaos.sweep.points_cli import command as points_command

if TYPE_CHECKING:
    from chaos.experiment import Experiment
    from chaos.run import Notify, Outcome

EXIT_STATUS = {"valid": 0, "invalid": 1, "unknown": 2}

app = typer.Typer(
    name="killpoint",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Kills training on Ray at chosen points, watches it recover, and audits what is on disk.",
)
app.add_typer(labs)
_STATUSES = "Exit status: 0 valid, 1 invalid, 2 could not judge."
app.command("points", epilog="Example: killpoint points --record experiment.yaml. Exit status: 0 done, 2 could not.")(
    points_command
)
app.command("sweep", epilog=f"Example: killpoint sweep --sample 50. {_STATUSES}")(sweep_command)
app.command("soak", epilog=f"Example: killpoint soak --kills 100. {_STATUSES}")(soak_command)
app.command("check", epilog=f"Example: killpoint check experiment.yaml --budget 60s. {_STATUSES}")(check_command)
app.command(
    "intervals", epilog="Example: killpoint intervals --every 1,5,20 --kills 10. Exit status: 0 every run valid and "
    "every prediction met, 1 not so, 2 could not judge.",
)(intervals_command)  # fmt: skip
app.command("gallery", epilog="Example: killpoint gallery --only 4 --only 20.")(gallery_command)
app.command("report", epilog="Example: killpoint report runs/a --plots plots. Exit status: 0 written, 2 could not.")(
    report_command
)
ExperimentArgument = Annotated[
    Path | None, typer.Argument(metavar="[EXPERIMENT]", help="experiment file; without it the default one")
]
OutputOption = Annotated[Path | None, typer.Option(help="new folder for the run; otherwise one below runs/")]


@app.callback(invoke_without_command=True)
def killpoint(
    show_version: Annotated[bool, typer.Option("--version", is_eager=True, help="print the release and exit")] = False,
) -> None:
    """Kills training on Ray at chosen points, watches it recover, and audits what is on disk."""
    if show_version:
        from trainers.spec import VERSION

        print(f"killpoint {VERSION}")
        raise typer.Exit


@app.command(epilog=f"Example: killpoint run experiment.yaml --output out. {_STATUSES}")
def run(
    experiment: ExperimentArgument = None,
    output: OutputOption = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="go on with this run, whose supervisor is gone")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="takes the place of the file's seed")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train, kill, recover, and judge."""
    with _errors_reported():
        if resume is None:
            outcome = _start(experiment, output, seed, quiet)
        elif experiment is None and output is None and seed is None:
            outcome = _resume(resume, quiet)
        else:
            what = "has everything in RUN: give no EXPERIMENT, --output or --seed"
            raise typer.BadParameter(what, param_hint="--resume")
        _finish(outcome, as_json)


@app.command(epilog=f"Example: killpoint audit runs/20260304T050607Z-bytelm --json. {_STATUSES}")
def audit(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")],
    dataset: Annotated[Path | None, typer.Option(metavar="DIR", help="the dataset, if it has moved")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Judge a run by what is on disk, at any later time, without Ray."""
    del quiet  # there is no progress to show; accepted, so that scripts can give it to every command
    with _errors_reported():
        from chaos.errors import NotARun

        if not (run_folder / "history").is_dir() and not (run_folder / "store").is_dir():
            raise NotARun(f"{run_folder}: is no run: it has neither history/ nor store/")
        from chaos.audit import audit_run

        verdict = audit_run(run_folder, dataset).to_json()
        _print_verdict(verdict, run_folder, as_json)
        raise typer.Exit(EXIT_STATUS.get(verdict["verdict"], EXIT_UNJUDGED))


@app.command(epilog="Example: killpoint diff runs/a/twin runs/a. Exit status: 0 equal, 1 different, 2 could not.")
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="a run, a trace.json or its folder, or RUN:CHECKPOINT")],
    b: Annotated[str, typer.Argument(metavar="B", help="what to hold against A, of the same kind")],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say where two runs, or two checkpoints, first differ, by how much, and what explains it.

    Exit status: 0 no difference, 1 different, 2 could not compare.
    """
    with _errors_reported():
        from chaos.diff.command import diff as compare
        from chaos.diff.report import render
        from chaos.progress import status
        from chaos.report import print_results

        with status(quiet) as say:
            result = compare(a, b, say)
        if as_json:
            _print_json(result.report)
        else:
            print_results(render(result.report))
        raise typer.Exit(result.exit_status)


@app.command(epilog="Example: killpoint export runs/a copy. Exit status: 0 done and proven, 2 could not.")
def export(
    run_or_store: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run, or its store")],
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="new folder for the copy")],
    step: Annotated[int | None, typer.Option(min=1, help="of this step, not the newest")] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="for inference only: training cannot go on from it")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy the newest verified checkpoint, and prove that a fresh process can load the copy."""
    with _errors_reported():
        from chaos.export import export as export_checkpoint
        from chaos.export import proof_text

        done = export_checkpoint(run_or_store, destination, step=step, weights=weights)
        if as_json:
            _print_json({**asdict(done), "folder": str(done.folder)})
        else:
            print(proof_text(done))


@app.command(epilog="Example: killpoint version --json. Exit status: 0.")
def version(as_json: JsonOption = False) -> None:
    """Print release and digest of the sources."""
    with _errors_reported():
        from trainers.spec import VERSION, code_digest

        if as_json:
            _print_json({"version": VERSION, "code_digest": code_digest([])})
        else:
            print(f"killpoint {VERSION} {code_digest([])}")


def main() -> None:
    """Entry point of the `killpoint` command."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(EXIT_UNJUDGED)


def _start(path: Path | None, output: Path | None, seed: int | None, quiet: bool) -> Outcome:
    from chaos.experiment import load_experiment
    from chaos.run import run_experiment

    experiment = load_experiment(path, seed=seed)
    folder = output or default_output(experiment, datetime.now(UTC))
    with _progress(experiment, folder, quiet) as notify:
        return run_experiment(experiment, folder, notify=notify)


def _resume(folder: Path, quiet: bool) -> Outcome:
    from chaos.errors import RunFinished
    from chaos.run import Outcome, find_resumable, judge, resume_experiment

    try:
        found = find_resumable(folder)
    except RunFinished:
        if not quiet:
            print(f"{folder}: has reached its target already, so it is only judged", file=sys.stderr)
        return Outcome(folder, judge(folder, None))
    with _progress(found.experiment, folder, quiet) as notify:
        return resume_experiment(found, notify=notify)


def default_output(experiment: Experiment, now: datetime) -> Path:
    """`runs/<UTC timestamp>-<workload>`."""
    from chaos.runfolder import short_name

    return Path("runs") / f"{now:%Y%m%dT%H%M%SZ}-{short_name(experiment.run.workload)}"


@contextmanager
def _progress(experiment: Experiment, folder: Path, quiet: bool) -> Iterator[Notify]:
    if quiet:
        yield lambda event: None
        return
    from chaos.progress import LiveProgress

    with LiveProgress(experiment.run.steps, folder, experiment.faults) as progress:
        yield progress.notify


def _finish(outcome: Outcome, as_json: bool) -> None:
    if outcome.failure is not None:
        _complain(outcome.failure)
    if outcome.began or as_json:
        _print_verdict(outcome.verdict, outcome.folder, as_json)
    else:
        from chaos.report import print_results, render_end

        print_results(render_end(outcome.verdict, outcome.folder))
    raise typer.Exit(outcome.exit_status)


def _print_verdict(verdict: Mapping[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        _print_json(verdict)
        return
    from chaos.report import print_results, read_choices, render

    print_results(render(verdict, read_choices(folder), folder))


if __name__ == "__main__":
    main()
