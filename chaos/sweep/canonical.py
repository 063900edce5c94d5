"""What a run did, without when and where: two runs of the same gated trial have to do the same.

Left out are times, process numbers, paths, clocks and digests that cover them, and what the kill leaves to chance: how
far the other ranks had come when the dead one was missed, and what the committer still tidied up at the very end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from storage.history import read_history
from storage.sealed import canonical

_KEPT: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "loss", "lr", "gradient_norm", "ids", "state", "samples_seen", "skipped"),
    "restored": ("step", "cursor", "name", "parts", "state"),
    "loaded": ("name", "ok", "bytes"),
    "joined": ("world",),
    "save_due": ("step",),
    "save_staged": ("step",),
    "chosen": ("name", "step", "seq"),
    "fenced": ("seq",),
    "published": ("name", "step"),
    "manifest_written": ("name", "step"),
    "finished": ("step",),
}


def canonical_history(folder: Path, struck_rank: int | None) -> list[tuple[Any, ...]]:
    """(attempt, event, rank, what) in a fixed order. Of the attempt that was struck only the struck rank's events."""
    return sorted(_events(folder, struck_rank), key=repr)


def digest_of(folder: Path, struck_rank: int | None) -> str:
    """sha256 of the canonical history."""
    lines = [list(event) for event in canonical_history(folder, struck_rank)]
    return hashlib.sha256(canonical(lines)).hexdigest()


def _events(folder: Path, struck_rank: int | None) -> Iterator[tuple[Any, ...]]:
    paths = [path for role in ("worker", "committer", "supervisor") for path in folder.glob(f"history/{role}-*.jsonl")]
    for path in sorted(paths):
        for line in read_history(path).lines:
            body = line.body
            kept, attempt, rank = _KEPT.get(line.event), body.get("attempt"), body.get("rank")
            if kept is None or (attempt == 0 and rank is not None and rank != struck_rank):
                continue
            yield attempt, line.event, rank, {name: body[name] for name in kept if name in body}
