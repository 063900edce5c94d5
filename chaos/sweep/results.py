"""What became of each trial, as one line of JSON a trial: durable as soon as it is known, so that a sweep can go on.

A prediction is a line of its own, written before its trial starts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from chaos.errors import SweepError

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
        """Creates it, or goes on with it. Raises SweepError if it belongs to another sweep."""
        self.path = folder / RESULTS
        self.results: dict[str, Result] = {}
        header = {"format": FORMAT, **identity}
        if self.path.exists():
            self._read(header)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self._append(header)

    def predict(self, trials: Iterable[tuple[str, list[Any]]]) -> None:
        """What the trials are expected to cost; durable before the first of them starts."""
        self._append(*({"prediction": name, "recoveries": expected} for name, expected in trials))

    def add(self, result: Result) -> None:
        """One trial is over."""
        self._append({"result": asdict(result)})
        self.results[result.trial] = result

    def _read(self, header: Mapping[str, Any]) -> None:
        whole = self.path.read_bytes()
        complete = whole[: whole.rfind(b"\n") + 1]
        lines = [json.loads(line) for line in complete.splitlines()]
        if not lines or lines[0] != json.loads(json.dumps(header)):
            raise SweepError(f"{self.path}: belongs to another sweep (another experiment, code or choice of trials): "
                             "give another --output, or the options that it was begun with")
        if len(complete) < len(whole):
            with self.path.open("r+b") as file:
                file.truncate(len(complete))
        found = [Result.from_json(line["result"]) for line in lines[1:] if "result" in line]
        self.results = {result.trial: result for result in found}

    def _append(self, *values: Mapping[str, Any]) -> None:
        text = "".join(json.dumps(value, sort_keys=True) + "\n" for value in values)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
