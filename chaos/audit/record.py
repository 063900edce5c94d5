"""The training record judged by itself, as a part of invariant 4: best metric, best model, and skipped updates.

Whatever a step says of these can be derived from the steps before it: the best metric is the lowest finite loss of
the lineage, the best model is the one that had it and changes at no other time, and a skipped update, which every
rank skips and somebody explains, leaves the model as it was. A step whose predecessor has no record is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from chaos.audit.events import NonFinite, StepDone
from chaos.audit.evidence import Evidence
from chaos.audit.findings import Case
from chaos.audit.formats import BEST
from chaos.audit.logbook import attempts, started_from
from chaos.audit.witnesses import events, restored_by_attempt


@dataclass(frozen=True)
class Best:
    """The lowest finite loss so far, as float.hex(), and its step; None before there is any."""

    metric: str | None = None
    step: int | None = None

    def after(self, loss: str, step: int) -> Best:
        value = _number(loss)
        lower = self.metric is None or value < _number(self.metric)
        return Best(loss, step) if math.isfinite(value) and lower else self


def _number(text: str) -> float:
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError):
        return math.nan


Bests: TypeAlias = Mapping[tuple[int, int], Best]
State: TypeAlias = Mapping[str, str]


def running_best(evidence: Evidence) -> Bests:
    """(attempt, step) → best up to there, along the lineage; only as far as the steps have an unbroken record."""
    losses: dict[int, dict[int, str]] = {}
    for event in events(evidence, StepDone):
        losses.setdefault(event.attempt or 0, {})[event.what.step] = event.what.loss
    found: dict[tuple[int, int], Best] = {}
    for attempt in sorted(attempts(evidence.store.log.entries)):
        origin = started_from(evidence.store.log.entries, attempt)
        step = 0 if origin is None else origin.step
        best = Best() if origin is None else found.get((origin.attempt, origin.step))
        if best is not None:
            found[attempt, step] = best  # of a checkpoint inside the first step
        while best is not None and step + 1 in losses.get(attempt, {}):
            step += 1
            best = found[attempt, step] = best.after(losses[attempt][step], step)
    return found


def judge_record(evidence: Evidence, case: Case) -> None:
    """Adds what contradicts itself."""
    bests = running_best(evidence)
    found = [(e.attempt, e.what) for e in events(evidence, NonFinite)]
    explained = {(attempt, what.rank, what.step) for attempt, what in found if what.action == "skip"}
    skips: dict[tuple[int, int], dict[int, bool]] = {}
    for attempt, before, step in _pairs(evidence):
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


def _pairs(evidence: Evidence) -> Iterator[tuple[int, State, StepDone]]:
    """Every step with the state before it: what its rank restored, or had after the step before."""
    states = {
        (attempt, event.what.rank, event.what.step): event.what.state
        for attempt, restored in restored_by_attempt(evidence).items()
        for event in restored
    }
    done = [(event.attempt or 0, event.what) for event in events(evidence, StepDone)]
    states |= {(attempt, step.rank, step.step): step.state for attempt, step in done}
    for attempt, step in done:
        before = states.get((attempt, step.rank, step.step - 1))
        if before is not None:
            yield attempt, before, step
