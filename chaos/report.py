"""The report of a run on the terminal, rendered from the verdict's JSON. Decides nothing.

Its first line has seed, configuration digest, code version and the command that reproduces the run.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from chaos.printable import printable
from storage.errors import StorageError
from storage.log import Choose, CommitLog, entry_name
from storage.objects import LocalObjects
from storage.sealed import unseal

STYLES = {"valid": "green", "invalid": "bold red", "unknown": "yellow", "not_judged": "dim"}
_UNBOUNDED = 1 << 16  # columns of a file or a pipe: nothing is wrapped, a line stays one that `grep` finds
_GAP = 2
_LEAST = 24  # columns of running text beside other columns; with less, records become blocks
_UNKNOWN = "–"


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


def print_results(results: RenderableType) -> None:
    """Prints to standard output: fitted to a terminal, unwrapped and without trailing blanks anywhere else."""
    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        console.print(results, crop=False)
        return
    plain = Console(highlight=False, markup=False, width=_UNBOUNDED, color_system=None)
    with plain.capture() as captured:
        plain.print(results)
    for line in captured.get().splitlines():
        print(line.rstrip())


@dataclass(frozen=True)
class Records:
    """Records under a title: a table where it fits without breaking a word, else each one as a block of lines.

    `prose`: the columns whose text may be wrapped between words.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str | Text]]
    prose: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield Text(self.title, style="bold")
        widths = [self._least(index) for index in range(len(self.columns))]
        if sum(widths) + _GAP * (len(widths) - 1) <= options.max_width:
            yield self._table(widths)
        else:
            yield from self._blocks()
        yield Text()

    def _least(self, index: int) -> int:
        """The width below which the column would break a word, or running text become a thread."""
        cells = [self.columns[index], *(str(row[index]) for row in self.rows)]
        longest = max(map(cell_len, cells))
        if self.columns[index] not in self.prose:
            return longest
        return max(min(longest, _LEAST), *(cell_len(word) for cell in cells for word in cell.split() or [""]))

    def _table(self, widths: Sequence[int]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
        for name, width in zip(self.columns, widths, strict=True):
            justify: Literal["left", "right"] = "right" if name in self.numbers else "left"
            table.add_column(name, no_wrap=name not in self.prose, min_width=width, justify=justify)
        for row in self.rows:
            table.add_row(*row)
        return table

    def _blocks(self) -> Iterator[RenderableType]:
        for row in self.rows:
            pairs = [(name, cell) for name, cell in zip(self.columns, row, strict=True) if str(cell)]
            for number, (name, cell) in enumerate(pairs):
                line = Text.assemble((f"{name}: " if name else "", "dim"), cell)
                yield Padding(line, (0, 0, 0, 2 if number else 0))


@dataclass(frozen=True)
class Facts:
    """Facts on one line where they fit, else one a line; none of them is ever broken."""

    facts: tuple[str, ...]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        line = Text(" · ".join(self.facts), no_wrap=True, overflow="ignore")
        if line.cell_len <= options.max_width:
            yield line
        else:
            yield from (Text(fact, no_wrap=True, overflow="ignore") for fact in self.facts)
        yield Text()


def render(verdict: Mapping[str, Any], choices: Sequence[Choice], folder: Path) -> RenderableType:
    """The whole report. What was read from disk may be anything, so every text is made printable first."""
    safe = [Choice(each.attempt, *printable((each.name, each.rejected))) for each in choices]
    return Group(*_parts(printable(verdict), safe, Path(printable(str(folder)))))


def _parts(verdict: Mapping[str, Any], choices: Sequence[Choice], folder: Path) -> Iterator[RenderableType]:
    yield Facts((
        f"seed {verdict['seed']}", f"config {verdict['config_digest']}", f"code {verdict['code_version']}",
        f"reproduce: {verdict['reproduce']}",
    ))  # fmt: skip
    if verdict["faults"]:
        yield _faults(verdict["faults"])
    if verdict["recoveries"]:
        yield _recoveries(verdict["recoveries"], {choice.attempt: choice for choice in choices})
    yield _invariants(verdict["invariants"])
    if verdict["unseen"]:
        yield Text("What this run could not have seen")
        yield _bulleted(verdict["unseen"])
    yield render_end(verdict, folder)


def render_end(verdict: Mapping[str, Any], folder: Path) -> RenderableType:
    """The last two lines: where the run is, and how it was judged."""
    run = Text(f"run: {folder}", no_wrap=True, overflow="ignore")
    return Group(run, Text.assemble("verdict: ", (verdict["verdict"], STYLES.get(verdict["verdict"], ""))))


def _bulleted(lines: Iterable[str]) -> Table:
    """One line each; what does not fit goes on below its own text."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for line in lines:
        table.add_row("  -", Text(line))
    return table


def _faults(faults: Sequence[Mapping[str, Any]]) -> Records:
    rows = [
        (
            str(fault["attempt"]),
            who(fault["role"], fault["rank"]),
            _where(fault),
            fault["kind"],
            _receipt(fault["receipt"]),
            _observed(fault["observed"]),
        )
        for fault in faults
    ]
    return Records("Faults", ("attempt", "who", "where", "kind", "receipt", "observed"), rows)


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


def _recoveries(recoveries: Sequence[Mapping[str, Any]], choices: Mapping[int, Choice]) -> RenderableType:
    numbers = ("redone steps", "samples", "detect s", "reacquire s", "load s", "redo s", "to first step s")
    rows = []
    for recovery in recoveries:
        choice, step = choices.get(recovery["attempt"]), recovery["restored_step"]
        name = choice.name if choice and choice.name else _UNKNOWN if step is None else f"step {step}"
        rejected = "; ".join(f"{n}: {why}" for n, why in choice.rejected) if choice else ""
        times = (recovery[f"{part}_s"] for part in ("detect", "reacquire", "load", "redo", "first_step"))
        counts = (recovery["redo_steps"], recovery["redo_samples"])
        shown = (*map(_count, counts), *map(_seconds, times))
        rows.append((str(recovery["attempt"]), name, rejected or "none", *shown))
    columns = ("attempt", "restored", "newer, rejected", *numbers)
    records = Records("Recoveries", columns, rows, prose=("newer, rejected",), numbers=numbers)
    if not any(_UNKNOWN in row for row in rows):
        return records
    return Group(records, Text(f"{_UNKNOWN}: the attempt ended before that, or nothing on disk says it"), Text())


def _invariants(invariants: Sequence[Mapping[str, Any]]) -> Records:
    rows = [
        (str(i["id"]), i["name"], Text(i["verdict"], style=STYLES.get(i["verdict"], "")), i["witness"])
        for i in invariants
    ]
    return Records("Invariants", ("", "name", "verdict", "witness"), rows, prose=("witness",))


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
    return _UNKNOWN if value is None else str(value)


def _seconds(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.3f}"
