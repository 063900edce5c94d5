"""Loads an exported checkpoint in a process of its own and proves that it is whole: `python -m trainers.reload FOLDER`.

Prints one JSON object. Every file is checked against the sizes and digests that the export names, the workload is
built from the configuration in it, the state of every rank is put back, and its live digests must be the manifest's
(invariant 4). The workload's code is the only thing that runs. If the sources have changed since the run, the state is
still put back and checked; that training would go on bit for bit is then not claimed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from storage.digests import bulk_digest
from storage.errors import Damaged, StorageError
from storage.manifest import Manifest, decode, manifest_path
from storage.objects import LocalObjects
from storage.sealed import unseal
from trainers.errors import StateError, TrainingError
from trainers.loaded import load, wrong_parts
from trainers.parts import BEST
from trainers.spec import code_digest
from trainers.state import live_digests, restore, seed_everything
from trainers.workload import build, code_files

EXPORT_FILE, EXPORT_FORMAT = "export.json", "killpoint.export/1"


def reload(folder: Path) -> dict[str, Any]:
    """What was found and which checks passed. Raises StorageError and TrainingError for what does not hold."""
    body, _digest = unseal(_read(folder / EXPORT_FILE), EXPORT_FILE)
    if body.get("format") != EXPORT_FORMAT:
        raise Damaged(EXPORT_FILE, f"is no {EXPORT_FORMAT}")
    for entry in body["files"]:
        data = _read(folder / entry["path"])
        if (len(data), bulk_digest(data)) != (entry["bytes"], entry["digest"]):
            raise Damaged(entry["path"], "is not the file that was exported: its size or its digest differs")
    objects = LocalObjects(folder / "store")
    manifest, digest = decode(objects.read(manifest_path(body["checkpoint"])), body["checkpoint"])
    if digest != body["manifest"]:
        raise Damaged(manifest_path(body["checkpoint"]), "is not the manifest that was published")
    same_code = code_digest(code_files(body["workload"])) == manifest.fingerprints.code
    for rank in range(manifest.world):
        _restore_rank(body, objects, manifest, rank)
    checks = ("sizes and digests of all files", "manifest", "state of every rank restored",
              "live digests equal the manifest's")  # fmt: skip
    return {"same_code": same_code, "checkpoint": manifest.name,
            "step": manifest.step, "cursor": manifest.cursor, "world": manifest.world,
            "files": len(body["files"]), "checks": list(checks)}  # fmt: skip


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Damaged(str(path), f"cannot be read: {error.strerror}") from error


def _restore_rank(body: dict[str, Any], objects: LocalObjects, manifest: Manifest, rank: int) -> None:
    seed_everything(body["seed"], None)
    workload = build(body["workload"], body["config"])
    loaded = load(objects, manifest, body["manifest"], rank)
    progress = restore(workload, loaded.tensors, loaded.texts, keep_best=BEST in manifest.parts)
    if progress.step != manifest.step:
        raise StateError(f"{manifest.name} says step {manifest.step}, its state says {progress.step}")
    live = live_digests(workload, progress)
    if wrong := wrong_parts(live, manifest, rank):
        raise StateError(f"rank {rank}: after loading {manifest.name} the live {', '.join(wrong)} differ from the "
                         "manifest")  # fmt: skip


def main() -> int:
    """0: whole. 1: something does not hold. 2: wrong usage."""
    if len(sys.argv) != 2:
        print("usage: python -m trainers.reload FOLDER", file=sys.stderr)
        return 2
    try:
        print(json.dumps(reload(Path(sys.argv[1])), sort_keys=True))
    except (StorageError, TrainingError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
