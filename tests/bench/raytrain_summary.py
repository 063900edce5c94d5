"""What many kills say about two trainers: medians, the worst, ratios with bootstrap intervals; as a table and as JSON.

Pure, apart from printing: recoveries in, text out.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from raytrain_marks import Recovery
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

AIM = 15.0  # times that a warm standby is to be faster than Ray Train with its defaults
RESAMPLES, CONFIDENCE = 10_000, 0.95
_PARTS = ("detected_s", "up_s", "restored_s", "first_step_s", "caught_up_s")


@dataclass
class Row:
    """One way to train the job. ended: of each run, `equal` if its last state was its twin's, else what was not."""

    name: str
    settings: Mapping[str, str]
    recoveries: list[Recovery] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    @property
    def first_steps_s(self) -> list[float]:
        return [each.first_step_s for each in self.recoveries]

    def add(self, recoveries: Sequence[Recovery], ended: str) -> None:
        """What one run gave."""
        self.recoveries.extend(recoveries)
        self.ended.append(ended)

    def median(self, part: str) -> float:
        return statistics.median(getattr(each, part) for each in self.recoveries)


@dataclass(frozen=True)
class Ratio:
    """Of two medians; low, high: a bootstrap interval that takes either side's kills for independent."""

    times: float
    low: float
    high: float


def ratio(slow: Sequence[float], fast: Sequence[float], seed: int = 0) -> Ratio:
    """median(slow) / median(fast), with the percentile interval of resampled medians (Efron, 1979)."""
    rng = np.random.default_rng(seed)

    def medians(values: Sequence[float]) -> np.ndarray:
        drawn = rng.choice(np.asarray(values), (RESAMPLES, len(values)))  # [resamples, kills]
        return np.asarray(np.median(drawn, axis=1))

    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians(slow) / medians(fast), [tail, 1 - tail])
    return Ratio(statistics.median(slow) / statistics.median(fast), float(low), float(high))


def summary(rows: Sequence[Row], job: Mapping[str, Any], twins: str) -> dict[str, Any]:
    """The result as JSON. The first row is Ray Train's with its defaults. twins: how both trainers' twins compare."""
    warm = next(row for row in rows if "warm" in row.name)
    times = [ratio(row.first_steps_s, warm.first_steps_s) for row in rows]
    return {
        "bench": "raytrain", "job": dict(job), "aim": AIM, "aim_met": times[0].times >= AIM, "confidence": CONFIDENCE,
        "twins_of_both_trainers": twins,
        "rows": [
            {
                "name": row.name, "settings": dict(row.settings), "kills": len(row.recoveries),
                "median": {part: round(row.median(part), 4) for part in _PARTS},
                "worst_first_step_s": round(max(row.first_steps_s), 4),
                "redone_steps": sorted(each.redone_steps for each in row.recoveries),
                "slower_than_warm": {name: round(value, 3) for name, value in asdict(slower).items()},
                "ended": row.ended,
                "recoveries": [asdict(each) for each in row.recoveries],
            }
            for row, slower in zip(rows, times, strict=True)
        ],
    }  # fmt: skip


def render(result: Mapping[str, Any]) -> RenderableType:
    """The table, what the rows mean, and the sentence that was asked for."""
    table = Table(title="From the SIGKILL of one of two ranks, seconds: medians", title_justify="left", box=None,
                  pad_edge=False)  # fmt: skip
    table.add_column("")
    for column in ("kills", "detected", "workers up", "restored", "first new step", "worst", "caught up",
                   "redone steps", "times warm", "end state = twin's"):  # fmt: skip
        table.add_column(column, justify="right")
    for row in result["rows"]:
        times, redone, same = row["slower_than_warm"], row["redone_steps"], row["ended"].count("equal")
        table.add_row(
            row["name"], str(row["kills"]), *(f"{row['median'][part]:.2f}" for part in _PARTS[:4]),
            f"{row['worst_first_step_s']:.2f}", f"{row['median']['caught_up_s']:.2f}",
            f"{redone[0]} to {redone[-1]}" if redone[0] != redone[-1] else str(redone[0]),
            f"{times['times']:.1f} ({times['low']:.1f} to {times['high']:.1f})", f"{same} of {len(row['ended'])}",
        )  # fmt: skip
    settings = [f"{row['name']}: {', '.join(f'{k}={v}' for k, v in row['settings'].items())}" for row in result["rows"]]
    differing = [f"{row['name']}: {each}" for row in result["rows"] for each in row["ended"] if each != "equal"]
    twins = f"uninterrupted, both trainers end in the same state, bit for bit: {result['twins_of_both_trainers']}"
    return Group(table, Text(""), *map(Text, (*settings, *differing, twins, _sentence(result))))


def _sentence(result: Mapping[str, Any]) -> str:
    first = result["rows"][0]
    times, kills = first["slower_than_warm"], [row["kills"] for row in result["rows"]]
    met = "met" if result["aim_met"] else "not met"
    return (
        f"kill to first new step: {times['times']:.1f} times faster with a warm standby than {first['name']} "
        f"({result['confidence']:.0%} interval {times['low']:.1f} to {times['high']:.1f}; medians of {min(kills)} "
        f"kills each, at least); aim {result['aim']:.0f} times: {met}"
    )

