"""A sweep on the terminal: the counts, the map of points and processes, and what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from chaos.points import CATALOGUE
from chaos.printable import printable
from chaos.sweep.command import Swept
from chaos.sweep.results import Ending, Result
from chaos.sweep.soak import Soaked
from chaos.sweep.summary import Pace, Summary
from chaos.sweep.trials import Trial

_LEFT = {"processes": "child processes", "handles": "file handles", "shared": "files in shared memory"}
_LEGEND = (
    "a number: so many trials, all as they have to be · 3 of 4: the others are I invalid, U unknown, L late, "
    "N not struck, R redo not as predicted · -: no trial here"
)


def render(swept: Swept) -> RenderableType:
    """Everything, the verdict last."""
    summary = swept.summary
    return Group(
        _map(swept.trials, swept.results), Text(_LEGEND, style="dim"), Text(""), _counts(swept), *_failing(summary),
        Text(f"verdict: {summary.verdict}"),
    )  # fmt: skip


def render_soak(soaked: Soaked) -> RenderableType:
    """Counts, what is left behind, the verdict."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("killed", f"{soaked.kills} processes")
    for name in ("processes", "handles", "shared"):
        before, after = (_count(getattr(held, name)) for held in (soaked.before, soaked.after))
        table.add_row(_LEFT[name], f"{before} before, {after} after")
    table.add_row("", f"{soaked.handles_a_run:.2f} more file handles a run in the second half")
    size = f"{soaked.before.memory_bytes >> 20} MiB before, {soaked.after.memory_bytes >> 20} MiB after"
    table.add_row("memory", f"{size}; {soaked.growth_bytes_a_run / 1024:.1f} KiB more a run in the second half")
    summary = soaked.swept.summary
    leaks = (Text(f"  left behind: {printable(leak)}") for leak in soaked.leaks)
    return Group(_counts(soaked.swept), table, *_failing(summary), *leaks, Text(f"verdict: {soaked.verdict}"))


def _count(held: int | frozenset[str]) -> int:
    return held if isinstance(held, int) else len(held)


def _map(trials: Sequence[Trial], results: Mapping[str, Result]) -> Table:
    columns = sorted({_process(trial) for trial in trials})
    table = Table(title="Kills, by point and process", title_justify="left", box=None, pad_edge=False)
    table.add_column("point", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    order = list(CATALOGUE)
    points = {trial.where[0] for trial in trials}
    for point in sorted(points, key=lambda p: (order.index(p) if p in order else len(order), p)):
        cells = [
            _cell([results.get(t.name) for t in trials if t.where[0] == point and _process(t) == column])
            for column in columns
        ]
        table.add_row(printable(point), *cells)
    return table


def _process(trial: Trial) -> str:
    role, rank = trial.where[1]
    return role.value if rank is None else f"{role.value} {rank}"


def _cell(found: Sequence[Result | None]) -> str:
    if not found:
        return "-"
    good = sum(1 for result in found if result is not None and result.good)
    if good == len(found):
        return str(good)
    return f"{good} of {len(found)} {''.join(sorted({_mark(result) for result in found} - {''}))}"


def _mark(result: Result | None) -> str:
    if result is None or (result.ending is Ending.VALID and result.struck < result.planned):
        return "N"
    if result.ending is Ending.VALID:
        return "" if result.good else "R"
    return {Ending.INVALID: "I", Ending.UNKNOWN: "U", Ending.UNFINISHED: "L"}[result.ending]


def _counts(swept: Swept) -> Table:
    summary = swept.summary
    table = Table(box=None, show_header=False, pad_edge=False)
    endings = ", ".join(f"{count} {name}" for name, count in sorted(summary.endings.items())) or "none"
    percent = 100 * summary.struck / summary.enumerated if summary.enumerated else 0.0
    if swept.possible > summary.enumerated:
        there = f"{swept.possible} trials that there are"
        table.add_row("tried", f"{summary.enumerated} of {there}: {swept.choice.options}")
    table.add_row("fired", f"{summary.struck} of {summary.enumerated} ({percent:.4g} %)")
    table.add_row("trials", endings)
    met = f"{summary.met} as predicted before the trial, {summary.exact} of them to the step"
    table.add_row("redo", f"{met}; {summary.missed} not")
    if summary.recovery_median_s is not None:
        table.add_row("kill to first new step", f"median {summary.recovery_median_s:.3f} s, worst "
                      f"{summary.recovery_worst_s:.3f} s, {summary.recoveries} recoveries")  # fmt: skip
    table.add_row("time", f"{summary.seconds:.0f} s in trials{_pace(swept.pace)}")
    return table


def _pace(pace: Pace) -> str:
    """Of this life of the sweep, which may have had nothing to do."""
    if not pace.trials:
        return ""
    at_once = f", {pace.jobs} at a time" if pace.jobs > 1 else ""
    return f"; {pace.trials} trials in {pace.seconds:.0f} s{at_once}, {pace.trials_per_s:.2f} a second"


def _failing(summary: Summary) -> list[RenderableType]:
    found: list[RenderableType] = [Text("")]
    for result in summary.failing:
        found.append(Text(f"{result.trial}: {result.ending.value}: {printable(result.why)}"))
        if result.reproduce:
            found.append(Text(f"  again: {printable(result.reproduce)}"))
    return found if len(found) > 1 else []
