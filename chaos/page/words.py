"""A run in words and a few figures: what a reader has to know before any picture. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from chaos.page.pages import Invariant, Number, Struck
from chaos.page.values import Cost, Lineage, Standing, Timeline
from chaos.report import signal_name, who

HEADLINES = {
    "valid": "It came back as if nothing had happened",
    "invalid": "It did not come back as it was",
    "unknown": "It cannot be judged",
}
_TOLD = 3  # witnesses at the top
_MEANING = {
    "valid": "Every invariant that this run gave occasion to judge holds.",
    "invalid": "At least one invariant is broken.",
    "unknown": "Evidence is missing, and missing evidence is never taken for valid.",
}


def invariants(verdict: Mapping[str, Any]) -> tuple[Invariant, ...]:
    """As in verdict.json."""
    return tuple(Invariant(i["id"], i["name"], i["verdict"], i["witness"]) for i in verdict["invariants"])


def struck(verdict: Mapping[str, Any]) -> tuple[Struck, ...]:
    """The planned faults."""
    return tuple(
        Struck(
            fault["attempt"], who(fault["role"], fault["rank"]), _where(fault), fault["kind"],
            fault["receipt"] is not None, _observed(fault["observed"]),
        )
        for fault in verdict["faults"]
    )  # fmt: skip


def _where(fault: Mapping[str, Any]) -> str:
    where = (
        f"{fault['after_s']:.3f} s into training" if fault["point"] is None else f"{fault['point']}, hit {fault['hit']}"
    )
    gate = fault.get("gate")
    return where + (f", while {who(gate['role'], gate['rank'])} was held at {gate['point']}" if gate else "")


def _observed(observed: Mapping[str, Any] | None) -> str:
    if observed is None:
        return ""
    how = [str(observed.get("how") or "").replace("_", " ")]
    if observed.get("signal") is not None:
        how.append(signal_name(observed["signal"]))
    return ", ".join(each for each in how if each) or "seen"


def sentences(
    overall: str, judged: Sequence[Invariant], faults: Sequence[Struck], found: Sequence[Cost]
) -> tuple[str, ...]:
    """What the verdict says, and the witnesses that made it so."""
    said = [_MEANING.get(overall, "")]
    worst = [each for each in judged if each.verdict == overall and overall != "valid"]
    said += [f"{each.name}: {each.witness}" for each in worst[:_TOLD]]
    said += [f"and {len(worst) - _TOLD} more invariants, below"] if len(worst) > _TOLD else []
    valid = sum(each.verdict == "valid" for each in judged)
    open_ones = sum(each.verdict == "not_judged" for each in judged)
    said.append(
        f"{valid} of {len(judged)} invariants hold" + (f", {open_ones} had no occasion" if open_ones else "") + "; "
        f"{sum(each.fired for each in faults)} of {count(len(faults), 'planned fault')} struck; "
        f"{count(len(found), 'recovery', 'recoveries')}."
    )
    return tuple(each for each in said if each)


def count(number: int, one: str, many: str = "") -> str:
    """`1 kill`, `2 kills`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def seconds(value: float) -> str:
    """Three significant digits, never in powers of ten."""
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def numbers(
    shown: Timeline, line: Lineage, found: Sequence[Cost], steps: int | None, batch: int | None
) -> tuple[Number, ...]:
    """The figures at the top."""
    result = []
    first = sorted(cost.first_step_s for cost in found if cost.first_step_s is not None)
    if first:
        worst = f"worst {seconds(first[-1])} s" if len(first) > 1 else ""
        result.append(Number("Kill to first new step", seconds(statistics.median(first)), "s",
                             f"median of {count(len(first), 'recovery', 'recoveries')}", worst))  # fmt: skip
    redo = [cost.redo_steps for cost in found if cost.redo_steps is not None]
    if redo:
        samples = sum(cost.redo_samples or 0 for cost in found)
        result.append(Number("Trained again", f"{sum(redo):,}", "steps",
                             f"in {count(len(redo), 'recovery', 'recoveries')}",
                             f"{count(samples, 'sample')}; worst {max(redo):,} steps"))  # fmt: skip
    done = sum(int(lane.steps.updates.sum()) for lane in shown.lanes[:1])
    if shown.lanes:
        target = f"target {steps:,}" if steps is not None else ""
        size = f", {batch:,} samples each" if batch else ""
        result.append(
            Number("Updates done", f"{done:,}", "steps", f"of {count(len(shown.lanes), 'rank')}{size}", target)
        )
    kept = sum(node.standing is Standing.LINEAGE for node in line.nodes)
    rejected = sum(bool(node.rejected_by) for node in line.nodes)
    whole = "" if line.left_out else f"{kept} in the lineage, {rejected} rejected"
    result.append(Number("Checkpoints published", f"{len(line.nodes) + line.left_out:,}", "",
                         f"in {count(len(line.starts), 'attempt')}", whole))  # fmt: skip
    return tuple(result)


def part_numbers(found: Sequence[Cost]) -> tuple[Number, ...]:
    """Median and worst of each part of a recovery."""
    known: dict[str, list[float]] = {}
    for cost in found:
        for part, part_s in cost.parts:
            known.setdefault(part, []).append(part_s)
    return tuple(
        Number(part, seconds(statistics.median(each)), "s", f"median, n = {len(each)}", f"worst {seconds(max(each))} s")
        for part, each in known.items()
    )
