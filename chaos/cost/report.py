"""The result of `killpoint intervals` on the terminal. Decides nothing; every row says how many observations it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from chaos.cost.values import PARTS, Estimate, Intervals, Recommendation, Row, Spreading
from chaos.printable import printable
from chaos.report import STYLES, Facts, Records

_UNKNOWN = "–"
_BAR = 30  # columns of the longest bar
_MIB = 1 << 20
_PART_NAMES = {"first_step": "first step"}


def render(result: Intervals, file: Path) -> RenderableType:
    """Everything, the verdict last."""
    return Group(*_sections(result, Path(printable(str(file)))))


def _sections(result: Intervals, file: Path) -> Iterator[RenderableType]:
    asked = result.asked
    yield Facts((f"seed {asked.seed}", f"config {result.config_digest}", f"code {result.code_version}",
                 f"reproduce: {printable(result.reproduce)}"))  # fmt: skip
    yield Facts((f"{printable(result.workload)}: {result.ranks} ranks, {result.microbatches} microbatches",
                 f"{result.steps} steps a run, {len(result.runs)} runs", f"kills: {_SPREADS[asked.spread]}",
                 f"in brackets: 95 %, {asked.resamples} resamples"))  # fmt: skip
    yield _saves(result.rows)
    yield _redo(result.rows)
    yield _recovery(result.rows)
    yield _goodput(result)
    if result.recommendation is not None:
        yield Text("Which interval", style="bold")
        yield _recommendation(result.recommendation, result)
        yield Text()
    yield from _failures(result)
    yield Text("What these numbers do not say")
    yield _bulleted(result.notes)
    yield Text(f"result: {file}", no_wrap=True, overflow="ignore")
    yield Text.assemble("verdict: ", (result.verdict, STYLES.get(result.verdict, "")))


_SPREADS = {"even": "evenly over the interval", "exponential": "at random times"}


def _saves(rows: Sequence[Row]) -> Records:
    columns = ("every", "saves", "step ms", "stall ms", "wait ms", "slower steps ms", "until published ms", "MiB",
               "a save costs ms", "of the steps' time %")  # fmt: skip
    body = [
        (str(row.every), _n(row.stall_s), _ms(row.step_s), _ms(row.stall_s), _ms(row.wait_s), _ms(row.contention_s),
         _ms(row.background_s), _number(row.save_bytes, 1 / _MIB, 2), _interval(row.save_s, 1e3, 1),
         _interval(row.overhead, 100, 2))
        for row in rows
    ]  # fmt: skip
    return Records("Saves", columns, body, numbers=columns)


def _redo(rows: Sequence[Row]) -> Records:
    columns = ("every", "kills", "as predicted", "redone steps", "p95", "worst", "lost work s", "p95 s", "worst s",
               "caught up s")  # fmt: skip
    body = [
        (str(row.every), str(row.kills), f"{row.met} ({row.exact} exact), {row.missed} not",
         *_spread(row.redo_steps, 1, 1), *_spread(row.lost_s, 1, 3), _mean(row.redo_s, 3))
        for row in rows
    ]  # fmt: skip
    return Records("Redo", columns, body, numbers=columns)


def _recovery(rows: Sequence[Row]) -> Records:
    names = (*PARTS, "unexplained")
    titles = tuple(_PART_NAMES.get(name, name) for name in names)
    columns = ("every", "recoveries", *titles, "that is %", "kill to first step", "worst")
    body = []
    for row in rows:
        found = {each.name: each.seconds for each in row.parts}
        whole = row.whole_s
        body.append((
            str(row.every), _n(whole.mean if whole else None), *(_number(found.get(name), 1, 3) for name in names),
            _number(row.unexplained, 100, 1),
            _interval(whole.mean if whole else None, 1, 3), _UNKNOWN if whole is None else f"{whole.worst:.3f}",
        ))  # fmt: skip
    return Records("Recovery, seconds by part", columns, body, numbers=columns)


def _goodput(result: Intervals) -> Records:
    title = f"Goodput: useful step time over wall time, with a failure every {result.asked.mtbf_s:g} s on average"
    known = [row.goodput.value for row in result.rows if row.goodput is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    body = []
    for row in result.rows:
        bar = ""
        if row.goodput is not None:
            share = (row.goodput.value - low) / (high - low) if high > low else 1.0
            bar = "█" * (1 + round(share * (_BAR - 1)))
        body.append((str(row.every), _n(row.goodput), _interval(row.goodput, 100, 3), bar))
    return Records(title, ("every", "kills", "goodput %", ""), body, numbers=("every", "kills", "goodput %"))


def _recommendation(found: Recommendation, result: Intervals) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    why = "greatest expected goodput" if found.bound_by == "goodput" else "the longest within the limit on lost work"
    table.add_row("recommended", f"every {_steps(found.every)}: {why}, {_interval(found.goodput, 100, 3)} %")
    if found.bound_by == "limit":
        table.add_row("without limit", f"every {_steps(found.unlimited)}")
    if found.limit is not None:
        asked = result.asked
        limits = [f"{asked.max_redo_s:g} s"] if asked.max_redo_s is not None else []
        limits += [f"{asked.max_redo_steps} steps"] if asked.max_redo_steps is not None else []
        none = "met by no interval, not even every step"
        text = f"every {_steps(found.limit)} at most" if found.limit.value else none
        table.add_row(f"limit {' and '.join(limits)}", text)
    for formula in found.formulas:
        table.add_row(formula.name, f"every {_steps(formula.every)}, {_interval(formula.interval_s, 1, 2)} s")
    costs = (f"a step {_interval(found.step_s, 1e3, 1)} ms ({found.step_s.observations})",
             f"a save {_interval(found.save_s, 1e3, 2)} ms ({found.save_s.observations})",
             f"until published {_interval(found.background_s, 1e3, 1)} ms ({found.background_s.observations})",
             f"a failure, until training is back, {_interval(found.downtime_s, 1, 3)} s "
             f"({found.downtime_s.observations})")  # fmt: skip
    table.add_row("with these costs", "; ".join(costs) + "; in parentheses: observations")
    return table


def _failures(result: Intervals) -> Iterator[RenderableType]:
    for run in result.runs:
        if run.verdict != "valid":
            yield Text(f"{run.name}: {run.verdict}: {printable(run.why)}", style=STYLES[run.verdict])
    for kill in result.kills:
        if kill.met is False and kill.recovery is not None:
            got = kill.recovery
            yield Text(f"{kill.run}, attempt {kill.attempt}: expected {kill.expected}, was restored step "
                       f"{got.restored_step}, redone steps {got.redo_steps}, microbatches {got.redo_microbatches}, "
                       f"samples {got.redo_samples}", style=STYLES["invalid"])  # fmt: skip
    if not result.complete:
        yield Text("Not all runs are done.", style=STYLES["unknown"])


def _bulleted(lines: Sequence[str]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for line in lines:
        table.add_row("  -", Text(line))
    return table


def _n(found: Estimate | None) -> str:
    return "0" if found is None else str(found.observations)


def _ms(found: Estimate | None) -> str:
    return _number(found, 1e3, 1)


def _number(found: Estimate | None, scale: float, digits: int) -> str:
    return _UNKNOWN if found is None else _fixed(found.value * scale, digits)


def _fixed(value: float, digits: int) -> str:
    """Without a sign before zeros."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def _interval(found: Estimate | None, scale: float, digits: int) -> str:
    """`1.23 [1.10, 1.41]`; `1.23 [–]` of one observation, which says nothing of how far others would lie."""
    if found is None:
        return _UNKNOWN
    value, low, high = (_fixed(each * scale, digits) for each in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]" if found.observations > 1 else f"{value} [{_UNKNOWN}]"


def _steps(found: Estimate) -> str:
    """`12 steps [8, 20]`."""
    return f"{found.value:.0f} step{'' if found.value == 1 else 's'} [{found.low:.0f}, {found.high:.0f}]"


def _mean(found: Spreading | None, digits: int) -> str:
    return _interval(found.mean if found else None, 1, digits)


def _spread(found: Spreading | None, scale: float, digits: int) -> tuple[str, str, str]:
    """Mean, p95, worst."""
    if found is None:
        return _UNKNOWN, _UNKNOWN, _UNKNOWN
    return _interval(found.mean, scale, digits), f"{found.p95 * scale:.{digits}f}", f"{found.worst * scale:.{digits}f}"
