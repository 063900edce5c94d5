"""The result of `killpoint intervals` in words and figures. Pure; every number is in `chaos/cost/values.py`."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.cost.values import Estimate, Intervals
from chaos.page.pages import IntervalsPage, Number
from chaos.page.words import count

_HEADLINES = {
    "valid": "What each interval costs, and which one to choose",
    "invalid": "Some runs or predictions were not as they have to be",
    "unknown": "It cannot be judged",
}


def intervals_page(result: Intervals, folder: str) -> IntervalsPage:
    """Of a result that was read."""
    return IntervalsPage(
        title=f"Intervals {folder.rstrip('/').rpartition('/')[2]}",
        folder=folder,
        verdict=result.verdict,
        headline=_HEADLINES[result.verdict],
        sentences=tuple(_sentences(result)),
        facts=(("workload", result.workload), ("configuration", result.config_digest), ("code", result.code_version)),
        reproduce=result.reproduce,
        numbers=tuple(_numbers(result)),
        result=result,
    )


def _sentences(result: Intervals) -> Iterator[str]:
    asked, found = result.asked, result.recommendation
    if found is not None:
        why = (
            "the greatest expected goodput"
            if found.bound_by == "goodput"
            else "the longest within the limit on lost work"
        )
        yield f"Save every {steps(found.every)}: {why}, at a failure every {asked.mtbf_s:g} s on average."
        low, high = found.tried
        if not low <= found.every.value <= high:
            yield f"Only {low} to {high} steps were tried: beyond them this rests on the model alone."
    elif result.complete:
        yield "There are too few observations for a recommendation."
    met = sum(kill.met is True for kill in result.kills)
    judged = sum(kill.met is not None for kill in result.kills)
    yield (f"{met} of {count(judged, 'recovery', 'recoveries')} cost what had been predicted; "
           f"{count(len(result.runs), 'run')} of "
           f"{result.steps} steps, {sum(run.verdict == 'valid' for run in result.runs)} of them valid.")  # fmt: skip
    if not result.complete:
        yield "Not all runs are done."


def _numbers(result: Intervals) -> Iterator[Number]:
    found = result.recommendation
    if found is None:
        return
    yield Number("Recommended interval", f"{found.every.value:,.0f}", "steps", _of(found.every),
                 f"95 % interval {found.every.low:,.0f} to {found.every.high:,.0f}")  # fmt: skip
    for formula in found.formulas:
        yield Number(formula.name, f"{formula.every.value:,.0f}", "steps", _of(formula.every),
                     f"{formula.interval_s.value:.2f} s of training between saves")  # fmt: skip
    yield Number("A save costs", f"{found.save_s.value * 1e3:,.1f}", "ms", _of(found.save_s),
                 f"95 % interval {found.save_s.low * 1e3:,.1f} to {found.save_s.high * 1e3:,.1f}")  # fmt: skip


def _of(found: Estimate) -> str:
    return f"n = {found.observations:,}"


def steps(found: Estimate) -> str:
    """`12 steps (95 % interval 8 to 20)`."""
    return f"{count(round(found.value), 'step')} (95 % interval {found.low:,.0f} to {found.high:,.0f})"


def interval(found: Estimate | None, scale: float, digits: int) -> str:
    """`1.23 [1.10, 1.41], n = 30`; a dash for what was not observed, or observed once."""
    if found is None:
        return "–"
    value, low, high = (f"{each * scale:,.{digits}f}" for each in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}], n = {found.observations:,}" if found.observations > 1 else f"{value} [–], n = 1"
