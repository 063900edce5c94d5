"""One experiment from start to verdict: run folder, Ray, supervisor, controller, audit; no process is left.

Serves invariant 10: what was planned is recorded before anything can happen, and a run that was cut short is
never valid.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.cluster import owns_ray, ray_cluster, stdout_on_stderr
from chaos.controller import Controller
from chaos.errors import ChaosError, ExperimentError, Problem, RunFinished
from chaos.experiment import Experiment, load_experiment
from chaos.faults import InjectedFault
from chaos.forkclient import FORKSERVER_ENV
from chaos.forkserver import ForkServer
from chaos.interrupts import Interrupts
from chaos.launcher import py_executable
from chaos.runfolder import EXPERIMENT, HISTORY, VERDICT, Recorded, create, heads, new_run_id, read_recorded
from chaos.striker import Striker
from storage.errors import Fenced, StorageError
from storage.history import History
from trainers.errors import TrainingError
from trainers.events import AttemptStarted, Event, Log
from trainers.spec import VERSION, TrainingSpec, code_digest

Notify = Callable[[Event], None]
_HELPERS = 2  # CPUs beside ranks and standbys: Ray Data's tasks


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `verdict`: the contract's JSON. `failure`: why training did not reach its target."""

    folder: Path
    verdict: Mapping[str, Any]
    failure: str | None = None
    began: bool = True

    @property
    def exit_status(self) -> int:
        """0 valid, 1 invalid, 2 could not judge."""
        return {"valid": 0, "invalid": 1}.get(self.verdict["verdict"], 2)


def code_version() -> str:
    """Release and digest of the sources that run."""
    return f"{VERSION}+{code_digest([]).removeprefix('sha256:')[:12]}"


def reproduce_command(experiment: Experiment) -> str:
    """The one command that runs the same experiment again."""
    file = [] if experiment.path is None else [str(experiment.path)]
    return shlex.join(["killpoint", "run", *file, "--seed", str(experiment.run.seed)])


def run_experiment(
    experiment: Experiment,
    output: Path,
    *,
    notify: Notify = lambda event: None,
    record_passages: bool = False,
) -> Outcome:
    """Runs the experiment in the new folder `output` and judges it.

    `record_passages`: nothing strikes, and every process counts what it passes.
    Raises OutputExists before anything starts; later failures are in the outcome.
    """
    if record_passages:
        experiment = experiment.without_faults()
    folder = output.resolve()
    create(folder, experiment)
    run, workload = new_run_id(experiment), _placed(experiment)
    spec = _spec(experiment, run, folder, workload)
    facts = _run_facts(experiment, run, workload)
    return _Conduct(experiment, spec, notify, record_passages).conduct("run", facts)


@dataclass(frozen=True)
class Resumable:
    """A run that was left before its target, as its folder has it."""

    folder: Path
    experiment: Experiment
    recorded: Recorded


def find_resumable(folder: Path) -> Resumable:
    """Reads a run that is to be resumed. Raises NotARun, RunFinished, ExperimentError."""
    folder = folder.resolve()
    recorded = read_recorded(folder)
    if recorded.finished:
        raise RunFinished(f"{folder}: has reached its target; judge it with: killpoint audit {folder}")
    file = folder / EXPERIMENT
    experiment = load_experiment(file, seed=recorded.seed)
    if experiment.config_digest != recorded.config_digest:
        what = "was changed since the run began; it cannot be resumed"
        raise ExperimentError(Problem(str(file), 0, "", what))
    return Resumable(folder, experiment, recorded)


def resume_experiment(found: Resumable, *, notify: Notify = lambda event: None) -> Outcome:
    """Goes on with a run whose supervisor is gone, and judges it.

    Of two that resume at once the commit log lets one go on; the other one raises Fenced and judges nothing.
    """
    recorded = found.recorded
    previous = [each.to_json() for each in recorded.predecessors if not each.alive]
    spec = _spec(found.experiment, recorded.run, found.folder, recorded.workload)
    return _Conduct(found.experiment, spec, notify, False).conduct("resumed", {"previous": previous})


def judge(folder: Path, failure: str | None) -> Mapping[str, Any]:
    """The auditor's verdict on what is on disk; never valid if training did not reach its target."""
    from chaos.audit import audit_run

    verdict: Mapping[str, Any] = audit_run(folder).to_json()
    if failure is None:
        return verdict
    worst = "invalid" if verdict["verdict"] == "invalid" else "unknown"
    return {**verdict, "verdict": worst, "failure": failure}


