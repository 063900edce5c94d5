"""What the tests of this package build with: small valid checkpoints, and kill points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from storage.digests import bulk_digest, part_digest
from storage.history import Head
from storage.ledger import LedgerRows, SegmentMeta, encode_segment
from storage.manifest import (
    RANK_PARTS,
    FileRecord,
    Fingerprints,
    Manifest,
    RankRecord,
    checkpoint_name,
    ledger_path,
    shard_path,
)
from storage.objects import LocalObjects
from storage.process import ProcessId
from storage.shard import TensorSpec, shard_header, write_ledger, write_shard

RUN = "r1"
OWNER = ProcessId("host", 1, 2)
CONFIG = "sha256:" + "c" * 64


def manifest_digest(name: str) -> str:
    """A digest in the right form that differs from name to name."""
    return "sha256:" + name.encode().hex().ljust(64, "0")[:64]


def rows(positions: range) -> LedgerRows:
    ids = np.array(positions, dtype=np.int64)
    return LedgerRows(
        ids, ids * 3, ids.astype(np.uint64) << np.uint64(40), ids // 4, (ids % 4).astype(np.int32)
    )


def draft(objects: LocalObjects, step: int, attempt: int = 0, world: int = 2) -> Manifest:
    """A manifest draft whose files have been written."""
    name = checkpoint_name(step, attempt)
    files: list[FileRecord] = []
    for rank in range(world):
        data = np.arange(rank, rank + 1000, dtype=np.float32).data
        header = shard_header([TensorSpec("model/w", "F32", (1000,), 4000)], {"rank": str(rank)})
        shard = write_shard(objects, shard_path(name, rank), header, data)
        files.append(FileRecord(shard.path, "shard", rank, shard.bytes, shard.digest))
        segment = encode_segment(rows(range(8)), SegmentMeta(RUN, attempt, step, rank, 0, step - 1))
        written = write_ledger(objects, ledger_path(name, rank), segment)
        files.append(FileRecord(written.path, "ledger", rank, written.bytes, written.digest))
    digest = bulk_digest(b"x")
    return Manifest(
        run=RUN,
        name=name,
        attempt=attempt,
        step=step,
        world=world,
        cursor=step * 8,
        parent=None,
        fingerprints=Fingerprints("sha256:d", "killpoint.plan/1 seed 1", CONFIG, "code 1"),
        files=tuple(files),
        tensors={"model/w": digest, "optimizer/w/exp_avg": digest},
        parts={"model": part_digest({"model/w": digest}), "optimizer": digest},
        ranks=tuple(
            RankRecord(
                rank, dict.fromkeys(RANK_PARTS, digest), {"rng/torch": digest}, Head("w.jsonl", 3, "0" * 64)
            )
            for rank in range(world)
        ),
    )


class Killed(BaseException):
    """What the tests raise at a kill point to stop there."""


def kill_at(point: str) -> Callable[[str], None]:
    def reached(name: str) -> None:
        if name == point:
            raise Killed(name)

    return reached


class Points:
    """Remembers the kill points that were passed."""

    def __init__(self) -> None:
        self.passed: list[str] = []

    def __call__(self, point: str) -> None:
        self.passed.append(point)
