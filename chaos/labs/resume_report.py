"""The report of `lab resume` on the terminal, from its JSON. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Values = Mapping[str, Any]


def render(report: Values, folder: Path) -> RenderableType:
    """One record a step, one line a comparison, then a sentence."""
    return Group(_steps(report), Text(), _comparisons(report), Text(), *_conclusion(report, folder))


def _steps(report: Values) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("journey", "step", "samples", "rate", "loss", "first differs in"):
        table.add_column(column, justify="left" if column in ("journey", "first differs in") else "right", no_wrap=True)
    first = {c["journey"]: c["first_difference"] for c in (report["positive"], *report["negative"])}
    for name, journey in report["journeys"].items():
        for row in journey["steps"]:
            difference = first.get(name)
            here = difference is not None and difference["step"] == row["step"]
            later = difference is not None and difference["step"] <= row["step"]
            what = difference["what"] if here and difference is not None else ""
            table.add_row(name, str(row["step"]), " ".join(map(str, row["ids"])), f"{row['rate']:g}",
                          f"{row['loss']:.12f}", what, style="red" if later else None)
    return table


def _comparisons(report: Values) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("compared with continuous", "greatest weight deviation", "final MSE − continuous", "differs in"):
        table.add_column(column, justify="right" if "−" in column or "weight" in column else "left")
    for comparison in (report["positive"], *report["negative"]):
        table.add_row(comparison["journey"], f"{comparison['weight_deviation']:.4g}",
                      f"{comparison['mse_difference']:+.4g}" if comparison["mse_difference"] else "0",
                      ", ".join(comparison["differs_in"]) or "nothing")
    return table


def _conclusion(report: Values, folder: Path) -> list[Text]:
    positive = report["positive"]
    missed = [comparison["journey"] for comparison in report["negative"] if comparison["equal"]]
    step, more = report["cut_step"], report["additional_steps"]
    reasons = []
    if not report["cut_equals_continuous"]:
        reasons.append("the first part of the training is not the same in two processes")
    if not positive["equal"]:
        reasons.append(f"the full resume differs in {', '.join(positive['differs_in'])}")
    reasons += [f"the resume {name} was not caught" for name in missed]
    if reasons:
        result = Text(f"failed: {'; '.join(reasons)}", style="bold red")
    else:
        result = Text(f"passed: resumed at step {step} and {more} updates later in a fresh process, everything equals "
                      f"the continuous training (greatest deviation {positive['deviation']:g}), and every incomplete "
                      "resume was caught", style="green")
    lines = [result]
    lower = [c["journey"] for c in report["negative"] if not c["equal"] and c["mse_difference"] < 0]
    if lower:
        lines.append(Text(f"A lower MSE than the continuous training's, and still wrong: {', '.join(lower)}."))
    return [*lines, Text(f"everything lies in {folder}; the command is {report['command']}")]