class _Conduct:
    """One life of the supervisor, with everything that surrounds it."""

    def __init__(self, experiment: Experiment, spec: TrainingSpec, notify: Notify, record: bool) -> None:
        self._experiment, self._spec, self._watcher, self._record = experiment, spec, notify, record
        self._began = False
        self._interrupts = Interrupts()

    def conduct(self, event: str, facts: Mapping[str, Any]) -> Outcome:
        """Records `event`, trains, closes the history, judges."""
        folder = self._spec.folder
        with self._interrupts:
            history = History.open(folder / HISTORY, "supervisor", self._spec.run)
            history.record(event, **facts)
            failure = self._train(history)
            with self._interrupts.held_off():
                failure = _close(history, folder) or failure
                verdict = judge(folder, failure)
                _write(folder / VERDICT, verdict)
        return Outcome(folder, verdict, failure, self._began)

    def _train(self, history: History) -> str | None:
        """None when the target was reached, else why it was not."""
        try:
            with ExitStack() as stack:
                self._supervise(history, stack)
            return None
        except KeyboardInterrupt:
            number = self._interrupts.signal
            name = "an interrupt" if number is None else number.name
            history.record("gave_up", reason=f"interrupted by {name}")
            return f"interrupted by {name}; go on with: killpoint run --resume {self._spec.folder}"
        except (TrainingError, StorageError, ChaosError, InjectedFault) as error:
            if _was_fenced(error):
                history.close()
                raise
            if isinstance(error, InjectedFault):  # struck in the supervisor itself; the rest it has recorded
                history.record("gave_up", reason=str(error))
            return str(error)

    def _supervise(self, history: History, stack: ExitStack) -> None:
        spec, faults = self._spec, self._experiment.faults
        stack.enter_context(stdout_on_stderr())
        environment = _fork_server(self._experiment.run.fork_workers, stack)
        stack.enter_context(ray_cluster(spec.ranks + spec.standbys + _HELPERS, self._interrupts))
        from trainers.supervisor import Supervisor  # imports torch

        deadline_s = self._experiment.gate_deadline_s
        striker = Striker(spec.run, spec.folder, faults, self._record, deadline_s)
        controller = Controller(
            spec.run, spec.folder, faults, deadline_s, log=lambda text: self._notify(Log(text))
        )

        def notify(event: Event) -> None:
            controller.notify(event)
            self._notify(event)

        supervisor = Supervisor(
            spec, points=striker, notify=notify, history=history, py_executable=py_executable(),
            environment=environment,
        )
        stack.callback(self._end, supervisor.close, striker)
        stack.enter_context(controller)
        supervisor.run()

    def _notify(self, event: Event) -> None:
        self._began = self._began or isinstance(event, AttemptStarted)
        self._watcher(event)

    def _end(self, close: Callable[[], None], striker: Striker) -> None:
        with self._interrupts.held_off():
            close()
            striker.flush()


def _fork_server(wanted: bool, stack: ExitStack) -> dict[str, str]:
    """Variables that tell launchers where the fork server is, which imports while Ray starts; empty for nowhere.

    One is started only along with a Ray of this command's own: its workers end with it, and on any other cluster they
    must outlive a supervisor that is killed. Whoever owns that cluster may name a server that lasts as long.
    """
    given = os.environ.get(FORKSERVER_ENV, "")
    if not wanted or given:
        return {FORKSERVER_ENV: given if wanted else ""}
    if owns_ray():
        return stack.enter_context(ForkServer()).environment
    return {FORKSERVER_ENV: ""}


def _close(history: History, folder: Path) -> str | None:
    """Ends the supervisor's history with the heads of all others, so that a later cut shows."""
    try:
        history.close(heads=[head.as_dict() for head in heads(folder, without=history.name)])
    except StorageError as error:
        return str(error)
    return None


def _was_fenced(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Fenced):
            return True
        error = error.__cause__
    return False


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
            f"that, then: killpoint audit {path.parent}, or go on with: killpoint run --resume {path.parent}"
        ) from error


def _placed(experiment: Experiment) -> str:
    """A workload in a file is named from the experiment file's folder; other processes need it absolute."""
    workload = experiment.run.workload
    place, colon, function = workload.rpartition(":")
    if not place.endswith(".py"):
        return workload
    base = Path.cwd() if experiment.path is None else experiment.path.resolve().parent
    return f"{base / place}{colon}{function}"


def _spec(experiment: Experiment, run: str, folder: Path, workload: str) -> TrainingSpec:
    settings = experiment.run.model_dump(exclude={"workload", "config", "threads_per_rank", "fork_workers"})
    return TrainingSpec(
        run=run,
        folder=folder,
        workload=workload,
        workload_config=experiment.run.config,
        threads_per_rank=experiment.threads_per_rank,
        config_digest=experiment.training_digest,
        **settings,
    )


def _run_facts(experiment: Experiment, run: str, workload: str) -> dict[str, Any]:
    """The fields of the `run` event."""
    settings = experiment.run
    names = ("seed", "ranks", "microbatches", "global_batch", "steps", "save_every", "save_every_microbatches", "keep",
             "standbys")
    return {
        "run": run,
        "workload": workload,
        "config_digest": experiment.config_digest,
        "training_digest": experiment.training_digest,
        "threads_per_rank": experiment.threads_per_rank,
        "code_version": code_version(),
        "reproduce": reproduce_command(experiment),
        "faults": [fault.to_json() for fault in experiment.faults],
        **{name: getattr(settings, name) for name in names},
    }
