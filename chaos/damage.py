"""Damage to the store between a death and the restart, announced by a receipt (invariants 1 and 2).

What is struck is a file of the newest published checkpoint, at a passage of the supervisor. The receipt says which
file, where, and the file's digests before and after; it is durable before the first byte changes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from storage.digests import bulk_digest
from storage.log import CommitLog, Publish
from storage.manifest import decode, manifest_path
from storage.objects import LocalObjects


class DamageHow(StrEnum):
    """What happens to the file."""

    FLIP = "flip"
    CUT = "cut"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Damage:
    """file: `shard` or `ledger` of the rank. flip: one bit in its middle; cut: its second half."""

    file: str
    rank: int
    how: DamageHow

    def to_json(self) -> dict[str, str | int]:
        """The JSON form, as in the `run` event."""
        return {"file": self.file, "rank": self.rank, "how": self.how.value}


@dataclass(frozen=True)
class Wound:
    """The damage as it will be. path: below the run's folder. data: what the file will hold; None: it is removed.

    before: None of a file that is not there.
    """

    path: str
    offset: int
    before: str | None
    after: str | None
    data: bytes | None


def prepare(folder: Path, run: str, damage: Damage) -> Wound | None:
    """What would happen; None if nothing is published yet. Raises StorageError if the store is broken already."""
    objects = LocalObjects(folder / "store")
    published = [entry for entry in CommitLog(objects, run).read() if isinstance(entry, Publish)]
    if not published:
        return None
    name = published[-1].name
    files = decode(objects.read(manifest_path(name)), name)[0].files
    path = next(file.path for file in files if (file.kind, file.rank) == (damage.file, damage.rank))
    whole = objects.read(path)
    middle = len(whole) // 2
    data: bytes | None = None
    if damage.how is DamageHow.FLIP:
        data = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    elif damage.how is DamageHow.CUT:
        data = whole[:middle]
    return Wound(f"store/{path}", middle, bulk_digest(whole), None if data is None else bulk_digest(data), data)


def inflict(folder: Path, wound: Wound) -> None:
    """Damages the file in place, as a bad disk would: not by the store's own ways."""
    path = folder / wound.path
    if wound.data is None:
        path.unlink()
        return
    with path.open("r+b") as file:
        file.write(wound.data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
