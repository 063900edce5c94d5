"""A stray checkpoint: manifest and files of another run, put into the store between a death and the restart.

Manifest, files and digests are in order and fit each other; the run that they name is another one, and their name
makes them the newest of the attempt that died. They are in no log, so nothing may choose them (invariant 2); the
verdict lists them among the strays.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.damage import Wound
from storage.digests import bulk_digest
from storage.log import CommitLog, Publish
from storage.manifest import FileRecord, Manifest, checkpoint_name, decode, encode, manifest_path
from storage.objects import LocalObjects


@dataclass(frozen=True)
class Stray:
    """wound: the manifest, as the receipt has it. files: below the run's folder, the manifest last."""

    wound: Wound
    files: Mapping[str, bytes]


def prepare_stray(folder: Path, run: str) -> Stray | None:
    """What would be put there, made of the newest checkpoint; None if nothing is published yet. Raises StorageError."""
    objects = LocalObjects(folder / "store")
    published = [entry for entry in CommitLog(objects, run).read() if isinstance(entry, Publish)]
    if not published:
        return None
    newest = decode(objects.read(manifest_path(published[-1].name)), published[-1].name)[0]
    other, step = another_run(run), _free_step(objects, newest)
    name = checkpoint_name(step, newest.attempt)
    files: dict[str, bytes] = {}
    records = []
    for record in newest.files:
        path = record.path.replace(newest.name, name)
        data = objects.read(record.path).replace(run.encode(), other.encode())  # as long as before: offsets stay right
        files[f"store/{path}"] = data
        records.append(FileRecord(path, record.kind, record.rank, len(data), bulk_digest(data)))
    cursor = newest.cursor // max(newest.step, 1) * step
    manifest = replace(newest, run=other, name=name, step=step, cursor=cursor, files=tuple(records), microbatch=0)
    data, digest = encode(manifest)
    where = f"store/{manifest_path(name)}"
    return Stray(Wound(where, 0, None, digest, data), {**files, where: data})


def place(folder: Path, stray: Stray) -> None:
    """Puts the files there, as a copy between two folders would: not by the store's own ways."""
    for path, data in stray.files.items():
        with (folder / path).open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def another_run(run: str) -> str:
    """A run's id of the same length that is not this one's."""
    return run[:-1] + ("0" if run[-1] != "0" else "1")


def _free_step(objects: LocalObjects, newest: Manifest) -> int:
    """The next one of which the same attempt has no file: a save may have left some behind."""
    taken = {name for folder in ("manifests", "shards", "ledger") for name in objects.list(folder)}
    step = newest.step + 1
    while any(each.startswith(checkpoint_name(step, newest.attempt)) for each in taken):
        step += 1
    return step
