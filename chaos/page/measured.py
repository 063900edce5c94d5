"""Reading shell: durations that the history has beside the facts that the auditor judges by.

Only lines that the auditor's reader believes are looked at. A measurement that is no number is none: it is shown
nowhere and changes no verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.audit.evidence import History
from chaos.audit.formats import FormatError, read_regular

_MOST = 1e9  # seconds, or microbatches: what is more is no measurement, nor is what is not a number
_WANTED = (b'"event":"step"', b'"event":"save_staged"', b'"event":"save_written"')


@dataclass(frozen=True)
class StepMeasured:
    """Of one update of one rank. microbatch_s: end of each backward pass, seconds since the update began."""

    wait_s: float | None
    train_s: float | None
    queue_depth: float | None
    microbatch_s: tuple[float, ...]


@dataclass(frozen=True)
class Measured:
    """Keys: (file, number of the line). written: lines that say when a save's files were durable."""

    steps: Mapping[tuple[str, int], StepMeasured]
    written: tuple[Written, ...]


@dataclass(frozen=True)
class Written:
    """A rank's files of one save are durable."""

    file: str
    t_ns: int
    attempt: int
    rank: int
    step: int
    microbatch: int


def read_measured(folder: Path, history: History) -> Measured:
    """From the files of `folder`, a run's history/."""
    steps: dict[tuple[str, int], StepMeasured] = {}
    written: list[Written] = []
    for name, n, body in _bodies(folder, history):
        if body.get("event") == "step":
            steps[name, n] = StepMeasured(
                _number(body.get("wait_s")), _number(body.get("train_s")), _number(body.get("queue_depth")),
                _numbers(body.get("microbatch_s")),
            )  # fmt: skip
        elif body.get("event") == "save_written":
            counts = [body.get(key, 0) for key in ("t_ns", "attempt", "rank", "step", "microbatch")]
            if all(isinstance(each, int) for each in counts):
                written.append(Written(name, *counts))
    return Measured(steps, tuple(written))


def _bodies(folder: Path, history: History) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for file in history.files.values():
        if not file.name.startswith("worker-"):
            continue
        try:
            lines = read_regular(folder / file.name).split(b"\n")
        except (OSError, FormatError):
            continue
        for n, line in enumerate(lines[: len(file.chains)]):
            if any(wanted in line for wanted in _WANTED):
                try:
                    body = json.loads(line)["body"]
                except (ValueError, KeyError, TypeError, RecursionError):
                    continue
                if isinstance(body, dict):
                    yield file.name, n, body


def _number(value: object) -> float | None:
    good = type(value) in (int, float) and abs(value) < _MOST  # type: ignore[arg-type]
    return float(value) if good else None  # type: ignore[arg-type]


def _numbers(value: object) -> tuple[float, ...]:
    if not isinstance(value, list):
        return ()
    found = [_number(each) for each in value]
    return () if None in found else tuple(each for each in found if each is not None)
