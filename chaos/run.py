"""One experiment from start to verdict: run folder, Ray, supervisor, twin, audit; no process is left.

A run that was cut short is never valid.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.cluster import require_devices
from chaos.errors import ChaosError, ExperimentError, Problem, RunFinished, TwinFailed
from chaos.experiment import Experiment, load_experiment
from chaos.hints import audit_command, resume_command
from chaos.interrupts import Interrupts
from chaos.life import Life, Place
from chaos.resuming import out_of_reach, recorded_workload, require_unchanged
from chaos.runfacts import placed_workload, run_facts, training_spec
from chaos.runfolder import EXPERIMENT, VERDICT, Recorded, create, new_run_id, read_recorded
from chaos.twin import TWIN, TwinEvent, provide_second, provide_twin
from chaos.workload_check import check_workload
from trainers.events import Event, Log
from trainers.spec import TrainingSpec

Notify = Callable[[Event | TwinEvent], None]


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `verdict`: the contract's JSON. `failure`: why training did not reach its target.

    interrupted: by which signal, if one came while it ran.
    """

    folder: Path
    verdict: Mapping[str, Any]
    failure: str | None = None
    began: bool = True
    interrupted: signal.Signals | None = None

    @property
    def exit_status(self) -> int:
        """0 valid, 1 invalid, 2 could not judge."""
        return {"valid": 0, "invalid": 1}.get(self.verdict["verdict"], 2)


def run_experiment(
    experiment: Experiment,
    output: Path,
    *,
    notify: Notify = lambda event: None,
    record_passages: bool = False,
    place: Place | None = None,
) -> Outcome:
    """Runs the experiment in the new folder `output` and judges it.

    `record_passages`: every process counts what it passes, and there is no twin. `place`: where the run takes place,
    among others, if not in a place of its own.
    Raises ExperimentError, OutputExists, CannotCreate, DeviceMissing before anything starts; later failures are in the
    outcome.
    """
    check_workload(experiment)
    require_devices(experiment.run.precision, experiment.run.ranks)
    folder = output.resolve()
    create(folder, experiment)
    run, workload = new_run_id(experiment), placed_workload(experiment)
    spec = training_spec(experiment, run, folder, workload)
    facts = run_facts(experiment, run, workload)
    return _conduct(experiment, spec, "run", facts, notify, record_passages, place)


@dataclass(frozen=True)
class Resumable:
    """A run that was left before its target, or before its twin was there, as its folder has it."""

    folder: Path
    experiment: Experiment
    recorded: Recorded


def find_resumable(folder: Path) -> Resumable:
    """Reads a run to be resumed, and touches nothing. Raises NotARun, RunFinished, ExperimentError, RunChanged."""
    folder = folder.resolve()
    recorded = read_recorded(folder)
    file = folder / EXPERIMENT
    experiment = load_experiment(file, seed=recorded.seed)
    if recorded.finished and ((folder / TWIN).exists() or not experiment.run.twin):
        raise RunFinished(f"{folder}: has reached its target; judge it with: {audit_command(folder)}")
    if experiment.config_digest != recorded.config_digest:
        what = "was changed since the run began; it cannot be resumed"
        raise ExperimentError(Problem(str(file), 0, "", what))
    recorded_workload(experiment, recorded.workload)
    require_unchanged(folder, experiment, recorded)
    return Resumable(folder, experiment, recorded)


def resume_experiment(found: Resumable, *, notify: Notify = lambda event: None) -> Outcome:
    """Goes on with a run whose supervisor is gone, and judges it.

    Of two that resume at once the commit log lets one go on; the other one raises Fenced and judges nothing.
    """
    recorded = found.recorded
    if recorded.finished:
        return _conduct_twin(found, notify)
    for sentence in out_of_reach(found.experiment.faults, found.folder, recorded.attempt):
        notify(Log(sentence))
    previous = [each.to_json() for each in recorded.predecessors if not each.alive]
    workload = recorded_workload(found.experiment, recorded.workload)
    spec = training_spec(found.experiment, recorded.run, found.folder, workload)
    return _conduct(found.experiment, spec, "resumed", {"previous": previous}, notify)


def judge(folder: Path, failure: str | None) -> Mapping[str, Any]:
    """The auditor's verdict on what is on disk; never valid if training did not reach its target."""
    from chaos.audit import audit_run

    verdict: Mapping[str, Any] = audit_run(folder).to_json()
    if failure is None:
        return verdict
    worst = "invalid" if verdict["verdict"] == "invalid" else "unknown"
    return {**verdict, "verdict": worst, "failure": failure}


def _conduct(
    experiment: Experiment, spec: TrainingSpec, event: str, facts: Mapping[str, Any], notify: Notify,
    record: bool = False, place: Place | None = None,
) -> Outcome:  # fmt: skip
    """Trains, provides the twin, judges."""
    folder, found = spec.folder, None
    notify(Log(f"starting; the run is in {folder}"))
    with Interrupts() as interrupts:
        with Place(interrupts) if place is None else place.lent(interrupts) as where:
            life = Life(experiment, spec, where, notify, record, where.reuse)
            failure = life.lead(event, facts)
            if failure is None and experiment.run.twin and not record:
                found = _compare(experiment, folder, where, notify)
        with interrupts.held_off():
            verdict = judge(folder, failure) if found is None else found
            _write(folder / VERDICT, verdict)
    return Outcome(folder, verdict, failure, life.began, interrupts.signal)


def _conduct_twin(found: Resumable, notify: Notify) -> Outcome:
    """The run has reached its target and only its twin is missing."""
    with Interrupts() as interrupts:
        with Place(interrupts) as place:
            verdict = _compare(found.experiment, found.folder, place, notify)
        with interrupts.held_off():
            verdict = judge(found.folder, None) if verdict is None else verdict
            _write(found.folder / VERDICT, verdict)
    return Outcome(found.folder, verdict)


def _compare(experiment: Experiment, folder: Path, place: Place, notify: Notify) -> Mapping[str, Any] | None:
    """Puts the twin beside the run, and a second one if they differ. Without a twin invariant 5 is unknown.

    Returns the verdict on the run, which is done, beside its twin; None if there is something more to be judged.
    """
    try:
        provide_twin(experiment, folder, place, notify)
        verdict = judge(folder, None)
        if all(each["id"] != 5 or each["verdict"] != "invalid" for each in verdict["invariants"]):
            return verdict
        provide_second(experiment, folder, place, notify)
    except TwinFailed as error:
        notify(Log(str(error)))
    except KeyboardInterrupt:
        notify(Log(f"interrupted before the twin was there; train it with: {resume_command(folder)}"))
    return None


def _write(path: Path, verdict: Mapping[str, Any]) -> None:
    draft = path.with_suffix(".tmp")
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump(verdict, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise ChaosError(
            f"{path}: the verdict cannot be written ({error.strerror}). Published checkpoints are untouched; mend "
            f"that, then: {audit_command(path.parent)}, or go on with: {resume_command(path.parent)}"
        ) from error
