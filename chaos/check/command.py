"""A check from its experiment to its verdict: record, order, conduct while the budget lasts, say what was covered."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chaos.check import lastgood
from chaos.check.coverage import Coverage, coverage
from chaos.check.lastgood import LastGood
from chaos.check.order import Planned, Stage, plan
from chaos.check.pace import Pace, kind_of
from chaos.errors import CheckError, OutputExists, RecordingFailed
from chaos.experiment import Experiment
from chaos.interrupts import Interrupts
from chaos.life import Place
from chaos.points import Role
from chaos.runfolder import read_recorded
from chaos.sweep.conduct import SPARES, Conductor, Task
from chaos.sweep.jobs import conduct_all, more_cpus
from chaos.sweep.outline import Outline
from chaos.sweep.record import CLEAN, KILLED, share_twin, undisturbed, with_recovery
from chaos.sweep.results import Journal, Result
from chaos.sweep.summary import Summary, summarize
from chaos.sweep.trials import Trial, base
from trainers.spec import BUILT_IN, code_digest


@dataclass(frozen=True)
class Limits:
    """Of a check. budget_s: None for every point once and nothing more. points: only kills at these, all if empty.
    fail_fast: the first trial that is not as it must be ends it. deadline_s: of one trial. jobs: trials at a time."""

    budget_s: float | None = None
    points: tuple[str, ...] = ()
    fail_fast: bool = False
    seed: int = 0
    deadline_s: float = 60.0
    jobs: int = 1


@dataclass(frozen=True)
class Watch:
    """Who is told what goes on."""

    say: Callable[[str], None] = lambda text: None
    trial: Callable[[Trial], None] = lambda trial: None
    result: Callable[[Result], None] = lambda result: None


@dataclass(frozen=True)
class Checked:
    """A check that is over. plan: all trials that were drawn up, done or not. notes: what the order followed from."""

    folder: Path
    plan: tuple[Planned, ...]
    results: Mapping[str, Result]
    summary: Summary
    coverage: Coverage
    notes: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """Less than every point once is no pass: the trials of the first stage that were not done make it unknown."""
        return self.summary.verdict

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        trials = [
            {
                "trial": each.trial.name, "stage": each.stage.value, "ending": result.ending.value, "why": result.why,
                "planned": result.planned, "struck": result.struck, "as_predicted": result.predicted,
                "seconds": result.duration_s, "reproduce": result.reproduce,
            }
            for each in self.plan if (result := self.results.get(each.trial.name)) is not None
        ]  # fmt: skip
        summary = {**self.summary.to_json(), "coverage": self.coverage.to_json(), "trials": trials}
        text = list(self.coverage.sentences())
        return {**summary, "coverage_text": text, "notes": list(self.notes), "folder": str(self.folder)}


def check(experiment: Experiment, folder: Path, limits: Limits, watch: Watch) -> Checked:
    """Conducts what the budget allows, in a new folder.

    Raises OutputExists, CheckError, SweepError, and what stops a run before it starts.
    """
    if folder.exists():
        raise OutputExists(f"{folder}: exists already and was left as it is; a check needs a new --output")
    more = more_cpus(experiment.run, limits.jobs)
    with Interrupts() as interrupts, Place(interrupts, reuse=True, spares=SPARES, more_cpus=more) as place:
        return check_in(place, experiment, folder, limits, watch)


def check_in(place: Place, experiment: Experiment, folder: Path, limits: Limits, watch: Watch) -> Checked:
    """As `check`, in a place that is there already and takes processes up again."""
    place_of_record = lastgood.place_of(experiment)
    known = lastgood.read(place_of_record)
    pace = Pace(limits.budget_s, known.median_s if known else {}, jobs=limits.jobs)
    journal = Journal(folder, {"config": experiment.config_digest, "code": code_digest([]), "check": vars(limits)})
    checked, files = _Check(experiment, folder, place, limits, watch, pace, journal).do(known)
    if checked.verdict == "valid" and not limits.points:
        lastgood.write(place_of_record, LastGood(files, pace.medians_s()))
    return checked


class _Check:
    """One check at work."""

    def __init__(
        self, experiment: Experiment, folder: Path, place: Place, limits: Limits, watch: Watch, pace: Pace,
        journal: Journal,
    ) -> None:  # fmt: skip
        self._experiment, self._folder, self._place = experiment, folder, place
        self._limits, self._watch, self._pace, self._journal = limits, watch, pace, journal
        self._conductor = Conductor(experiment, folder, place, limits.deadline_s)
        self._notes: list[str] = []

    def do(self, known: LastGood | None) -> tuple[Checked, Mapping[str, str]]:
        """The check, and the digests of the sources that it ran."""
        bare = undisturbed(self._experiment, self._folder, self._place, self._watch.say)
        code = read_recorded(self._folder / CLEAN).code or {}
        files = lastgood.source_digests(code.get("files", ()))
        try:
            outline = with_recovery(self._experiment, bare, self._folder, self._place, self._watch.say)
        except RecordingFailed as failed:
            return self._first_kill(bare, failed), files
        if self._limits.jobs > 1:
            share_twin(self._experiment, self._folder, self._place, self._watch.say)
        self._forget_recordings()
        planned = plan(outline, self._limits.points, self._changed(known, files), self._limits.seed)
        self._require_points(planned)
        if self._limits.budget_s is None:
            planned = [each for each in planned if each.stage is Stage.ONCE]
        return self._conduct_all(outline, planned), files

    def _first_kill(self, bare: Outline, failed: RecordingFailed) -> Checked:
        """The one kill that was to show what a recovery passes was not survived: that is the whole check."""
        first = base(bare)
        who = first.where[1][1]
        trial = replace(first, name=f"rank{who}/gate:{first.faults[0]['gate']['point']}/1")
        self._note("the first kill was not survived as it must be; nothing more was drawn up")
        self._watch.trial(trial)
        self._afresh()
        result = self._conductor.carry_out(Task(trial))
        self._ended(result)
        if result.good:
            raise failed
        return self._checked(bare, [Planned(trial, Stage.ONCE)], set())

    def _conduct_all(self, outline: Outline, planned: list[Planned]) -> Checked:
        self._journal.predict(
            (each.trial.name, [expected.to_json() for expected in each.trial.predictions or ()]) for each in planned
        )
        left: set[str] = set()
        tasks = self._affordable(planned, left)
        conduct_all(self._conductor, self._limits.jobs, tasks, self._watch.trial, self._ended)
        return self._checked(outline, planned, left)

    def _affordable(self, planned: list[Planned], left: set[str]) -> Iterator[Task]:
        """What the budget allows, trial by trial as time goes by; the names of all others are put in `left`.

        A user's own workload may keep something in its modules that outlives a run: what fails in processes that
        served a run before is done again in fresh ones, which are what its reproducer has.
        """
        own = self._experiment.run.workload not in BUILT_IN
        for each in planned:
            if self._limits.fail_fast and not all(result.good for result in self._journal.results.values()):
                self._note("stopped at the first failure, as asked")
                return
            if self._pace.fits(kind_of(each.trial.own_supervisor)):
                yield Task(each.trial, doubted=own)
            else:
                left.add(each.trial.name)

    def _ended(self, result: Result) -> None:
        if result.afresh:
            which = "it and all after it" if self._limits.jobs == 1 else "it and those after it in its job"
            self._note(f"{result.trial} failed in processes that had served other trials ({result.afresh}); {which} "
                       "ran in fresh ones")
        self._pace.add(kind_of(result.role == Role.SUPERVISOR), result.duration_s)
        self._journal.add(result)
        self._watch.result(result)

    def _afresh(self) -> None:
        if self._experiment.run.workload not in BUILT_IN:
            self._place.start_afresh()

    def _checked(self, outline: Outline, planned: list[Planned], left: set[str]) -> Checked:
        results = self._journal.results
        counted = [each.trial for each in planned if each.stage is Stage.ONCE or each.trial.name in results]
        cut = [kind_of(e.trial.own_supervisor) for e in planned if e.stage is Stage.ONCE and e.trial.name in left]
        covered = coverage(
            outline, planned, results, left, self._limits.budget_s, self._pace.elapsed_s, self._pace.would_do_s(cut)
        )
        return Checked(
            self._folder, tuple(planned), results, summarize(counted, results), covered, tuple(self._notes)
        )

    def _changed(self, known: LastGood | None, files: Mapping[str, str]) -> frozenset[str]:
        if known is None:
            self._note("no good check of this experiment is on record, so no code counts as changed")
            return frozenset()
        changed = lastgood.changed_files(known.files, files)
        groups = lastgood.groups_of(changed)
        if changed:
            some = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
            self._note(f"changed since the last good check: {some}; it bears on {', '.join(sorted(groups))}")
        else:
            self._note("no code has changed since the last good check")
        return groups

    def _require_points(self, planned: list[Planned]) -> None:
        there = {each.trial.where[0] for each in planned}
        gone = [point for point in self._limits.points if point not in there]
        if gone:
            raise CheckError(f"--point {shlex.join(gone)}: no process passes it in this experiment; "
                             "`killpoint points --record EXPERIMENT` lists what is passed")

    def _forget_recordings(self) -> None:
        for name in (CLEAN, KILLED):
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def _note(self, text: str) -> None:
        self._notes.append(text)
        self._watch.say(text)
