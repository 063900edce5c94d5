"""Look-ups in the history that several checks share: events by kind, by attempt, by process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from chaos.audit.events import Event, Restored, StepDone
from chaos.audit.evidence import Evidence
from chaos.audit.steps import Steps

W = TypeVar("W")


def events(evidence: Evidence, kind: type[W]) -> Sequence[Event[W]]:
    """Every event of exactly this kind, file by file, each in its own order."""
    return evidence.history.by_kind.get(kind, ())


def steps(evidence: Evidence) -> Steps:
    """Every update that a rank recorded, in columns."""
    return Steps.of(events(evidence, StepDone))


def boot(evidence: Evidence, file: str) -> str | None:
    """Boot in which the file was written; instants compare within one boot only."""
    seen = evidence.history.files.get(file)
    return None if seen is None or seen.opened is None else seen.opened.boot


def instant(evidence: Evidence, event: Event[object]) -> tuple[str | None, int]:
    """(boot, t_ns)."""
    return boot(evidence, event.file), event.t_ns


def steps_by_attempt(evidence: Evidence) -> dict[int, dict[int, int]]:
    """attempt → rank → greatest number of updates done."""
    done = steps(evidence)
    found: dict[int, dict[int, int]] = {}
    for (attempt, rank), own in done.by_rank.items():
        if attempt is not None:
            found.setdefault(attempt, {})[rank] = max(0, int(done.step[own].max()))
    return found


def restored_by_attempt(evidence: Evidence) -> dict[int, list[Event[Restored]]]:
    """attempt → what its ranks restored."""
    found: dict[int, list[Event[Restored]]] = {}
    for event in events(evidence, Restored):
        if event.attempt is not None:
            found.setdefault(event.attempt, []).append(event)
    return found
