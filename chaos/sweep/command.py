"""A sweep from its experiment to its verdict: record, draw up, predict, conduct. An interrupted one can go on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.errors import SweepError
from chaos.experiment import Experiment
from chaos.interrupts import Interrupts
from chaos.life import Place
from chaos.points import CATALOGUE, is_user_point, nearest
from chaos.sweep import trials as drawn
from chaos.sweep.conduct import SPARES, Conductor, Task
from chaos.sweep.jobs import conduct_all, more_cpus
from chaos.sweep.outline import Outline
from chaos.sweep.record import CLEAN, KILLED, record, share_twin
from chaos.sweep.results import Journal, Result
from chaos.sweep.summary import Pace, Summary, summarize
from chaos.sweep.trials import Trial
from trainers.spec import code_digest

PAIRS = 100  # so many are drawn where `--sample` does not say
_TWICE = 20  # of so many gated trials one is run twice, and has to do the same


@dataclass(frozen=True)
class Choice:
    """Which trials: points and ranks by name (empty: all), and how many of them. kind: sigkill or sigterm."""

    points: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    sample: int | None = None
    pairs: bool = False
    seed: int = 0
    kind: str = "sigkill"

    @property
    def options(self) -> str:
        """As they stand on the command line, but those that leave nothing out."""
        named = [*(f"--point {point}" for point in self.points), *(f"--rank {rank}" for rank in self.ranks)]
        if self.pairs or self.sample is not None:
            named.append(f"--sample {self.sample or PAIRS} --seed {self.seed}")
        return " ".join(named)


@dataclass(frozen=True)
class Swept:
    """A sweep, finished or not. possible: trials that there are, of which `choice` took some. pace: of this life."""

    trials: tuple[Trial, ...]
    results: Mapping[str, Result]
    summary: Summary
    pace: Pace
    possible: int
    choice: Choice

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            **self.summary.to_json(), "possible": self.possible, "choice": vars(self.choice),
            "pace": self.pace.to_json(),
        }  # fmt: skip


@dataclass(frozen=True)
class Watch:
    """Who is told what goes on. begin: how many trials there are, and how many are done already."""

    say: Callable[[str], None] = lambda text: None
    begin: Callable[[int, int], None] = lambda total, done: None
    trial: Callable[[Trial], None] = lambda trial: None
    result: Callable[[Result], None] = lambda result: None


def sweep(
    experiment: Experiment, folder: Path, choice: Choice, deadline_s: float, watch: Watch, jobs: int = 1
) -> Swept:
    """Conducts every trial that has no result yet, `jobs` at a time.

    Raises SweepError; an interrupt ends it, and it can go on.
    """
    more = more_cpus(experiment.run, jobs)
    with Interrupts() as interrupts, Place(interrupts, reuse=True, spares=SPARES, more_cpus=more) as place:
        return sweep_in(place, experiment, folder, choice, deadline_s, watch, jobs)


def sweep_in(
    place: Place, experiment: Experiment, folder: Path, choice: Choice, deadline_s: float, watch: Watch, jobs: int = 1
) -> Swept:
    """As `sweep`, in a place that is there already and takes processes up again."""
    _require(choice, experiment)
    identity = {"config": experiment.config_digest, "code": code_digest([]), "choice": vars(choice)}
    journal = Journal(folder, identity)
    for name in (CLEAN, KILLED):
        shutil.rmtree(folder / name, ignore_errors=True)
    found, possible = draw_up(record(experiment, folder, place, watch.say), choice)
    left = [trial for trial in found if trial.name not in journal.results]
    journal.predict((trial.name, [each.to_json() for each in trial.predictions or ()]) for trial in left)
    twice = {trial.name for trial in [trial for trial in found if trial.gated][::_TWICE]}
    tasks = [Task(trial, trial.name in twice) for trial in left]
    jobs = max(1, min(jobs, len(tasks)))

    def ended(result: Result) -> None:
        journal.add(result)
        watch.result(result)

    if jobs > 1:
        share_twin(experiment, folder, place, watch.say)
    watch.begin(len(found), len(found) - len(left))
    began = time.monotonic()
    conduct_all(Conductor(experiment, folder, place, deadline_s), jobs, tasks, watch.trial, ended)
    pace = Pace(len(tasks), time.monotonic() - began, jobs)
    return Swept(tuple(found), journal.results, summarize(found, journal.results), pace, possible, choice)


def _require(choice: Choice, experiment: Experiment) -> None:
    """What cannot be there is refused before anything is written. Points of the user's own show in a run only."""
    for rank in choice.ranks:
        if not 0 <= rank < experiment.run.ranks:
            raise SweepError(f"--rank {rank}: the experiment has the ranks 0 to {experiment.run.ranks - 1}")
    for point in choice.points:
        if point not in CATALOGUE and not is_user_point(point):
            like = nearest(point)
            hint = f"the nearest is {like}" if like else "`killpoint points` lists what there is"
            raise SweepError(f"--point {point}: there is no such point; {hint}")


def draw_up(outline: Outline, choice: Choice) -> tuple[list[Trial], int]:
    """The trials, those with a supervisor of their own last, and of how many. SweepError if the choice leaves none."""
    if choice.pairs:
        found = drawn.pairs(outline, choice.sample or PAIRS, choice.seed)
        found = drawn.chosen(found, choice.points, choice.ranks, None, choice.seed)
        possible = len(drawn.possible_pairs(outline))
    else:
        kills = (*drawn.singles(outline), *drawn.gates(outline), *drawn.recoveries(outline))
        everything = tuple(drawn.notices(outline)) if choice.kind == "sigterm" else kills
        found = drawn.chosen(everything, choice.points, choice.ranks, choice.sample, choice.seed)
        possible = len(everything)
    if not found:
        raise SweepError("no trial is left: no such point is passed by such a rank here; `killpoint points --record` "
                         "lists what is")
    return sorted(found, key=lambda trial: trial.own_supervisor), possible
