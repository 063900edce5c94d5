"""The report of `lab linreg` on the terminal, from its JSON. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Row = Mapping[str, Any]


def render(report: Row, folder: Path) -> RenderableType:
    """One record a step, then the ends, then a sentence."""
    records = report["records"]
    expected = {row["step"]: row for row in records["uninterrupted"]}
    shown = records.get("resumed", records["uninterrupted"])
    return Group(_steps(shown, expected if report["compared"] else None), _ends(report), *_conclusion(report, folder))


def _steps(rows: list[Row], expected: Mapping[int, Row] | None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("step", "samples", "w", "b", "loss of the batch", "position"):
        table.add_column(column, justify="right", no_wrap=True)
    if expected is not None:
        for column in ("Δw", "Δb", "differs in"):
            table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        cells = [str(row["step"]), " ".join(map(str, row["ids"])), f"{row['w']:.10f}", f"{row['b']:.10f}",
                 f"{row['loss']:.3e}", str(row["samplePosition"])]
        style = None
        if expected is not None:
            other = expected[row["step"]]
            names = (("ids", "samples"), ("loss", "loss"), ("w", "w"), ("b", "b"), ("samplePosition", "position"))
            differs = [label for name, label in names if row[name] != other[name]]
            cells += [_difference(row["w"], other["w"]), _difference(row["b"], other["b"]), ", ".join(differs)]
            style = "red" if differs else None
        table.add_row(*cells, style=style)
    return table


def _difference(found: float, expected: float) -> str:
    return "0" if found == expected else f"{found - expected:+.1e}"


def _ends(report: Row) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "step", "w", "b", "MSE over 16 points", "position"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for name in ("snapshot", "uninterrupted", "resumed"):
        if name in report:
            end = report[name]
            table.add_row(name, str(end["step"]), f"{end['w']:.10f}", f"{end['b']:.10f}", f"{end['mse']:.10g}",
                          str(end["samplePosition"]))
    return table


def _conclusion(report: Row, folder: Path) -> list[Text]:
    lines = [Text(f"everything lies in {folder}; the command is {report['command']}")]
    if not report["compared"]:
        return [Text("One uninterrupted training; nothing was compared. --resume compares."), *lines]
    count = report["steps"] - report["resumed_from"]
    if report["all_checks_passed"]:
        text = (f"passed: resumed at step {report['resumed_from']} and {count} updates later, every field of the state "
                "equals the uninterrupted training's")
        return [Text(text, style="green"), *lines]
    first, wrong = report["first_difference"], report["parts_wrong_after_restore"]
    where = f"first in {first['what']} at step {first['step']}" if first else "in the state alone"
    text = f"failed: the resumed training is not the uninterrupted one. It differs {where}"
    if wrong:
        text += f"; already wrong right after the restore: {', '.join(wrong)}"
    low = f"Its MSE of {report['resumed']['mse']:.3g} is low all the same: a low loss proves nothing."
    return [Text(text, style="bold red"), Text(low), *lines]
