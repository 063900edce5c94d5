"""How long what is left will take, from what was done. Pure."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from chaos.cost.plan import Pace, PlannedRun, even, exponential, trained_steps
from chaos.cost.predict import Setting
from chaos.cost.values import Asked, Run

_KILL_S = 1.5  # of each recovery, beside the steps that are done again
_GUESS = Pace(step_s=0.1, background_s=0.1, settle_s=1.0)


@dataclass
class Forecast:
    """Counted in steps and kills. plans: of the runs with kills, as soon as they are known."""

    asked: Asked
    steps: int
    twin: bool
    plans: Sequence[PlannedRun] = ()
    _seconds: float = field(default=0.0, init=False)
    _steps: float = field(default=0.0, init=False)

    @property
    def total(self) -> int:
        """Runs, as far as is known: those with kills are planned once the undisturbed ones are done."""
        return len(self.asked.every) + len(self._planned())

    def note(self, run: Run) -> None:
        """It is over."""
        plan = next((each for each in self.plans if each.name == run.name), PlannedRun(run.name, run.every, ()))
        self._seconds += max(0.0, run.wall_s - run.kills * _KILL_S)
        self._steps += self._trained(plan)

    def left_s(self, done: Container[str]) -> float | None:
        """None as long as nothing was seen."""
        if not self._steps:
            return None
        left = [run for run in self._planned() if run.name not in done]
        steps = sum(self._trained(run) for run in left)
        steps += sum(self.steps for every in self.asked.every if f"every{every}-undisturbed" not in done)
        if self.twin and len(left) == len(self._planned()):  # it is trained beside the first of them, if at all
            steps += self.steps
        return steps * self._seconds / self._steps + _KILL_S * sum(len(run.kills) for run in left)

    def _planned(self) -> Sequence[PlannedRun]:
        spread = even if self.asked.spread == "even" else exponential
        return self.plans or [
            PlannedRun(f"every{every}-kills-{number}", every, kills)
            for every in self.asked.every
            for number, kills in enumerate(spread(self._setting(every), _GUESS, self.asked.kills, self.asked.seed))
        ]

    def _trained(self, run: PlannedRun) -> float:
        if all(kill.expected.exact for kill in run.kills):
            return float(sum(trained_steps(run.kills, self._setting(run.every))))
        return self.steps + len(run.kills) * run.every / 2

    def _setting(self, every: int) -> Setting:
        return Setting(every, self.steps, 1, 1, 1)
