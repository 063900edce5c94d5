"""Passages that a clean run recorded: how often each process came by each kill point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.history import read_history


@dataclass(frozen=True, slots=True, order=True)
class PassageCount:
    """`hits` passages of `point` by one role and rank in one attempt."""

    point: str
    attempt: int
    role: str
    rank: int | None
    hits: int

    def to_json(self) -> dict[str, Any]:
        """Field by field."""
        return {
            "point": self.point,
            "attempt": self.attempt,
            "role": self.role,
            "rank": self.rank,
            "hits": self.hits,
        }


def collect(bodies: Iterable[Mapping[str, Any]]) -> tuple[PassageCount, ...]:
    """Counts from history events. A process may have written its counts more than once: the last are most."""
    most: dict[tuple[str, int, str, int | None], int] = {}
    for body in bodies:
        if body["event"] == "passages":
            for point, hits in body["counts"].items():
                key = (point, body["attempt"], body["role"], body["rank"])
                most[key] = max(hits, most.get(key, 0))
    counts = [PassageCount(*key, hits) for key, hits in most.items()]
    return tuple(sorted(counts, key=lambda c: (c.point, c.attempt, c.role, -1 if c.rank is None else c.rank)))


def recorded_passages(folder: Path) -> tuple[PassageCount, ...]:
    """What the processes of a run recorded. Raises StorageError if a history is broken."""
    paths = sorted((folder / "history").glob("*.jsonl"))
    return collect(line.body for path in paths for line in read_history(path).lines)
