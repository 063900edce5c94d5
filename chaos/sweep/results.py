"""What became of each trial, as one line of JSON a trial: durable as soon as it is known, so that a sweep can go on.

A prediction is a line of its own, written before its trial starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from chaos.errors import SweepError
from chaos.journal import JournalFile

FORMAT = "killpoint.sweep/1"
RESULTS = "results.jsonl"


class Ending(StrEnum):
    """Of a trial. Safety: valid, invalid, unknown. Liveness: unfinished, which is none of them."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"
    UNFINISHED = "unfinished"


@dataclass(frozen=True)
class Recovered:
    """One recovery as the auditor has it. first_step_s: from the strike to the first new update."""

    restored_step: int | None
    redo_steps: int | None
    first_step_s: float | None


@dataclass(frozen=True)
class Result:
    """One trial. struck: faults with a receipt and a death that matches. why: empty if it is as it has to be.

    predicted: whether every recovery was as predicted; None if nothing was predicted or no verdict was reached.
    afresh: if this is of fresh processes, what was wrong before in processes that had served other trials.
    """

    trial: str
    point: str
    role: str
    rank: int | None
    ending: Ending
    planned: int
    struck: int
    predicted: bool | None
    recoveries: tuple[Recovered, ...]
    duration_s: float
    why: str = ""
    reproduce: str = ""
    afresh: str = ""

    @property
    def good(self) -> bool:
        """All that was planned struck, the verdict is valid, and the cost was the one predicted."""
        return self.ending is Ending.VALID and self.struck == self.planned and self.predicted is not False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Result:
        """The inverse of `asdict`."""
        recoveries = tuple(Recovered(**each) for each in value["recoveries"])
        return cls(**{**value, "ending": Ending(value["ending"]), "recoveries": recoveries})


class Journal:
    """The sweep's file. Lines are appended and synced one by one; a torn last line is nobody's result."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        """Creates it, or goes on with it. Raises SweepError if it is damaged or belongs to something else."""
        what = "belongs to another sweep (another experiment, code or choice of trials)"
        self._file = JournalFile(folder / RESULTS, {"format": FORMAT, **identity}, SweepError, what)
        self.path = self._file.path
        self.results: dict[str, Result] = {}
        self._written: dict[str, list[Any]] = {}  # trial → what it was to cost
        for result in self._file.rows(self._row):
            if result is not None:
                self.results[result.trial] = result

    def predict(self, trials: Iterable[tuple[str, list[Any]]]) -> None:
        """What the trials are expected to cost; durable before the first of them starts."""
        self._file.append(*({"prediction": name, "recoveries": expected} for name, expected in trials))

    def add(self, result: Result) -> None:
        """One trial is over."""
        self._file.append({"result": asdict(result)})
        self.results[result.trial] = result

    def _row(self, line: Mapping[str, Any]) -> Result | None:
        if "result" not in line:
            self._written[line["prediction"]] = line["recoveries"]
            return None
        result = Result.from_json(line["result"])
        if not as_written(result, self._written.get(result.trial)):
            raise ValueError(f"{result.trial} is not what its prediction says")
        return result


def as_written(result: Result, written: Sequence[Mapping[str, Any]] | None) -> bool:
    """Whether what the result says of its prediction is so. written: the prediction's own line, if any.

    Raises LookupError, TypeError or ValueError if that line is damaged.
    """
    if result.predicted is None or written is None:
        return True
    seen = result.recoveries
    met = len(seen) == len(written) and all(map(_met, written, seen))
    return met == result.predicted


def _met(written: Mapping[str, Any], seen: Recovered) -> bool:
    steps = written["restored_steps"]
    if seen.restored_step is None or seen.redo_steps is None or not steps:
        return not steps and seen.restored_step is None and seen.redo_steps is None
    (low, high), (least, most) = written["finished_steps"], written["redo_steps"]
    bounds = max(least, low - seen.restored_step, 0), min(most, max(0, high - seen.restored_step))
    return seen.restored_step in steps and bounds[0] <= seen.redo_steps <= bounds[1]
