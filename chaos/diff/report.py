"""The result of a comparison on the terminal, from its JSON. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_SHOWN_PARTS, _SHOWN_ITEMS = 12, 3
_STYLES = {"no difference": "green", "different": "bold red", "could not compare": "yellow"}
Json = Mapping[str, Any]


def render(report: Json) -> RenderableType:
    """The whole report: what was compared, the first difference, its causes, how large, what is set apart."""
    body = _checkpoints if report["what"] == "checkpoints" else _traces
    result = report["result"]
    return Group(*body(report), *_apart(report), Text.assemble("result: ", (result, _STYLES[result])))


def _traces(report: Json) -> Iterator[RenderableType]:
    for name in ("a", "b"):
        side = report[name]
        yield Text(f"{name.upper()}: {side['label']}, {_count(side['attempts'], 'attempt')}, "
                   f"{_count(side['records'], 'record')}")  # fmt: skip
    if report["swapped"]:
        yield Text("A and B were exchanged: the one with fewer attempts is what the other is held against", style="dim")
    compared = report["compared"]
    steps = "" if compared["steps"] is None else f" of steps {compared['steps'][0]}–{compared['steps'][1]}"
    what = ", ".join((*compared["fields"], *compared["parts"]))
    counts = f"{_count(compared['records'], 'record')} of B{steps} and {_count(compared['starts'], 'start')}"
    yield Text(f"compared, bit for bit: {counts}: {what}")
    for line in report["not_compared"]:
        yield Text(f"not compared: {line}")
    for line in report["problems"]:
        yield Text(f"missing evidence: {line}", style="yellow")
    for difference in report["structure"]:
        yield Text(f"{difference['part']}: {difference['detail']}")
    if report["length"]:
        yield from _causes([report["length"]])
    if report["first"]:
        yield from _divergence(report["first"], "First difference")
    if report["magnitude"]:
        at = report["magnitude"]
        yield Text(f"How large, in the checkpoints of step {at['step']} ({at['a']} and {at['b']})", style="bold")
        yield _items(at["parts"]) if at["parts"] else Text("nothing differs there: every part is equal again")
    for other in report["others"]:
        if other["inherited_from"] is not None:
            yield Text(f"{_who(other)} has its difference from the checkpoint of attempt {other['inherited_from']}")
        else:
            yield from _divergence(other, "Also")


def _who(divergence: Json) -> str:
    return f"attempt {divergence['attempt']} of {divergence['side']}"


def _divergence(divergence: Json, title: str) -> Iterator[RenderableType]:
    where = (f"in what {_who(divergence)} restored after step {divergence['step']}" if divergence["where"] == "restored"
             else f"in update {divergence['step']} of {_who(divergence)}")  # fmt: skip
    yield Text(f"{title}: {where}", style="bold")
    yield _differences(divergence["differences"])
    earliest, changed = divergence["earliest_update"], divergence["changed_update"]
    yield Text("it can change " + (f"update {earliest} at the earliest" if earliest else "no update that A shows")
               + (f"; update {changed} is the first one that is seen to be another" if changed
                  else "; no update is seen to be another"))  # fmt: skip
    yield from _causes(divergence["causes"])
    if divergence["where"] == "restored" and divergence["changes"]:
        yield Text(f"How update {changed} then differs", style="bold")
        yield _differences(divergence["changes"])


def _differences(rows: Sequence[Json]) -> Table:
    table = _table("part", "ranks", "difference", "absolute", "relative")
    for row in rows[:_SHOWN_PARTS]:
        table.add_row(*_row(row))
    return table


def _table(*columns: str) -> Table:
    table = Table(header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _row(row: Json) -> tuple[str, ...]:
    numbers = ("" if row[name] is None else f"{row[name]:.3g}" for name in ("magnitude", "relative"))
    return (row["part"], ", ".join(map(str, row["ranks"])), row["detail"], *numbers)


def _causes(findings: Sequence[Sequence[Json]]) -> Iterator[RenderableType]:
    for finding in findings:
        for place, cause in enumerate(finding):
            lead = "likeliest cause: " if place == 0 else "  would look alike: "
            yield Text.assemble(lead, (f"{cause['kind']} ({cause['part']})", "bold" if place == 0 else ""),
                                f": {cause['text']}")  # fmt: skip


def _items(parts: Sequence[Json]) -> Table:
    table = _table("part", "tensor or field", "difference", "absolute", "relative")
    for part in parts[:_SHOWN_PARTS]:
        name = part["part"] if part["rank"] is None else f"{part['part']}, rank {part['rank']}"
        for item in part["items"][:_SHOWN_ITEMS]:
            row = _row(item)
            table.add_row(name, row[0], *row[2:])
        if (more := len(part["items"]) - _SHOWN_ITEMS) > 0:
            table.add_row(name, f"… {more} more", "", "", "")
    if (more := len(parts) - _SHOWN_PARTS) > 0:
        table.add_row(f"… {more} more parts", "", "", "", "")
    return table


def _checkpoints(report: Json) -> Iterator[RenderableType]:
    for name in ("a", "b"):
        side = report[name]
        held = "" if side["shards"] else ", its shards are gone: only digests are known"
        yield Text(f"{name.upper()}: {side['label']}, step {side['step']}{held}")
    yield Text(f"compared: {_count(report['compared']['parts'], 'part')}, every tensor and every field, bit for bit")
    for difference in report["structure"]:
        yield Text(difference["detail"])
    if report["parts"]:
        yield Text("Differences", style="bold")
        yield _items(report["parts"])
        yield Text(f"they can change update {report['earliest_update']} at the earliest")
    yield from _causes(report["causes"])


def _apart(report: Json) -> Iterator[RenderableType]:
    """What is no difference of the training itself."""
    if report["settings"]:
        named = "; ".join(f"{name}: {_short(a)} and {_short(b)}" for name, (a, b) in report["settings"].items())
        yield Text(f"other settings: {named}", style="yellow")
    if report["metadata"]:
        yield Text(f"only metadata, set apart: {', '.join(report['metadata'])}", style="dim")


def _short(text: str | None) -> str:
    return "none" if text is None else text if len(text) <= 24 else f"{text[:22]}…"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
