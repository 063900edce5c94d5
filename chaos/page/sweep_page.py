"""One sweep as values: the trials of results.jsonl in, everything that its part of the page says out. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from chaos.page.pages import Cell, Number, SweepPage, TrialRow
from chaos.page.words import count, seconds
from chaos.points import CATALOGUE
from chaos.report import who
from chaos.sweep.results import Ending, Result

_LETTERS = {Ending.INVALID: "I", Ending.UNKNOWN: "U", Ending.UNFINISHED: "L"}
_USER = "user"


def sweep_page(
    header: Mapping[str, Any],
    predictions: Mapping[str, Sequence[Mapping[str, Any]]],
    results: Sequence[Result],
    folder: str,
) -> SweepPage:
    """predictions: by trial, as they were written before it started. A trial without a result has not been done."""
    rows = tuple(row for result in results for row in _rows(result, predictions.get(result.trial, ())))
    missing = len(predictions.keys() - {result.trial for result in results})
    verdict = _verdict(results, missing)
    failing = tuple(row for row in {row.name: row for row in rows if not row.good}.values())
    good = sum(result.good for result in results)
    said = [f"{good} of {count(len(results), 'trial')} are as they have to be: the kill struck, the recovery was valid "
            "beside its twin, and it cost what had been predicted."]  # fmt: skip
    if missing and "check" in header:
        said.append(f"{count(missing, 'trial')} of those that were drawn up {'was' if missing == 1 else 'were'} not "
                    "done: a check leaves out what its time has no room for, and says itself whether the rest was "
                    "enough.")  # fmt: skip
    elif missing:
        said.append(f"{count(missing, 'trial')} has no result yet: the sweep is not finished." if missing == 1 else
                    f"{missing} trials have no result yet: the sweep is not finished.")  # fmt: skip
    headline = {"valid": "Wherever it was killed, it came back", "invalid": "Some kills did not come back as they must",
                "unknown": "It cannot be judged"}[verdict]  # fmt: skip
    facts = (("configuration", str(header.get("config", "unknown"))), ("code", str(header.get("code", "unknown"))))
    return SweepPage(
        f"{'Check' if 'check' in header else 'Sweep'} {folder.rstrip('/').rpartition('/')[2]}", folder, verdict,
        headline, tuple(said), facts, "",
        tuple(_numbers(results, rows)), tuple(_cells(results)), rows, failing,
    )  # fmt: skip


def _verdict(results: Sequence[Result], missing: int) -> str:
    if any(result.ending is Ending.INVALID or result.predicted is False for result in results):
        return "invalid"
    return "valid" if results and not missing and all(result.good for result in results) else "unknown"


def _rows(result: Result, predicted: Sequence[Mapping[str, Any]]) -> list[TrialRow]:
    """One for each recovery; a trial without any is one row."""
    rows = []
    found: Sequence[Any] = result.recoveries or (None,)
    for number, recovery in enumerate(found):
        low, high = _range(predicted[number] if number < len(predicted) else {})
        rows.append(TrialRow(
            result.trial, result.point, who(result.role, result.rank), result.ending.value, result.good,
            None if recovery is None else recovery.redo_steps, low, high,
            None if recovery is None else recovery.first_step_s, result.why, result.reproduce,
        ))  # fmt: skip
    return rows


def _range(prediction: Mapping[str, Any]) -> tuple[int | None, int | None]:
    found = prediction.get("redo_steps")
    whole = isinstance(found, list) and len(found) == 2 and all(isinstance(each, int) for each in found)
    return (found[0], found[1]) if whole and isinstance(found, list) else (None, None)


def _cells(results: Sequence[Result]) -> list[Cell]:
    """In the catalogue's order, then by process."""
    places: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        places.setdefault((result.point, who(result.role, result.rank)), []).append(result)
    order = {name: number for number, name in enumerate(CATALOGUE)}
    cells = []
    for (point, process), mine in places.items():
        letters = Counter(letter for result in mine if (letter := _letter(result)))
        known = CATALOGUE.get(point)
        cells.append(Cell(point, known.group if known else _USER, process, len(mine), sum(letters.values()),
                          "".join(sorted(letters))))  # fmt: skip
    return sorted(cells, key=lambda cell: (order.get(cell.point, len(order)), cell.point, cell.who))


def _letter(result: Result) -> str:
    if result.ending in _LETTERS:
        return _LETTERS[result.ending]
    if result.struck != result.planned:
        return "N"
    return "R" if result.predicted is False else ""


def _numbers(results: Sequence[Result], rows: Sequence[TrialRow]) -> list[Number]:
    fired = sum(result.struck == result.planned for result in results)
    judged = [result for result in results if result.predicted is not None]
    met = sum(result.predicted is True for result in judged)
    first = [row.first_step_s for row in rows if row.first_step_s is not None]
    found = [
        Number("Trials valid", f"{sum(r.ending is Ending.VALID for r in results):,}", "trials", f"of {len(results):,}"),
        Number("Kills that struck", f"{fired:,}", "trials", f"of {len(results):,}"),
        Number("Predictions of redo met", f"{met:,}", "trials", f"of {len(judged):,} with one"),
    ]
    if first:
        found.append(Number("Kill to first new step", seconds(statistics.median(first)), "s",
                            f"median of {count(len(first), 'recovery', 'recoveries')}",
                            f"worst {seconds(max(first))} s"))  # fmt: skip
    return found
