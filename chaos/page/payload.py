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
from chaos.page.values import I64, Saves, Stretches, Timeline

_FINEST_TICKS = 120_000  # microbatches


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
        yield found[number:], False, f"Steps are shown in groups of up to {width:.3g} s: there are too many for one page."


def _packed(shown: Timeline, kept: Sequence[Level], *, ticks: bool) -> str:
    body = {
        "end": shown.end_us, "h": {"steps": STEPS, "saves": SAVES, "recovery": RECOVERY, "top": TOP},
        "lanes": [{"rank": lane.rank, "y": top} for lane, top in zip(shown.lanes, lane_tops(len(shown.lanes)), strict=True)],
        "levels": [{"bin": level.bin_us, "lanes": [_stretches(each) for each in level.lanes]} for level in kept],
        "saves": [_saves(lane.saves) for lane in shown.lanes],
        "ticks": [_ticks(lane.microbatches.at_us) for lane in shown.lanes] if ticks else [],
        "phases": [[each.start_us, each.end_us, each.part.value, each.attempt] for each in shown.phases],
        "marks": list(mark_rows(shown)),
    }  # fmt: skip
    text = json.dumps(body, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(text, 9)).decode()


def _stretches(steps: Stretches) -> dict[str, Any]:
    columns = steps.columns()
    columns |= {"end_us": steps.end_us - steps.start_us, "last": steps.last - steps.first}
    packed: dict[str, Any] = {name: values.tolist() for name, values in columns.items()}
    return packed | {name: _differences(columns[name]) for name in ("start_us", "first", "attempt")}


def _saves(saves: Saves) -> dict[str, Any]:
    columns = saves.columns()
    columns |= {name: np.where(columns[name] < 0, -1, columns[name] - saves.due_us)
                for name in ("staged_us", "written_us", "published_us")}  # fmt: skip
    packed: dict[str, Any] = {name: values.tolist() for name, values in columns.items()}
    return packed | {name: _differences(columns[name]) for name in ("due_us", "step", "attempt")}


def _ticks(at_us: I64) -> list[int]:
    return _differences(np.sort(at_us))


def _differences(values: I64) -> list[int]:
    return np.diff(values, prepend=0).tolist() if len(values) else []
