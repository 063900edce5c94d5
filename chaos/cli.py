"""The command line: `killpoint run | audit | points | version`.

Exit status 0 valid, 1 invalid, 2 could not judge. Results go to standard output, all else to standard error.
Ray and torch are imported by the commands that train, never by `audit` or `version`.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from chaos.experiment import Experiment
    from chaos.passages import PassageCount
    from chaos.run import Notify, Outcome

EXIT_STATUS = {"valid": 0, "invalid": 1, "unknown": 2}
EXIT_UNJUDGED = 2

app = typer.Typer(
    name="killpoint",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Kills training on Ray at chosen points, watches it recover, and audits what is on disk.",
)
ExperimentArgument = Annotated[
    Path | None, typer.Argument(metavar="[EXPERIMENT]", help="experiment file; without it the default one")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON and nothing else on standard output")]
OutputOption = Annotated[Path | None, typer.Option(help="new folder for the run; otherwise one below runs/")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="show no progress")]


@app.command()
def run(
    experiment: ExperimentArgument = None,
    output: OutputOption = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="go on with this run, whose supervisor is gone")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="takes the place of the file's seed")] = None,
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


@app.command()
def audit(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")],
    dataset: Annotated[Path | None, typer.Option(metavar="DIR", help="the dataset, if it has moved")] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a run by what is on disk, at any later time, without Ray."""
    with _errors_reported():
        from chaos.errors import NotARun

        if not (run_folder / "history").is_dir() and not (run_folder / "store").is_dir():
            raise NotARun(f"{run_folder}: is no run: it has neither history/ nor store/")
        from chaos.audit import audit_run

        verdict = audit_run(run_folder, dataset).to_json()
        _print_verdict(verdict, run_folder, as_json)
        raise typer.Exit(EXIT_STATUS.get(verdict["verdict"], EXIT_UNJUDGED))


@app.command()
def points(
    experiment: ExperimentArgument = None,
    record: Annotated[
        bool, typer.Option("--record", help="run the experiment without its faults and count passages")
    ] = False,
    output: OutputOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List the kill points, or count how often a run passes each."""
    with _errors_reported():
        from chaos.points import CATALOGUE
        from chaos.report import render_points, results_console

        counts: tuple[PassageCount, ...] = ()
        if record:
            counts = _record(experiment, output, quiet)
        elif experiment is not None or output is not None:
            what = "is needed with an EXPERIMENT or --output: they say what to run"
            raise typer.BadParameter(what, param_hint="--record")
        if as_json:
            _print_json(
                [
                    {
                        "name": point.name,
                        "group": point.group,
                        "roles": [role.value for role in point.roles],
                        "description": point.description,
                        "passages": [count.to_json() for count in counts if count.point == point.name],
                    }
                    for point in CATALOGUE.values()
                ]
            )
        else:
            results_console().print(render_points(CATALOGUE.values(), counts, recorded=record))


@app.command()
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
        from chaos.report import export_report

        done = export_checkpoint(run_or_store, destination, step=step, weights=weights)
        if as_json:
            _print_json({**asdict(done), "folder": str(done.folder)})
        else:
            print(export_report(done))


@app.command()
def version() -> None:
    """Print release and digest of the sources."""
    with _errors_reported():
        from trainers.spec import VERSION, code_digest

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
    from chaos.run import find_resumable, resume_experiment

    found = find_resumable(folder)
    with _progress(found.experiment, folder, quiet) as notify:
        return resume_experiment(found, notify=notify)


def _record(path: Path | None, output: Path | None, quiet: bool) -> tuple[PassageCount, ...]:
    from chaos.errors import ChaosError
    from chaos.experiment import load_experiment
    from chaos.passages import recorded_passages
    from chaos.run import run_experiment

    experiment = load_experiment(path).without_faults()
    folder = output or default_output(experiment, datetime.now(UTC))
    with _progress(experiment, folder, quiet) as notify:
        outcome = run_experiment(experiment, folder, notify=notify, record_passages=True)
    if outcome.failure is not None:
        raise ChaosError(f"the run in {folder} did not reach its target: {outcome.failure}")
    return recorded_passages(folder)


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
    raise typer.Exit(outcome.exit_status)


def _print_verdict(verdict: Mapping[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        _print_json(verdict)
        return
    from chaos.report import read_choices, render, results_console

    results_console().print(render(verdict, read_choices(folder), folder))


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=1, sort_keys=True))


def _complain(text: str) -> None:
    print(f"killpoint: {text}", file=sys.stderr)


@contextmanager
def _errors_reported() -> Iterator[None]:
    """Every failure ends with status 2: 1 says that a run was judged invalid, and Python's default is 1."""
    from chaos.errors import ChaosError
    from storage.errors import StorageError
    from trainers.errors import TrainingError

    try:
        yield
    except (ChaosError, StorageError, TrainingError) as error:
        _complain(str(error))
    except OSError as error:
        _complain(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except KeyboardInterrupt:
        _complain("interrupted")
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception:
        traceback.print_exc()
        _complain("this is a defect of killpoint, not a verdict")
    else:
        return
    raise typer.Exit(EXIT_UNJUDGED)


if __name__ == "__main__":
    main()
