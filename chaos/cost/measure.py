"""Everything that one run cost, from its folder: the entry point for reports and tools."""

from __future__ import annotations

from pathlib import Path

from chaos.cost.clocks import clocks
from chaos.cost.read import read_run
from chaos.cost.records import Witnessed
from chaos.cost.recovery import recoveries
from chaos.cost.saves import saves, steps
from chaos.cost.values import Costs


def costs_of(witnessed: Witnessed) -> Costs:
    """Pure: from what was recorded."""
    on = clocks(witnessed)
    return Costs(recoveries(witnessed, on), saves(witnessed, on), steps(witnessed, on))


def measure(folder: Path) -> Costs:
    """Of the run in `folder`. Raises HistoryBroken, NotThere."""
    return costs_of(read_run(folder))
