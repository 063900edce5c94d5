"""The report of a run on the terminal, rendered from the verdict's JSON. Decides nothing.

Its first line has seed, configuration digest, code version and the command that reproduces the run.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from chaos.export import Exported
from chaos.passages import PassageCount
from chaos.points import Point
from storage.errors import StorageError
from storage.log import Choose, CommitLog, entry_name
from storage.objects import LocalObjects
from storage.sealed import unseal

STYLES = {"valid": "green", "invalid": "bold red", "unknown": "yellow", "not_judged": "dim"}
_WIDTH_UNSEEN = 120  # columns where no terminal says how many there are


@dataclass(frozen=True, slots=True)
class Choice:
    """What an attempt started from, and why each newer candidate was rejected."""

    attempt: int
    name: str | None
    rejected: tuple[tuple[str, str], ...]


def read_choices(folder: Path) -> tuple[Choice, ...]:
    """The choose entries of the commit log; none if it cannot be read (the verdict says so)."""
    objects = LocalObjects(folder / "store")
    try:
        run = unseal(objects.read(entry_name(0)), entry_name(0))[0]["run"]
        entries = CommitLog(objects, run).read()
    except (StorageError, KeyError):
        return ()
    return tuple(
        Choice(
            entry.attempt,
            entry.parent.name if entry.parent else None,
            tuple((c.name, c.reason) for c in entry.candidates if c.status == "rejected"),
        )
        for entry in entries
        if isinstance(entry, Choose)
    )


def results_console() -> Console:
    """Where results go: standard output."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=_WIDTH_UNSEEN)


def render(verdict: Mapping[str, Any], choices: Sequence[Choice], folder: Path) -> RenderableType:
    """The whole report."""
    return Group(*_parts(verdict, choices, folder))


def _parts(verdict: Mapping[str, Any], choices: Sequence[Choice], folder: Path) -> Iterator[RenderableType]:
    yield Text(
        f"seed {verdict['seed']} · config {verdict['config_digest']} · code {verdict['code_version']} · "
        f"reproduce: {verdict['reproduce']}"
    )
    if verdict["faults"]:
        yield _faults(verdict["faults"])
    if verdict["recoveries"]:
        yield _recoveries(verdict["recoveries"], {choice.attempt: choice for choice in choices})
    yield _invariants(verdict["invariants"])
    if verdict["unseen"]:
        yield Text("What this run could not have seen")
        for line in verdict["unseen"]:
            yield Text(f"  - {line}")
    if verdict.get("failure"):
        yield Text(f"stopped: {verdict['failure']}", style="yellow")
    yield Text(f"run: {folder}")
    yield Text.assemble("verdict: ", (verdict["verdict"], STYLES.get(verdict["verdict"], "")))


def export_report(done: Exported) -> str:
    """A short proof: what was found, what was checked, and with which command to check again."""
    lines = [f"checkpoint {done.checkpoint}, step {done.step}, {done.files} files: {done.folder}"]
    lines += [f"passed over {reason}" for reason in done.rejected]
    if done.proof is None:
        return "\n".join([*lines, "weights only, for inference: training cannot go on from them"])
    lines += [f"checked with: {done.command}", f"  found step {done.proof['step']} of {done.proof['world']} ranks"]
    lines += [f"  passed: {check}" for check in done.proof["checks"]]
    if not done.proof["same_code"]:
        lines.append("  the sources have changed since the run: that training goes on bit for bit is not claimed")
    return "\n".join([*lines, "A digest detects change; it does not authenticate."])


def _faults(faults: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("Faults", "attempt", "who", "where", "kind", "receipt", "observed")
    for fault in faults:
        table.add_row(
            str(fault["attempt"]),
            who(fault["role"], fault["rank"]),
            _where(fault),
            fault["kind"],
            _receipt(fault["receipt"]),
            _observed(fault["observed"]),
        )
    return table


def _where(fault: Mapping[str, Any]) -> str:
    if fault["point"] is not None:
        return f"{fault['point']} hit {fault['hit']}"
    after_s = fault.get("after_s")
    return "at a time" if after_s is None else f"after {after_s:.3f} s of training"


def _receipt(receipt: Mapping[str, Any] | None) -> Text:
    if receipt is None:
        return Text("none: did not fire", style="yellow")
    target = receipt.get("target") or {}
    return Text(f"pid {target.get('pid', '?')}" + (", gate held" if receipt.get("gate") else ""))


def _observed(observed: Mapping[str, Any] | None) -> Text:
    if observed is None:
        return Text("nothing", style="yellow")
    words = [f"pid {observed['pid']}"] if observed.get("pid") is not None else []
    if observed.get("how"):
        words.append(str(observed["how"]))
    if observed.get("signal") is not None:
        words.append(signal_name(observed["signal"]))
    elif observed.get("code") is not None:
        words.append(f"exit code {observed['code']}")
    return Text(", ".join(words) or "yes")


def _recoveries(recoveries: Sequence[Mapping[str, Any]], choices: Mapping[int, Choice]) -> Table:
    table = _table(
        "Recoveries",
        "attempt",
        "restored",
        "newer, rejected",
        "redone steps",
        "samples",
        "detect s",
        "reacquire s",
        "load s",
        "redo s",
        "to first step s",
    )
    for column in table.columns[3:]:
        column.justify = "right"
    for recovery in recoveries:
        choice = choices.get(recovery["attempt"])
        name = choice.name if choice and choice.name else f"step {recovery['restored_step']}"
        rejected = "\n".join(f"{n}: {why}" for n, why in choice.rejected) if choice else ""
        times = (recovery[f"{part}_s"] for part in ("detect", "reacquire", "load", "redo", "first_step"))
        table.add_row(
            str(recovery["attempt"]),
            name,
            rejected or "none",
            _count(recovery["redo_steps"]),
            _count(recovery["redo_samples"]),
            *(_seconds(value) for value in times),
        )
    return table


def _invariants(invariants: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("Invariants", "", "name", "verdict", "witness")
    for invariant in invariants:
        verdict = invariant["verdict"]
        style = STYLES.get(verdict, "")
        witness = Text(invariant["witness"])
        table.add_row(str(invariant["id"]), invariant["name"], Text(verdict, style=style), witness)
    return table


def render_points(
    points: Iterable[Point], counts: Sequence[PassageCount], *, recorded: bool
) -> RenderableType:
    """The catalogue, with what a run passed if one was recorded. Points of the code under test come last."""
    table = _table("Kill points", "point", "roles", "passages" if recorded else "description")
    known = {point.name: point for point in points}
    for name in [*known, *sorted({count.point for count in counts} - known.keys())]:
        point = known.get(name)
        roles = " ".join(role.value for role in point.roles) if point else "rank"
        passed = ", ".join(f"{who(c.role, c.rank)}: {c.hits}" for c in counts if c.point == name)
        description = point.description if point else ""
        table.add_row(name, roles, (passed or "none") if recorded else description)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def who(role: str, rank: int | None) -> str:
    """`rank 1`, `committer`."""
    return role if rank is None else f"{role} {rank}"


def signal_name(number: int) -> str:
    """`SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


def _seconds(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"
