"""Conducts one trial: runs it, and holds what came of it against what was planned and predicted.

A trial whose supervisor is struck has a supervisor of its own, in another process, and is taken up again from disk by
one more. All others follow one another in this process and take up each other's workers.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chaos.experiment import Experiment
from chaos.hints import resume_command
from chaos.life import Place
from chaos.run import run_experiment
from chaos.sweep.canonical import digest_of
from chaos.sweep.record import with_faults
from chaos.sweep.results import Ending, Recovered, Result
from chaos.sweep.trials import Trial

_CLI = [sys.executable, "-m", "chaos.cli", "run"]
_NOTHING: Mapping[str, Any] = {"verdict": "unknown"}
SPARES = 2  # workers kept warm beside what a trial needs: two kills in a row find somebody
_GRACE_S = 20.0  # for a command whose deadline has passed to leave things clean


@dataclass(frozen=True)
class End:
    """How a trial's run ended. late: its deadline passed first."""

    verdict: Mapping[str, Any]
    failure: str | None = None
    late: bool = False


@dataclass(frozen=True)
class Task:
    """A trial to be conducted. twice: it has to do the same both times. doubted: a failure in processes that have
    served other trials is looked at again in fresh ones."""

    trial: Trial
    twice: bool = False
    doubted: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Task:
        """The inverse of `asdict`."""
        return cls(Trial.from_json(value["trial"]), value["twice"], value["doubted"])


