"""A published checkpoint read back: every shard verified, in memory as one rank needs it (invariants 1 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from storage.manifest import Manifest
from storage.objects import Objects
from storage.shard import parse_shard, read_verified
from trainers.parts import is_replicated
from trainers.staging import as_tensor


@dataclass(frozen=True)
class Loaded:
    """A verified checkpoint: the replicated tensors of all ranks, and one rank's own tensors and texts."""

    manifest: Manifest
    digest: str
    tensors: dict[str, torch.Tensor]
    texts: dict[str, str]


def load(
    objects: Objects, manifest: Manifest, digest: str, rank: int, halfway: Callable[[], None] = lambda: None
) -> Loaded:
    """Reads all shards. `halfway` is called when half of them have been read. Raises Damaged, Unavailable."""
    shards = [file for file in manifest.files if file.kind == "shard"]
    tensors: dict[str, torch.Tensor] = {}
    texts: dict[str, str] = {}
    for number, record in enumerate(shards):
        if number == (len(shards) + 1) // 2:
            halfway()
        shard = parse_shard(bytearray(read_verified(objects, record)), record.path)
        own = record.rank == rank
        for name, view in shard.tensors.items():
            if own or is_replicated(name):
                tensors[name] = as_tensor(view)
        if own:
            texts = {k.removeprefix("part."): v for k, v in shard.metadata.items() if k.startswith("part.")}
    return Loaded(manifest, digest, tensors, texts)


def wrong_parts(live: Mapping[str, str], manifest: Manifest, rank: int) -> list[str]:
    """Names of the parts whose live digest is not the manifest's."""
    expected = {**manifest.parts, **manifest.ranks[rank].parts}
    return sorted(name for name in expected if live.get(name) != expected[name])
