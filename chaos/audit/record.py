"""The training record judged by itself, as a part of invariant 4: best metric, best model, and skipped updates.

Whatever a step says of these can be derived from the steps before it: the best metric is the lowest finite loss of
the lineage, the best model is the one that had it and changes at no other time, and a skipped update, which every
rank skips and somebody explains, leaves the model as it was. A step whose predecessor has no record is not judged.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from chaos.audit.events import NonFinite, StepDone
from chaos.audit.evidence import I64, Evidence
from chaos.audit.findings import Case
from chaos.audit.formats import BEST
from chaos.audit.logbook import attempts, started_from
from chaos.audit.steps import NO_ATTEMPT, Finder, Steps
from chaos.audit.witnesses import events, restored_by_attempt, steps


@dataclass(frozen=True)
class Best:
    """The lowest finite loss so far, as float.hex(), and its step; None before there is any."""

    metric: str | None = None
    step: int | None = None


def _number(text: str) -> float:
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError):
        return math.nan


State: TypeAlias = Mapping[str, str]


class Bests:
    """The best up to each step of each attempt, along the lineage, as far as the steps have an unbroken record."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[int, int, list[int], list[Best]]] = {}

    def add(self, attempt: int, start: int, before: Best, losses: list[str]) -> None:
        """losses: of steps start + 1, start + 2, …; before: of what the attempt started from."""
        values = np.array([_number(loss) for loss in losses])
        values[~np.isfinite(values)] = np.inf
        lowest = np.minimum.accumulate(np.append(np.inf if before.metric is None else _number(before.metric), values))
        lower = np.flatnonzero(values < lowest[:-1])
        found = [Best(losses[i], start + 1 + i) for i in lower.tolist()]
        self._runs[attempt] = start, start + len(losses), [start, *(lower + start + 1).tolist()], [before, *found]

    def get(self, place: tuple[int, int]) -> Best | None:
        """(attempt, step) → best up to there; None where it is not known."""
        attempt, step = place
        start, end, steps, bests = self._runs.get(attempt, (0, -1, [], []))
        return bests[bisect_right(steps, step) - 1] if start <= step <= end else None


def running_best(evidence: Evidence) -> Bests:
    """Of several ranks' losses the one that was recorded in the last file counts."""
    done, found = steps(evidence), Bests()
    numbers = _attempts(done)
    for attempt in sorted(attempts(evidence.store.log.entries)):
        origin = started_from(evidence.store.log.entries, attempt)
        start = 0 if origin is None else origin.step
        best = Best() if origin is None else found.get((origin.attempt, origin.step))
        if best is not None:  # otherwise the record is broken before
            recorded = Finder(done, np.flatnonzero(numbers == attempt)).after(start)
            found.add(attempt, start, best, done.texts("loss", recorded))
    return found


def _attempts(done: Steps) -> I64:
    return np.where(done.attempt == NO_ATTEMPT, 0, done.attempt)


def judge_record(evidence: Evidence, case: Case) -> None:
    """Adds what contradicts itself."""
    bests = running_best(evidence)
    found = [(e.attempt, e.what) for e in events(evidence, NonFinite)]
    explained = {(attempt, what.rank, what.step) for attempt, what in found if what.action == "skip"}
    skips: dict[tuple[int, int], dict[int, bool]] = {}
    for attempt, before, step in _pairs(evidence, {number for _, _, number in explained}):
        where = f"step {step.step} of attempt {attempt} on rank {step.rank}"
        skips.setdefault((attempt, step.step), {})[step.rank] = step.skipped
        if step.skipped != ((attempt, step.rank, step.step) in explained):
            words = "no finding says why" if step.skipped else "a finding says that it skipped it"
            case.wrong.append(f"{where} {'skipped' if step.skipped else 'did'} its update, and {words}")
        if step.skipped and before.get("model") != step.state.get("model"):
            case.wrong.append(f"{where} skipped its update, but the model changed")
        known = bests.get((attempt, step.step))
        if BEST in before and known is not None:
            source = "model" if known.step == step.step else BEST
            if step.state.get(BEST) != before.get(source):
                case.wrong.append(
                    f"{where}: the best model is not that of step {known.step}, which had the lowest loss so far"
                )
    for (attempt, number), ranks in sorted(skips.items()):
        if len(set(ranks.values())) > 1:
            case.wrong.append(f"step {number} of attempt {attempt} was skipped on some ranks only")


def _pairs(evidence: Evidence, explained: set[int]) -> Iterator[tuple[int, State, StepDone]]:
    """Steps of which there is something to judge, with the state before: what the rank restored, or had after the step
    before. Where no rank skips a step, nothing explains why, and no best model is kept, there is nothing.
    """
    done = steps(evidence)
    numbers = _attempts(done)
    restored = {
        (attempt, event.what.rank, event.what.step): event.what.state
        for attempt, told in restored_by_attempt(evidence).items()
        for event in told
    }
    keeps_best = any(BEST in block.parts for block in done.blocks) or any(BEST in state for state in restored.values())
    odd = [*np.unique(done.step[done.skipped]).tolist(), *explained]
    chosen = np.arange(len(done)) if keeps_best else np.flatnonzero(np.isin(done.step, odd))
    finders: dict[tuple[int, int], Finder] = {}
    for i in chosen.tolist():
        step, attempt = done[i].what, int(numbers[i])
        who = attempt, step.rank
        if who not in finders:
            finders[who] = Finder(done, np.flatnonzero((numbers == attempt) & (done.rank == step.rank)))
        place = finders[who].index(step.step - 1)
        before = restored.get((*who, step.step - 1)) if place is None else done[place].what.state
        if before is not None:
            yield attempt, before, step
