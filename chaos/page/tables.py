"""The data behind the figures as Parquet, one file a table, for the reader's own notebook.

Nothing is aggregated but the input's wait and depth, which are in bins of time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.page.pages import IntervalsPage, RunPage, SweepPage
from chaos.page.read import Shown
from chaos.page.values import RankLane


def tables(shown: Shown) -> dict[str, pa.Table]:
    """By name. Columns have the names and units of the values in `values.py`; every row says its unit in its column."""
    match shown:
        case RunPage():
            found = dict(_of_run(shown))
        case SweepPage():
            found = dict(_of_sweep(shown))
        case IntervalsPage():
            found = {
                "rows": _rows(shown.result.rows),
                "kills": _rows(shown.result.kills),
                "runs": _rows(shown.result.runs),
            }
    return {name: table for name, table in found.items() if table.num_rows}


def write_tables(pages: Sequence[Shown], folder: Path) -> list[Path]:
    """Every table of every page; the names of several pages begin with their numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, shown in enumerate(pages):
        for name, table in tables(shown).items():
            path = folder / f"{prefix(shown, number, len(pages))}{name}.parquet"
            pq.write_table(table, path)
            written.append(path)
    return written


def prefix(shown: Shown, number: int, pages: int) -> str:
    """`1-NAME-` where there are several pages, so that no file covers another."""
    return "" if pages == 1 else f"{number + 1}-{re.sub(r'[^A-Za-z0-9._-]+', '-', shown.title).strip('-')[:40]}-"


def _of_run(page: RunPage) -> Iterator[tuple[str, pa.Table]]:
    yield "steps", _concatenated("steps", page.timeline.lanes)
    yield "saves", _concatenated("saves", page.timeline.lanes)
    yield "microbatches", _microbatches(page.timeline.lanes)
    yield "phases", _rows(page.timeline.phases)
    yield "marks", _rows(page.timeline.marks)
    parts = dict.fromkeys(part for cost in page.costs for part, _ in cost.parts)
    yield "recoveries", pa.Table.from_pylist([
        {"attempt": cost.attempt, "restored_step": cost.restored_step, "redo_steps": cost.redo_steps,
         "redo_samples": cost.redo_samples, "first_step_s": cost.first_step_s,
         **{f"{part.replace(' ', '_')}_s": dict(cost.parts).get(part) for part in parts}}
        for cost in page.costs
    ])  # fmt: skip
    yield "checkpoints", _rows(page.lineage.nodes)
    yield "attempts", _rows(page.lineage.starts)
    yield "ledger_faults", _rows(page.ledger.faults)
    yield "ledger_blocks", _rows(page.ledger.blocks)
    yield "input", _rows(page.waiting)
    yield "invariants", _rows(page.invariants)
    yield "faults", _rows(page.struck)


def _of_sweep(page: SweepPage) -> Iterator[tuple[str, pa.Table]]:
    yield "trials", _rows(page.trials)
    yield "map", _rows(page.cells)


def _concatenated(name: str, lanes: Sequence[RankLane]) -> pa.Table:
    found = []
    for lane in lanes:
        columns = getattr(lane, name).columns()
        length = len(next(iter(columns.values())))
        found.append(pa.table({"rank": pa.array([lane.rank] * length, pa.int64()), **columns}))
    return pa.concat_tables(found) if found else pa.table({})


def _microbatches(lanes: Sequence[RankLane]) -> pa.Table:
    found = []
    for lane in lanes:
        ticks = lane.microbatches
        ranks = pa.array([lane.rank] * len(ticks.at_us), pa.int64())
        steps, attempts = lane.steps.first[ticks.stretch], lane.steps.attempt[ticks.stretch]
        found.append(pa.table({"rank": ranks, "step": steps, "attempt": attempts, "end_us": ticks.at_us}))
    return pa.concat_tables(found) if found else pa.table({})


def _rows(values: Sequence[Any]) -> pa.Table:
    return pa.Table.from_pylist([{name: _plain(item) for name, item in asdict(value).items()} for value in values])


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name.lower() if isinstance(value.value, int) else value.value
    if isinstance(value, tuple):
        return [" ".join(map(str, each)) if isinstance(each, tuple) else each for each in value]
    assert not is_dataclass(value)
    return value
