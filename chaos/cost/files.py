"""The files of `killpoint intervals`: the journal, durable line by line so that it can go on, and the result.

A prediction is a line of its own, written before the run that it is of starts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from chaos.cost.values import FORMAT, Expected, Intervals, Run
from chaos.errors import IntervalsError
from chaos.journal import JournalFile

JOURNAL, RESULT = "journal.jsonl", "intervals.json"
_JOURNAL_FORMAT = "killpoint.intervals.journal/1"


class Journal:
    """Which runs are done and what was expected of which. A torn last line counts for nothing."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        """Creates it, or goes on with it. Raises IntervalsError if it is damaged or belongs to something else."""
        what = "was begun with another experiment, code or choice of kills"
        self._file = JournalFile(folder / JOURNAL, {"format": _JOURNAL_FORMAT, **identity}, IntervalsError, what)
        self.path = self._file.path
        self.runs: dict[str, Run] = {}
        self.expected: dict[str, tuple[Expected, ...]] = {}
        run, expected = TypeAdapter(Run), TypeAdapter(tuple[Expected, ...])

        def row(line: Mapping[str, Any]) -> None:
            if "run" in line:
                found = run.validate_python(line["run"])
                self.runs[found.name] = found
            else:
                self.expected[line["expected"]] = expected.validate_python(line["kills"])

        for _ in self._file.rows(row):
            pass

    def expect(self, run: str, kills: Iterable[Expected]) -> None:
        """What the run's kills must cost; durable when this returns, and written once.

        Raises IntervalsError if something else was written before.
        """
        planned = tuple(kills)
        if run not in self.expected:
            self.expected[run] = planned
            self._file.append({"expected": run, "kills": [asdict(each) for each in planned]})
        elif self.expected[run] != planned:
            raise IntervalsError(f"{self.path}: what was expected of {run} is not what its plan says: the file was "
                                 "changed; give another --output")  # fmt: skip

    def add(self, run: Run) -> None:
        """The run is over and judged."""
        self._file.append({"run": asdict(run)})
        self.runs[run.name] = run


def write_result(folder: Path, result: Intervals) -> Path:
    """`intervals.json`; whole or not at all. Returns its path."""
    path, draft = folder / RESULT, folder / f"{RESULT}.tmp"
    draft.write_text(json.dumps(asdict(result), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(draft, path)
    return path


def read_result(path: Path) -> Intervals:
    """Of `intervals.json`, or the folder that holds it. Raises IntervalsError if it is none, or of another format."""
    file = path / RESULT if path.is_dir() else path
    try:
        value = json.loads(file.read_bytes())
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise IntervalsError(f"{file}: is no result of `killpoint intervals` in format {FORMAT}")
        return TypeAdapter(Intervals).validate_python(value)
    except OSError as error:
        raise IntervalsError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, ValidationError) as error:
        raise IntervalsError(f"{file}: is not whole: {str(error).splitlines()[0]}") from error