class Conductor:
    """Runs trials of one experiment below `folder`, one after another."""

    def __init__(self, experiment: Experiment, folder: Path, place: Place, deadline_s: float) -> None:
        self.experiment, self.folder, self.place, self.deadline_s = experiment, folder, place, deadline_s

    def reproduce_command(self, trial: Trial) -> str:
        """The one line that repeats a trial. One whose supervisor dies is taken up again by a second command in it."""
        folder = self._place_of(trial.name)
        run = ["killpoint", "run", str(_file(folder))]
        if not trial.own_supervisor:
            return shlex.join(run)
        again = folder.with_name(f"{folder.name}.again")
        return f"{shlex.join([*run, '--output', str(again)])}; {resume_command(again)}"

    def carry_out(self, task: Task) -> Result:
        """The trial's result, with the command that repeats it unless all is as it has to be."""
        trial = task.trial
        result = self.conduct_twice(trial) if task.twice else self.conduct(trial)
        if task.doubted and not result.good and self.place.reuse and not trial.own_supervisor:
            self.place.start_afresh()
            result = second_opinion(result, self.conduct(trial))
        return result if result.good else replace(result, reproduce=self.reproduce_command(trial))

    def _place_of(self, name: str) -> Path:
        return self.folder / "trials" / name.replace("/", "_").replace(":", "-")

    def conduct_twice(self, trial: Trial) -> Result:
        """Runs a gated trial two times, which must do the same; if they do not, the result is unknown."""
        rank = trial.faults[-1]["at"].get("rank")
        digests: list[str] = []
        for _ in range(2):
            result = self.conduct(trial, lambda folder: digests.append(digest_of(folder, rank)))
            if not result.good:
                return result
        if digests[0] == digests[1]:
            return result
        return replace(result, ending=Ending.UNKNOWN, why="run twice, it did not do the same both times: behind a gate "
                       "nothing is left to chance, so something else is")  # fmt: skip

    def conduct(self, trial: Trial, look: Callable[[Path], None] = lambda folder: None) -> Result:
        """Runs the trial. `look` sees the run's folder; only what failed keeps it."""
        folder = self._place_of(trial.name)
        shutil.rmtree(folder, ignore_errors=True)  # of an interrupted sweep
        experiment = with_faults(self.experiment, trial.faults, _file(folder), twin=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _file(folder).write_text(experiment.text, encoding="utf-8")
        started = time.monotonic()
        end = self._end(trial, experiment, folder)
        result = judged(trial, end, time.monotonic() - started)
        if result.good:
            look(folder)
            shutil.rmtree(folder, ignore_errors=True)
            _file(folder).unlink()
        return result

    def _end(self, trial: Trial, experiment: Experiment, folder: Path) -> End:
        if trial.own_supervisor:
            return _in_two_processes(folder, _file(folder), self.deadline_s, self.place.environment)
        with _deadline(self.deadline_s):
            outcome = run_experiment(experiment, folder, place=self.place)
        late = outcome.interrupted is signal.SIGALRM and outcome.failure is not None
        if outcome.interrupted is not None and outcome.interrupted is not signal.SIGALRM:
            raise KeyboardInterrupt
        return End(outcome.verdict, outcome.failure, late)


def _file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.yaml")  # a point's name has dots of its own


def judged(trial: Trial, end: End, duration_s: float) -> Result:
    """The trial's result."""
    point, (role, rank) = trial.where
    verdict = end.verdict
    faults = verdict.get("faults", [])
    struck = sum(1 for fault in faults if fault["receipt"] is not None and fault["observed"] is not None)
    ending = Ending.UNFINISHED if end.late else Ending(verdict["verdict"])
    recoveries = tuple(
        Recovered(each["restored_step"], each["redo_steps"], each["first_step_s"])
        for each in verdict.get("recoveries", [])
    )
    predicted = _as_predicted(trial, recoveries) if ending is Ending.VALID else None
    why = "; ".join(_why(trial, end, ending, struck, predicted, recoveries))
    return Result(
        trial.name, point, role.value, rank, ending, len(trial.faults), struck, predicted, recoveries,
        round(duration_s, 3), why,
    )  # fmt: skip


def second_opinion(first: Result, again: Result) -> Result:
    """Of a trial that was done again in fresh processes. What was invalid once is not made good by not coming again."""
    again = replace(again, afresh=f"{first.ending.value}: {first.why}")
    if not again.good or first.ending is not Ending.INVALID:
        return again
    return replace(again, ending=Ending.UNKNOWN, why="valid in fresh processes, and before that, in processes that had "
                   f"served other trials, invalid: {first.why}")  # fmt: skip


def _as_predicted(trial: Trial, recoveries: tuple[Recovered, ...]) -> bool | None:
    if trial.predictions is None:
        return None
    if len(recoveries) != len(trial.predictions):
        return False
    return all(
        expected.met(seen.restored_step, seen.redo_steps)
        for expected, seen in zip(trial.predictions, recoveries, strict=True)
    )  # fmt: skip


def _why(
    trial: Trial, end: End, ending: Ending, struck: int, predicted: bool | None, recoveries: tuple[Recovered, ...]
) -> Iterator[str]:
    if ending is not Ending.VALID:
        if end.failure is not None:
            yield end.failure.splitlines()[0]
        for each in end.verdict.get("invariants", []):
            if each["verdict"] in ("invalid", "unknown"):
                yield f"{each['id']} {each['name']}: {each['witness']}"
    if struck < len(trial.faults):
        yield f"{struck} of {len(trial.faults)} faults struck"
    if predicted is False:
        seen = [(each.restored_step, each.redo_steps) for each in recoveries]
        expected = [each.to_json() for each in trial.predictions or ()]
        yield f"predicted {json.dumps(expected)}, was (restored step, redone steps) {seen}"


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """SIGALRM interrupts the run as Ctrl-C would: it cleans up, and its verdict is unknown."""
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)  # until the run has its own handlers
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _in_two_processes(folder: Path, file: Path, deadline_s: float, workers: Mapping[str, str]) -> End:
    """The run with a supervisor that dies, then `--resume`."""
    until = time.monotonic() + deadline_s
    first = _command([str(file), "--output", str(folder)], until, workers)
    if first is None:
        return End(_NOTHING, "the deadline passed before the supervisor was killed", late=True)
    code, out, err = first
    if code != -signal.SIGKILL:
        return End(_read(out), f"the supervisor was to be killed, and ended with {code}: {err[-300:]}")
    second = _command(["--resume", str(folder)], until, workers)
    if second is None:
        return End(_NOTHING, "the deadline passed while the run was resumed", late=True)
    code, out, err = second
    return End(_read(out), None if code in (0, 1) else f"resuming ended with {code}: {err[-300:]}")


def _read(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return _NOTHING
    return value if isinstance(value, dict) and "verdict" in value else _NOTHING


def _command(arguments: list[str], until: float, workers: Mapping[str, str]) -> tuple[int, str, str] | None:
    """Exit status, output and errors of `killpoint run`; None if the deadline passed."""
    process = subprocess.Popen(
        [*_CLI, *arguments, "--json", "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **workers},
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=max(1.0, until - time.monotonic()))
    except BaseException as error:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return None
        raise
    return process.returncode, out, err
