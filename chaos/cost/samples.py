"""The observations that an interval's row, and the recommendation, are computed from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from chaos.cost.values import Costs, Kill, Recovery, Run, Save, Step

_ALL_ALONG = 0.9  # of a step's time: then it counts as one beside a save
_WATCHED_RANK = 0  # ranks meet in every step: a second one's steps are no further observations


@dataclass(frozen=True)
class Samples:
    """Of one interval, or of several together. alone_s: steps without any save in flight, of undisturbed runs, seconds.

    beside_s: with one all along. touched_s: with one at any time, of `saves_of_touched` saves. saves: of attempts that
    no recovery disturbed.
    """

    alone_s: tuple[float, ...]
    beside_s: tuple[float, ...]
    touched_s: tuple[float, ...]
    saves_of_touched: int
    saves: tuple[Save, ...]
    recoveries: tuple[Recovery, ...]

    @property
    def background_s(self) -> tuple[float, ...]:
        """Of the saves that were published."""
        return tuple(save.background_s for save in self.saves if save.background_s is not None)

    @property
    def downtime_s(self) -> tuple[float, ...]:
        """Of recoveries that found a warm standby, as they will if failures are rare; of all if none did."""
        warm = [each.downtime_s for each in self.recoveries if each.standby == "warm" and each.downtime_s is not None]
        return tuple(warm) or tuple(each.downtime_s for each in self.recoveries if each.downtime_s is not None)


def samples(runs: Sequence[Run], costs: Mapping[str, Costs], kills: Iterable[Kill]) -> Samples:
    """Of these runs and kills. costs: by the run's name; of a run that is not valid nothing is taken."""
    good = [run for run in runs if run.verdict == "valid" and run.name in costs]
    clean = [run for run in good if run.kills == 0]
    steps = [step for run in clean for step in costs[run.name].steps if step.rank == _WATCHED_RANK]
    saves = [save for run in good for save in costs[run.name].saves if save.attempt == 0]
    return Samples(
        tuple(step.duration_s for step in steps if step.in_flight == 0.0),
        tuple(step.duration_s for step in steps if step.in_flight >= _ALL_ALONG),
        tuple(step.duration_s for step in steps if step.in_flight > 0.0),
        sum(1 for run in clean for save in costs[run.name].saves if _followed(save, costs[run.name].steps)),
        tuple(save for save in saves if save.background_s is not None),
        tuple(kill.recovery for kill in kills if kill.recovery is not None),
    )


def _followed(save: Save, steps: Iterable[Step]) -> bool:
    """Whether training went on beside it: nothing follows the last one."""
    return any(step.step > save.step and step.attempt == save.attempt for step in steps)
