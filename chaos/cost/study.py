"""What is run for `killpoint intervals`, one run after another: undisturbed ones first, then those with kills.

An undisturbed run of each interval shows its pace; from that the kills are placed, and what each must cost is written
down before the first of them strikes. An interrupted study goes on: a run that is in the journal is not done again.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.cost.files import Journal
from chaos.cost.forecast import Forecast
from chaos.cost.measure import measure
from chaos.cost.plan import Pace, Planned, PlannedRun, even, exponential, steps_needed
from chaos.cost.predict import Setting, met
from chaos.cost.values import Asked, Costs, Kill, Run, Verdict
from chaos.errors import IntervalsError
from chaos.experiment import Experiment
from chaos.life import Place
from chaos.run import Outcome, run_experiment
from chaos.sweep.record import with_faults
from trainers.spec import BUILT_IN

_SETTLE_S = 3.0  # between kills: a new standby is started and warmed up in that time, on two busy cores
_GATE_STEPS, _GATE_S = 4, 10.0  # a gate may be held for an interval, so that long, and more, is no hang


@dataclass(frozen=True)
class Watch:
    """Who is told what goes on. begin: so many runs there are, so many of them done before."""

    begin: Callable[[int, int], None] = lambda total, done: None
    run: Callable[[str, int], None] = lambda name, kills: None
    event: Callable[[Any], None] = lambda event: None
    done: Callable[[Run, float | None], None] = lambda run, left_s: None


@dataclass
class Study:
    """One at work. costs: of the runs that are done, by name."""

    experiment: Experiment
    folder: Path
    asked: Asked
    place: Place
    watch: Watch
    journal: Journal
    costs: dict[str, Costs] = field(default_factory=dict)
    plans: list[PlannedRun] = field(default_factory=list)

    def setting(self, every: int) -> Setting:
        """Of the runs with this interval."""
        run = self.experiment.run
        steps = steps_needed(self.asked.every, run.steps)
        return Setting(every, steps, run.ranks, run.microbatches, run.global_batch)

    def conduct(self) -> None:
        """Everything that is not done yet. Raises KeyboardInterrupt; what is done is kept."""
        self._forecast = Forecast(self.asked, self.setting(1).steps, self.experiment.run.twin)
        self.watch.begin(self._forecast.total, len(self.journal.runs))
        for every in self.asked.every:
            self._do(_undisturbed(every), every, ())
        if len(self.costs) < len(self.asked.every):
            return  # not even undisturbed it is valid: there is nothing to kill
        for every in self.asked.every:
            self._plan(every)
        self._forecast.plans = self.plans
        self.watch.begin(self._forecast.total, len(self.journal.runs))
        for planned in self.plans:
            self._do(planned.name, planned.every, planned.kills)

    def _plan(self, every: int) -> None:
        setting, spread = self.setting(every), even if self.asked.spread == "even" else exponential
        for number, kills in enumerate(spread(setting, self._pace(every), self.asked.kills, self.asked.seed)):
            name = f"every{every}-kills-{number}"
            self.plans.append(PlannedRun(name, every, kills))
            self.journal.expect(name, (kill.expected for kill in kills))

    def _pace(self, every: int) -> Pace:
        costs = self.costs[_undisturbed(every)]
        steps = [step.duration_s for step in costs.steps]
        if not steps:
            raise IntervalsError(f"every {every}: the undisturbed run showed no step, so no kill can be placed; see "
                                 f"{self.folder / _undisturbed(every)}")  # fmt: skip
        background = [save.background_s for save in costs.saves if save.background_s is not None]
        return Pace(
            statistics.median(steps), statistics.median(background) if background else 0.0,
            _SETTLE_S if self.experiment.run.standbys else 0.0,
        )  # fmt: skip

    def _do(self, name: str, every: int, kills: tuple[Planned, ...]) -> None:
        if name not in self.journal.runs:
            self.watch.run(name, len(kills))
            run = self._conducted(name, every, kills)
            own = self.experiment.run.workload not in BUILT_IN
            if run.verdict != "valid" and own and self.place.reuse:
                # A workload of the user's own may keep something in its modules that outlives a run.
                self.place.start_afresh()
                run = self._conducted(name, every, kills)
            self.journal.add(run)
            self._forecast.note(run)
            self.watch.done(run, self._forecast.left_s(self.journal.runs))
        if self.journal.runs[name].verdict == "valid":
            self.costs[name] = measure(self.folder / name)

    def _conducted(self, name: str, every: int, kills: tuple[Planned, ...]) -> Run:
        folder, started = self.folder / name, time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)  # of an interrupted study
        outcome = run_experiment(
            self._derived(name, every, kills), folder, notify=self.watch.event, place=self.place
        )
        if outcome.interrupted is not None:
            raise KeyboardInterrupt
        wall_s = round(time.monotonic() - started, 3)
        verdict: Verdict = outcome.verdict["verdict"]
        if verdict == "valid":  # judged; its history is what is measured
            for part in ("store", "twin", "twin-2"):
                shutil.rmtree(folder / part, ignore_errors=True)
        return Run(name, every, name, len(kills), verdict, _why(outcome), wall_s)

    def _derived(self, name: str, every: int, kills: tuple[Planned, ...]) -> Experiment:
        """The user's experiment with this interval and these kills."""
        run, setting = self.experiment.run, self.setting(every)
        more: dict[str, Any] = {"steps": setting.steps, "save_every": every, "save_every_microbatches": None}
        if kills:
            held_s = _GATE_STEPS * every * self._pace(every).step_s + _GATE_S
            more |= {"max_attempts": max(run.max_attempts, len(kills) + 2),
                     "hang_deadline_s": max(run.hang_deadline_s, round(held_s, 1))}  # fmt: skip
        else:
            more["twin"] = False  # it is one
        return with_faults(self.experiment, [kill.fault for kill in kills], self.folder / f"{name}.yaml", **more)

    def kills(self) -> tuple[Kill, ...]:
        """As planned, expected and measured so far."""
        return tuple(_kill(planned, kill, self.costs) for planned in self.plans for kill in planned.kills)


def _kill(run: PlannedRun, kill: Planned, costs: Mapping[str, Costs]) -> Kill:
    measured = costs[run.name].recoveries if run.name in costs else ()
    recovery = next((each for each in measured if each.attempt == kill.attempt + 1), None)
    as_expected = None if recovery is None else met(kill.expected, recovery)
    return Kill(run.every, run.name, kill.attempt, kill.rank, kill.where, kill.save, kill.phase_steps, kill.expected,
                recovery, as_expected)  # fmt: skip


def _undisturbed(every: int) -> str:
    return f"every{every}-undisturbed"


def _why(outcome: Outcome) -> str:
    """Of a verdict that is not valid."""
    if outcome.verdict["verdict"] == "valid":
        return ""
    wrong = [f"{each['id']} {each['name']}: {each['witness']}" for each in outcome.verdict.get("invariants", [])
             if each["verdict"] in ("invalid", "unknown")]  # fmt: skip
    return "; ".join([*([outcome.failure.splitlines()[0]] if outcome.failure else []), *wrong])
