"""What a finished run applied, batch by batch, read from its store: the ledger along the lineage, and its history.

A batch is what one update of the plan consumes: batch n has the positions from n·B to (n+1)·B − 1, B the global batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chaos.errors import NotARun
from storage.history import read_history
from storage.ledger import LedgerRows, decode_segment
from storage.log import CommitLog, entry_name
from storage.manifest import decode, manifest_path
from storage.objects import LocalObjects
from storage.sealed import unseal
from storage.selection import current_lineage
from storage.shard import read_verified


@dataclass(frozen=True)
class Update:
    """One update of the lineage: who made it, and which batches and samples it consumed, in order of consumption."""

    step: int
    attempt: int
    batches: tuple[int, ...]
    sample_ids: tuple[int, ...]


@dataclass(frozen=True)
class Applied:
    """All updates of a run's lineage, and how often each position was applied. id_at: position → sample id."""

    updates: tuple[Update, ...]
    times: dict[int, int]
    id_at: dict[int, int]

    def never(self) -> list[int]:
        """Positions up to the last one applied that no update has."""
        return [position for position in range(max(self.times, default=-1) + 1) if position not in self.times]

    def repeated(self) -> list[int]:
        """Positions that more than one row has."""
        return sorted(position for position, times in self.times.items() if times > 1)


def read_applied(run: Path, global_batch: int) -> Applied:
    """The ledger along the lineage. Raises StorageError if it is damaged, NotARun if the run never got that far."""
    objects = LocalObjects(run / "store")
    name = unseal(objects.read(entry_name(0)), entry_name(0))[0]["run"]
    line = current_lineage(CommitLog(objects, name).read())
    if not line:
        raise NotARun(f"{run}: has published nothing, so there is nothing to compare")
    updates: list[Update] = []
    times: dict[int, int] = {}
    id_at: dict[int, int] = {}
    for publish in reversed(line):
        manifest, _digest = decode(objects.read(manifest_path(publish.name)), publish.name)
        records = [manifest.file("ledger", rank) for rank in range(manifest.world)]
        rows = LedgerRows.concatenate([decode_segment(read_verified(objects, r), r.path)[0] for r in records])
        for position, sample in zip(rows.position.tolist(), rows.sample_id.tolist(), strict=True):
            times[position] = times.get(position, 0) + 1
            id_at[position] = sample
        updates += _updates(rows, publish.attempt, global_batch)
    return Applied(tuple(updates), times, id_at)


def _updates(rows: LedgerRows, attempt: int, global_batch: int) -> Iterator[Update]:
    for step in np.unique(rows.step).tolist():
        chosen = np.flatnonzero(rows.step == step)
        chosen = chosen[np.lexsort((rows.position[chosen], rows.microbatch[chosen]))]
        batches = np.unique(rows.position[chosen] // global_batch)
        yield Update(step, attempt, tuple(batches.tolist()), tuple(rows.sample_id[chosen].tolist()))


def events(run: Path, role: str, event: str) -> list[dict[str, Any]]:
    """Bodies of one kind of event in all histories of a role, file by file. Raises StorageError."""
    files = sorted((run / "history").glob(f"{role}-*.jsonl"))
    return [line.body for file in files for line in read_history(file).lines if line.event == event]
