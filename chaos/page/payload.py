"""What the page's timeline draws from, packed: whole numbers, differences where they are small, deflate, base64.

Of a run that is too long for its share of the page the finest detail is left out first, and the page says so.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chaos.page.figures.timeline import RECOVERY, SAVES, STEPS, TOP, lane_tops, mark_rows
from chaos.page.levels import Level, levels
from chaos.page.values import I64, RankLane, Saves, Stretches, Timeline

_RESOLUTION = 50_000_000  # units of time in a run, where these are more than a microsecond
_SHARES = 255  # of an update: as fine as microbatches are placed in it
_FINEST_TICKS = 400_000  # microbatches
_LEVEL = 7  # of deflate: a higher one takes three times as long for one percent


@dataclass(frozen=True)
class Packed:
    """text: base64 of deflated JSON. note: what detail was left out, empty if none was."""

    text: str
    note: str


def pack(shown: Timeline, limit_bytes: int) -> Packed:
    """In at most `limit_bytes` characters, if the coarsest level fits."""
    found = levels(shown)
    last = Packed("", "")
    for kept, ticks, note in _stages(shown, found):
        last = Packed(_packed(shown, kept, ticks=ticks), note)
        if len(last.text) <= limit_bytes:
            break
    return last


def _stages(shown: Timeline, found: Sequence[Level]) -> Iterator[tuple[Sequence[Level], bool, str]]:
    """(levels, whether microbatches are in, what is left out), the finest first."""
    ticks = sum(len(lane.microbatches.at_us) for lane in shown.lanes)
    if 0 < ticks <= _FINEST_TICKS:
        yield found, True, ""
    yield found, False, "Microbatches are left out: there are too many for one page." if ticks else ""
    for number in range(1, len(found)):
        width = found[number].bin_us / 1e6
        yield (
            found[number:],
            False,
            f"Steps are shown in groups of up to {width:.3g} s: there are too many for one page.",
        )


def deflated(value: object) -> str:
    """JSON, deflated, in base64: nothing in it can be taken for markup."""
    text = json.dumps(value, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(text, _LEVEL)).decode()


def _packed(shown: Timeline, kept: Sequence[Level], *, ticks: bool) -> str:
    unit = max(1, shown.end_us // _RESOLUTION)
    return deflated({
        "end": shown.end_us, "unit": unit, "h": {"steps": STEPS, "saves": SAVES, "recovery": RECOVERY, "top": TOP},
        "lanes": [{"rank": lane.rank, "y": top} for lane, top in zip(shown.lanes, lane_tops(len(shown.lanes)),
                                                                     strict=True)],
        "levels": [{"bin": level.bin_us, "lanes": [_stretches(each, unit) for each in level.lanes]} for level in kept],
        "saves": [_saves(lane.saves, unit) for lane in shown.lanes],
        "ticks": [_ticks(lane) for lane in shown.lanes] if ticks else [],
        "phases": [[each.start_us, each.end_us, each.part.value, each.attempt] for each in shown.phases],
        "marks": list(mark_rows(shown)),
    })  # fmt: skip


def _stretches(steps: Stretches, unit: int) -> dict[str, Any]:
    """Starts as what lies between them and the end before, which is little where training goes on."""
    start, end = _units(steps.start_us, unit), _units(steps.end_us, unit)
    columns = steps.columns()
    columns |= {"start_us": start - np.concatenate(([0], end[:-1])) if len(start) else start,
                "end_us": end - start, "last": steps.last - steps.first,
                "wait_us": np.where(steps.wait_us < 0, -1, _units(steps.wait_us, unit))}  # fmt: skip
    packed: dict[str, Any] = {name: values.tolist() for name, values in columns.items()}
    return packed | {name: _differences(columns[name]) for name in ("first", "attempt")}


def _saves(saves: Saves, unit: int) -> dict[str, Any]:
    columns = saves.columns()
    columns |= {name: np.where(columns[name] < 0, -1, _units(columns[name] - saves.due_us, unit))
                for name in ("staged_us", "written_us", "published_us")}  # fmt: skip
    columns["due_us"] = _units(saves.due_us, unit)
    packed: dict[str, Any] = {name: values.tolist() for name, values in columns.items()}
    return packed | {name: _differences(columns[name]) for name in ("due_us", "step", "attempt")}


def _ticks(lane: RankLane) -> dict[str, Any]:
    """Of each update how many there are, and where in it they lie, in shares of its time."""
    at, owner = lane.microbatches.at_us, lane.microbatches.stretch
    start, length = lane.steps.start_us[owner], np.maximum(1, lane.steps.end_us[owner] - lane.steps.start_us[owner])
    shares = np.clip((at - start) * _SHARES // length, 0, _SHARES)
    return {"counts": np.bincount(owner, minlength=len(lane.steps)).tolist(), "shares": shares.tolist()}


def _units(values: I64, unit: int) -> I64:
    return (values + unit // 2) // unit


def _differences(values: I64) -> list[int]:
    return np.diff(values, prepend=0).tolist() if len(values) else []
