"""What the page shows of a run, of a sweep and of a measurement of intervals: everything, as values."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.cost.values import Intervals
from chaos.page.values import Cost, LedgerMap, Lineage, Timeline, Waiting


@dataclass(frozen=True)
class Number:
    """A figure for people: value with its unit, how many observations, and what it says."""

    label: str
    value: str
    unit: str
    observations: str
    note: str = ""


@dataclass(frozen=True)
class Invariant:
    """As the verdict has it."""

    id: int
    name: str
    verdict: str
    witness: str


@dataclass(frozen=True)
class Struck:
    """A planned fault, for people. fired: it has a receipt. observed: what was seen of it, empty if nothing."""

    attempt: int
    who: str
    where: str
    kind: str
    fired: bool
    observed: str


@dataclass(frozen=True)
class Page:
    """What every page begins with."""

    title: str
    folder: str
    verdict: str
    headline: str
    sentences: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    reproduce: str
    numbers: tuple[Number, ...]


@dataclass(frozen=True)
class RunPage(Page):
    """Everything of one run."""

    invariants: tuple[Invariant, ...]
    struck: tuple[Struck, ...]
    costs: tuple[Cost, ...]
    unseen: tuple[str, ...]
    timeline: Timeline
    lineage: Lineage
    ledger: LedgerMap
    waiting: tuple[Waiting, ...]


@dataclass(frozen=True)
class Cell:
    """Trials of one point and one process. bad: how many are not as they have to be; letters: what is wrong."""

    point: str
    group: str
    who: str
    trials: int
    bad: int
    letters: str


@dataclass(frozen=True)
class TrialRow:
    """One trial of a sweep. low, high: redo that was predicted; None where nothing was."""

    name: str
    point: str
    who: str
    ending: str
    good: bool
    redo_steps: int | None
    low: int | None
    high: int | None
    first_step_s: float | None
    why: str
    reproduce: str


@dataclass(frozen=True)
class SweepPage(Page):
    """Everything of one sweep."""

    cells: tuple[Cell, ...]
    trials: tuple[TrialRow, ...]
    failing: tuple[TrialRow, ...]


@dataclass(frozen=True)
class IntervalsPage(Page):
    """A measurement of intervals: the words and figures, and the result itself for the figures."""

    result: Intervals
