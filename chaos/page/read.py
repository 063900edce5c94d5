"""Reading shell: a folder → what its part of the page shows. What kind of folder it is, it says itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from chaos.audit.events import Fenced
from chaos.audit.formats import FormatError, read_regular
from chaos.audit.read_run import read_evidence
from chaos.audit.verdict import judge
from chaos.cost.clocks import Clocks, clocks
from chaos.cost.files import RESULT as INTERVALS
from chaos.cost.files import read_result
from chaos.cost.measure import costs_of
from chaos.cost.read import read_run
from chaos.cost.values import Recovery
from chaos.errors import NotARun, ReportError
from chaos.page import words
from chaos.page.intervals_page import intervals_page
from chaos.page.measured import read_measured
from chaos.page.pages import IntervalsPage, RunPage, SweepPage
from chaos.page.run_page import run_page
from chaos.page.sweep_page import sweep_page
from chaos.sweep.results import FORMAT as SWEEP
from chaos.sweep.results import RESULTS, Result, as_written
from storage.errors import StorageError

Shown: TypeAlias = RunPage | SweepPage | IntervalsPage


def read_folder(folder: Path, say: Callable[[str], None] = lambda text: None) -> Shown:
    """Raises NotARun for a folder that is none of those, ReportError for one whose results cannot be read."""
    if (folder / "history").is_dir() or (folder / "store").is_dir():
        return _run(folder, say)
    if (folder / RESULTS).is_file():
        return _sweep(folder, say)
    if (folder / INTERVALS).is_file():
        say(f"reading {folder}")
        return intervals_page(read_result(folder), str(folder))
    raise NotARun(
        f"{folder}: is no run (it has neither history/ nor store/), no sweep (no {RESULTS}) and no measurement of "
        f"intervals (no {INTERVALS})"
    )


def _run(folder: Path, say: Callable[[str], None]) -> RunPage:
    say(f"reading {folder}")
    evidence = read_evidence(folder)
    measured = read_measured(folder / "history", evidence.history)
    say(f"judging {folder}")
    verdict = judge(evidence)
    recorded = _recorded(folder / "verdict.json")
    parts, hosts = _measured(folder)
    restarted = any(event.attempt for event in evidence.history.by_kind.get(Fenced, ()))
    return run_page(evidence, measured, verdict, recorded, parts if restarted else (), str(folder), hosts)


def _measured(folder: Path) -> tuple[tuple[Recovery, ...], Clocks | None]:
    """Recoveries part by part, and how hosts' clocks compare; nothing of a history that does not say that much, which
    the auditor says more of.
    """
    try:
        witnessed = read_run(folder)
    except StorageError:
        return (), None
    return costs_of(witnessed).recoveries, clocks(witnessed)


def _recorded(path: Path) -> dict[str, Any] | None:
    """verdict.json; None if there is none, or if it is not what its contract says."""
    try:
        body = json.loads(read_regular(path))
        invariants, faults = words.invariants(body), words.struck(body)
        texts = [body["verdict"], *body["unseen"], *(text for each in invariants for text in (each.name, each.witness))]
    except (OSError, FormatError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
    return body if all(isinstance(text, str) for text in texts) and isinstance(faults, tuple) else None


def _sweep(folder: Path, say: Callable[[str], None]) -> SweepPage:
    say(f"reading {folder}")
    path = folder / RESULTS
    lines = path.read_bytes().split(b"\n")[:-1]  # a torn last line is nobody's result
    try:
        header, *rest = [json.loads(line) for line in lines]
        if header["format"] != SWEEP:
            raise ReportError(f"{path}: is in format {header['format']!r}, this release reads {SWEEP}")
        predictions = {line["prediction"]: line["recoveries"] for line in rest if "prediction" in line}
        results = [Result.from_json(line["result"]) for line in rest if "result" in line]
        for name in (each.trial for each in results if not as_written(each, predictions.get(each.trial))):
            raise ReportError(f"{path}: the result of {name} is not what its prediction says: one was changed")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReportError(f"{path}: is no sweep's results: {error!r:.100}; `killpoint sweep` writes them") from error
    return sweep_page(header, predictions, results, str(folder))
