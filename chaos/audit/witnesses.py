"""Look-ups in the history that several checks share: events by kind, by attempt, by process."""

from __future__ import annotations

from typing import TypeVar

from chaos.audit.events import Event, Restored, StepDone
from chaos.audit.evidence import Evidence

W = TypeVar("W")


def events(evidence: Evidence, kind: type[W]) -> tuple[Event[W], ...]:
    """Every event of exactly this kind, file by file, each in its own order."""
    return evidence.history.by_kind.get(kind, ())


def boot(evidence: Evidence, file: str) -> str | None:
    """Boot in which the file was written; instants compare within one boot only."""
    seen = evidence.history.files.get(file)
    return None if seen is None or seen.opened is None else seen.opened.boot


def instant(evidence: Evidence, event: Event[object]) -> tuple[str | None, int]:
    """(boot, t_ns)."""
    return boot(evidence, event.file), event.t_ns


def steps_by_attempt(evidence: Evidence) -> dict[int, dict[int, int]]:
    """attempt → rank → greatest number of updates done."""
    found: dict[int, dict[int, int]] = {}
    for event in events(evidence, StepDone):
        if event.attempt is not None:
            ranks = found.setdefault(event.attempt, {})
            ranks[event.what.rank] = max(ranks.get(event.what.rank, 0), event.what.step)
    return found


def restored_by_attempt(evidence: Evidence) -> dict[int, list[Event[Restored]]]:
    """attempt → what its ranks restored."""
    found: dict[int, list[Event[Restored]]] = {}
    for event in events(evidence, Restored):
        if event.attempt is not None:
            found.setdefault(event.attempt, []).append(event)
    return found
