"""Which kills come first when time is short. Pure: an outline in, trials in order out.

Every point once, then further passages where code has changed, then pairs in recovery, then all other passages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

from chaos.points import CATALOGUE, Role, is_user_point
from chaos.sweep.outline import Outline
from chaos.sweep.trials import Trial, gates, pairs, recoveries, singles

# One of each in turn, so that a budget that ends early has seen something of everything; the user's own code first.
# What needs a supervisor of its own is last in any case, since it takes several times as long.
GROUPS = (
    "user", "recovery", "save", "step", "commit", "retire", "log", "data", "standby", "supervision",
)  # fmt: skip
_PAIRS = 100

Spot = tuple[Role, str]


class Stage(StrEnum):
    """Why a trial is where it is in the order."""

    ONCE = "every point once"
    CHANGED = "changed code"
    PAIRS = "pairs in recovery"
    REST = "other passages"


@dataclass(frozen=True)
class Planned:
    """A trial and the stage that it belongs to."""

    trial: Trial
    stage: Stage

    @property
    def spot(self) -> Spot:
        """A point counts once for each role that passes it."""
        return spot_of(self.trial)


def spot_of(trial: Trial) -> Spot:
    """Role and point of the trial's last kill."""
    point, (role, _rank) = trial.where
    return role, point


def group_of(point: str) -> str:
    """The point's group in the catalogue; `user` for points of the code under test."""
    return CATALOGUE[point].group if point in CATALOGUE else "user"


def plan(outline: Outline, points: Sequence[str], changed: Collection[str], seed: int) -> list[Planned]:
    """All trials in order. points: only kills at these, all if empty. changed: groups that changed code bears on."""

    def wanted(trial: Trial) -> bool:
        return not points or trial.where[0] in points

    once = [trial for trial in every_point_once(outline) if wanted(trial)]
    known = {trial.name for trial in once}
    others = [
        trial for trial in (*gates(outline), *recoveries(outline), *singles(outline))
        if wanted(trial) and trial.name not in known
    ]  # fmt: skip
    bears = [trial for trial in others if group_of(_subject(trial)) in changed]
    twice = [trial for trial in pairs(outline, _PAIRS, seed) if wanted(trial)]
    rest = [trial for trial in others if group_of(_subject(trial)) not in changed]
    return [
        *(Planned(trial, Stage.ONCE) for trial in once),
        *(Planned(trial, Stage.CHANGED) for trial in _cheap_first(bears)),
        *(Planned(trial, Stage.PAIRS) for trial in twice),
        *(Planned(trial, Stage.REST) for trial in _cheap_first(rest)),
    ]


def every_point_once(outline: Outline) -> list[Trial]:
    """One passage of each point and role, over the ranks in turn: in a recovery where there is one, else such that a
    checkpoint is there to be restored. A start from nothing hides whatever a restore forgets.
    """
    of_spot: dict[Spot, list[Trial]] = {}
    for trial in singles(outline):
        of_spot.setdefault(spot_of(trial), []).append(trial)
    again: dict[Spot, list[Trial]] = {}
    for trial in recoveries(outline):
        again.setdefault(spot_of(trial), []).append(trial)
    of_spot |= again
    ordered = [trials for _spot, trials in sorted(of_spot.items(), key=_catalogue)]
    chosen = [_one_of(outline, trials, index) for index, trials in enumerate(ordered)]
    return _cheap_first(_in_turn(chosen))


def _catalogue(item: tuple[Spot, list[Trial]]) -> tuple[int, str, str]:
    (role, point), _trials = item
    names = list(CATALOGUE)
    return names.index(point) if point in CATALOGUE else len(names), point, role.value


def _one_of(outline: Outline, trials: Sequence[Trial], index: int) -> Trial:
    """Of the rank whose turn it is, the middle one of the passages at which something is published for certain."""
    ranks = sorted({trial.where[1][1] or 0 for trial in trials})
    mine = [trial for trial in trials if (trial.where[1][1] or 0) == ranks[index % len(ranks)]]
    telling = [trial for trial in mine if _restores(outline, trial)] or mine
    return telling[(len(telling) - 1) // 2]


def _restores(outline: Outline, trial: Trial) -> bool:
    """Whether its recovery goes on from a checkpoint in any case.

    Of a user's point nobody knows when it is passed: as if its passages were spread evenly over the steps.
    """
    if not trial.predictions:
        return True
    point, who = trial.where
    if not is_user_point(point):
        return min(trial.predictions[0].restored) > 0
    hit, hits = trial.faults[-1]["at"]["hit"], outline.clean[who][point]
    step = (hit - 1) * outline.run.steps // hits + 1
    return sum(1 for due in outline.due if due < step) > 1  # the last one may not be published yet


def _in_turn(trials: Sequence[Trial]) -> list[Trial]:
    """One of each group, and again, until none is left."""
    by_group = [[trial for trial in trials if group_of(trial.where[0]) == group] for group in GROUPS]
    rounds: Iterator[tuple[Trial | None, ...]] = zip_longest(*by_group)
    return [trial for each in rounds for trial in each if trial is not None]


def _cheap_first(trials: Sequence[Trial]) -> list[Trial]:
    return sorted(trials, key=lambda trial: trial.own_supervisor)


def _subject(trial: Trial) -> str:
    """What a trial is about: the stage of the save that is held at a gate, else where the last kill strikes."""
    if trial.gated and len(trial.faults) == 1:
        point: str = trial.faults[0]["gate"]["point"]
        return point
    return trial.where[0]
