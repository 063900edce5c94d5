"""What a check covered, and what it did not. Pure: planned trials and results in, counts out.

A point counts once for each role that passes it; a passage is one role, rank, attempt, point and hit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.check.order import Planned, Spot, Stage
from chaos.points import Role
from chaos.sweep.outline import Outline
from chaos.sweep.results import Result
from chaos.sweep.trials import Trial, recoveries, singles

Passage = tuple[int, str, int | None, str, int]


@dataclass(frozen=True)
class Left:
    """Trials of one stage that were not begun, of so many that were drawn up."""

    stage: Stage
    trials: int
    drawn: int


@dataclass(frozen=True)
class Coverage:
    """Points and passages, struck of passed. missing: points of the first stage that were not struck.

    not_chosen: points that are passed and that nobody asked for. would_do_s: the budget that the first stage needs;
    None if it was done.
    """

    points_struck: int
    points_passed: int
    passages_struck: int
    passages_passed: int
    missing: tuple[Spot, ...]
    not_chosen: int
    left: tuple[Left, ...]
    budget_s: float | None
    spent_s: float
    would_do_s: int | None

    @property
    def whole(self) -> bool:
        """Whether every point that was asked for was struck at least once."""
        return not self.missing

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "points": {"struck": self.points_struck, "passed": self.points_passed, "not_chosen": self.not_chosen},
            "passages": {"struck": self.passages_struck, "passed": self.passages_passed},
            "not_struck": [f"{role.value} {point}" for role, point in self.missing],
            "left_out": [{"stage": each.stage.value, "trials": each.trials, "of": each.drawn} for each in self.left],
            "budget_s": self.budget_s, "spent_s": round(self.spent_s, 1), "budget_that_would_do_s": self.would_do_s,
        }  # fmt: skip

    def sentences(self) -> Iterator[str]:
        """The same for people."""
        yield (
            f"{self.points_struck} of {self.points_passed} points were kill-tested, "
            f"{self.passages_struck} of {self.passages_passed} passages"
        )
        if self.not_chosen:
            yield f"{self.not_chosen} points were not asked for"
        for each in self.left:
            yield f"left out for lack of time: {each.trials} of {each.drawn} trials of the stage “{each.stage.value}”"
        if self.missing:
            names = ", ".join(f"{point} ({role.value})" for role, point in self.missing)
            yield f"not struck: {names}"
        if self.would_do_s is not None and self.budget_s is not None:
            yield (
                f"the budget of {self.budget_s:g} s covers only part of it, so this is no pass: about "
                f"--budget {self.would_do_s}s would strike every point once"
            )


def coverage(
    outline: Outline, plan: Sequence[Planned], results: Mapping[str, Result], left: Collection[str],
    budget_s: float | None, spent_s: float, would_do_s: int,
) -> Coverage:  # fmt: skip
    """left: names of the trials that were not begun for lack of time. would_do_s: see Pace."""
    everything = [*singles(outline), *recoveries(outline)]
    passed = {passages_of(trial)[-1] for trial in everything}
    spots = {_spot(passage) for passage in passed}
    done = [each.trial for each in plan if _struck(results.get(each.trial.name))]
    hits = {passage for trial in done for passage in passages_of(trial)}
    struck = {_spot(passage) for passage in hits}
    asked = [each for each in plan if each.stage is Stage.ONCE]
    missing = tuple(each.spot for each in asked if not _struck(results.get(each.trial.name)))
    cut = any(each.trial.name in left for each in asked)
    return Coverage(
        len(struck), len(spots), len(hits), len(passed), missing, len(spots - {each.spot for each in asked}),
        tuple(_left(plan, left)), budget_s, spent_s, would_do_s if cut else None,
    )  # fmt: skip


def passages_of(trial: Trial) -> list[Passage]:
    """Where the trial's kills strike, in their order."""
    ats = [fault["at"] for fault in trial.faults]
    return [(at["attempt"], at["role"], at.get("rank"), at["point"], at["hit"]) for at in ats]


def _struck(result: Result | None) -> bool:
    return result is not None and result.struck == result.planned


def _spot(passage: Passage) -> Spot:
    return Role(passage[1]), passage[3]


def _left(plan: Sequence[Planned], left: Collection[str]) -> Iterator[Left]:
    for stage in Stage:
        names = [each.trial.name for each in plan if each.stage is stage]
        missed = sum(1 for name in names if name in left)
        if missed:
            yield Left(stage, missed, len(names))
