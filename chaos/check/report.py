"""A check on the terminal: what was struck, what was not, what failed and how to see it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from chaos.check.command import Checked
from chaos.check.coverage import Coverage
from chaos.check.order import Stage
from chaos.printable import printable
from chaos.sweep.results import Result


def render(checked: Checked) -> RenderableType:
    """Everything, the verdict last."""
    return Group(_counts(checked), *(Text(line) for line in _lines(checked)), Text(f"verdict: {checked.verdict}"))


def failure_lines(result: Result) -> list[str]:
    """What a trial did wrong, and the one line that shows it again."""
    lines = [f"{result.trial}: {result.ending.value}: {printable(result.why)}"]
    if result.reproduce:
        lines.append(f"  reproduce: {printable(result.reproduce)}")
    return lines


def _counts(checked: Checked) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    drawn = Counter(each.stage for each in checked.plan)
    done = Counter(each.stage for each in checked.plan if each.trial.name in checked.results)
    for stage in Stage:
        if drawn[stage]:
            table.add_row(stage.value, f"{done[stage]} of {drawn[stage]} trials")
    summary = checked.summary
    endings = ", ".join(f"{count} {name}" for name, count in sorted(summary.endings.items())) or "none"
    table.add_row("trials", endings)
    table.add_row("redo", f"{summary.met} as predicted, {summary.missed} not")
    if summary.recovery_median_s is not None:
        table.add_row("kill to first new step", f"median {summary.recovery_median_s:.3f} s, worst "
                      f"{summary.recovery_worst_s:.3f} s, {summary.recoveries} recoveries")  # fmt: skip
    table.add_row("time", _time(checked.coverage))
    return table


def _time(covered: Coverage) -> str:
    return f"{covered.spent_s:.0f} s" + ("" if covered.budget_s is None else f" of {covered.budget_s:g} s")


def _lines(checked: Checked) -> Iterator[str]:
    yield ""
    yield from (f"- {printable(each)}" for each in (*checked.coverage.sentences(), *checked.notes))
    yield ""
    for result in checked.summary.failing:
        yield from failure_lines(result)
