"""The kill points as a list: what each is, what is in flight there, and how often a run and its recovery pass it. Pure.

The first run is undisturbed. In the second the last rank is killed once: what its supervisor passes before the next
attempt counts as recovery, and so does all that the next attempt passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from chaos.passages import PassageCount
from chaos.points import CATALOGUE, Role
from chaos.report import Records, who
from chaos.sweep.in_flight import in_flight
from chaos.sweep.outline import Outline


@dataclass(frozen=True)
class Row:
    """One point. passages, recovery: of the undisturbed run and of the recovery; None if that is not counted."""

    name: str
    group: str
    roles: tuple[str, ...]
    description: str
    in_flight: str
    passages: tuple[PassageCount, ...] | None
    recovery: tuple[PassageCount, ...] | None

    def to_json(self) -> dict[str, Any]:
        """Field by field."""
        return {
            "name": self.name, "group": self.group, "roles": list(self.roles), "description": self.description,
            "in_flight": self.in_flight, "passages": _json(self.passages), "recovery": _json(self.recovery),
        }  # fmt: skip


def listing(outline: Outline | None) -> list[Row]:
    """Every point of the catalogue in its order, and after them those of the code under test that were passed."""
    clean, recovery = ([], []) if outline is None else (list(_of_clean(outline)), list(_of_recovery(outline)))
    own = sorted({each.point for each in (*clean, *recovery)} - CATALOGUE.keys())
    rows = []
    for name in (*CATALOGUE, *own):
        point = CATALOGUE.get(name)
        group, roles = (point.group, tuple(role.value for role in point.roles)) if point else ("user", ("rank",))
        again = None if point is not None and not point.counted else _at(name, recovery)
        passages = None if outline is None and again is None else _at(name, clean)
        rows.append(Row(name, group, roles, point.description if point else "", in_flight(name), passages, again))
    return rows


def render(rows: Sequence[Row], *, recorded: bool) -> RenderableType:
    """Group by group; with the passages instead of the description if some were recorded."""
    columns = ("point", "undisturbed", "recovery", "in flight") if recorded else ("point", "roles", "description")
    tables = []
    for group in dict.fromkeys(row.group for row in rows):
        cells = [
            (row.name, _text(row.passages), _text(row.recovery), row.in_flight) if recorded
            else (row.name, " ".join(row.roles), row.description)
            for row in rows if row.group == group
        ]  # fmt: skip
        tables.append(Records(group, columns, cells, prose=columns[1:] if recorded else columns[2:]))
    return Group(*tables)


def _of_clean(outline: Outline) -> Iterator[PassageCount]:
    for (role, rank), points in outline.clean.items():
        for point, hits in points.items():
            yield PassageCount(point, 0, role.value, rank, hits)


def _of_recovery(outline: Outline) -> Iterator[PassageCount]:
    before = outline.clean.get((Role.SUPERVISOR, None), {})
    for point, hits in outline.detection.items():
        yield PassageCount(point, 0, Role.SUPERVISOR.value, None, hits - before.get(point, 0))
    for (role, rank), points in outline.recovery.items():
        for point, hits in points.items():
            yield PassageCount(point, 1, role.value, rank, hits)


def _at(point: str, counts: Sequence[PassageCount]) -> tuple[PassageCount, ...]:
    found = (each for each in counts if each.point == point)
    return tuple(sorted(found, key=lambda c: (c.role, -1 if c.rank is None else c.rank, c.attempt)))


def _json(counts: tuple[PassageCount, ...] | None) -> list[dict[str, Any]] | None:
    return None if counts is None else [each.to_json() for each in counts]


def _text(counts: tuple[PassageCount, ...] | None) -> str:
    """`rank 0: 9, rank 1: 9`; of one process both attempts are added up."""
    if counts is None:
        return "not counted"
    hits: dict[str, int] = {}
    for each in counts:
        name = who(each.role, each.rank)
        hits[name] = hits.get(name, 0) + each.hits
    return ", ".join(f"{name}: {number}" for name, number in hits.items()) or "none"
