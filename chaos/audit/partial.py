"""A checkpoint inside a step: its partial gradients, their counts and their samples are of one moment (invariant 4).

Each rank digests its partial gradients when a save falls due, before anything is copied, and says so in its history:
that is held against the shard. The samples that the shard names are held against the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from chaos.audit.events import SaveDue
from chaos.audit.evidence import I64, Evidence, Manifest, Publish, ShardSeen
from chaos.audit.facts import RunBegun
from chaos.audit.findings import listed
from chaos.audit.formats import PARTIAL_PARTS, bulk_digest
from chaos.audit.logbook import ancestry
from chaos.audit.verified import damages
from chaos.audit.witnesses import events

_GRADIENT, _IDS = "gradient/", "accumulation/sample_ids"


def partial_faults(
    evidence: Evidence, publish: Publish, manifest: Manifest, shards: Mapping[int, ShardSeen]
) -> Iterator[str]:
    """What in a checkpoint inside a step is not of its moment. shards: of the ranks whose shard is whole."""
    begun = evidence.begun
    for rank, shard in sorted(shards.items()):
        if begun is not None:
            yield from _counts(begun, manifest, rank, shard)
        yield from _scale(rank, shard)
        ids = _consumed(evidence, publish, rank)
        named = shard.tensors.get(_IDS)
        if ids is not None and (named is None or named.digest != bulk_digest(ids.astype("<i8").tobytes())):
            yield f"the partial gradients of rank {rank} are not of the samples that the ledger says it had consumed"
    yield from _same_parameters(shards)
    for record in manifest.ranks:
        due = _due(evidence, manifest, record.rank)
        parts = due.parts if due is not None else None
        wrong = sorted(p for p in PARTIAL_PARTS if parts is not None and parts.get(p) != record.parts.get(p))
        if wrong:
            yield (
                f"{listed(wrong)} of rank {record.rank} {'is' if len(wrong) == 1 else 'are'} of another moment: not "
                "what the rank digested when the save fell due"
            )


def partial_unknown(evidence: Evidence, manifest: Manifest) -> Iterator[str]:
    """Ranks whose history does not say what their partial gradients were."""
    for record in manifest.ranks if manifest.microbatch else ():
        due = _due(evidence, manifest, record.rank)
        if due is None or due.parts is None:
            yield f"the history of rank {record.rank} does not say what its partial gradients were"


def _due(evidence: Evidence, manifest: Manifest, rank: int) -> SaveDue | None:
    moment = (rank, manifest.step, manifest.microbatch)
    for event in events(evidence, SaveDue):
        due = event.what
        if event.attempt == manifest.attempt and (due.rank, due.step, due.microbatch) == moment:
            return due
    return None


def _counts(begun: RunBegun, manifest: Manifest, rank: int, shard: ShardSeen) -> Iterator[str]:
    said = _accumulation(shard)
    expected = {
        "step": manifest.step, "microbatch": manifest.microbatch, "microbatches": begun.microbatches,
        "samples": manifest.microbatch * (begun.global_batch // begun.ranks // begun.microbatches),
        "denominator": begun.global_batch,
    }  # fmt: skip
    for key, value in expected.items():
        if said.get(key) != value:
            yield f"the accumulation of rank {rank} has {key} {said.get(key)}, the checkpoint {value}"
    if manifest.microbatch >= begun.microbatches:
        yield f"it has {manifest.microbatch} microbatches of a step that is of {begun.microbatches}"
    ids = shard.tensors.get(_IDS)
    if ids is not None and (ids.dtype, ids.shape) != ("I64", (expected["samples"],)):
        yield f"the accumulation of rank {rank} names {ids.dtype}{list(ids.shape)} samples, not {expected['samples']}"
    if _number(said.get("loss_sum")) is None:
        yield f"the accumulation of rank {rank} has no sum of its losses"


def _scale(rank: int, shard: ShardSeen) -> Iterator[str]:
    """The gradients carry the scale that the gradient scaler had; it does not change inside a step."""
    carried, now = _number(_accumulation(shard).get("scale")), _number(_json(shard, "scaler").get("scale"))
    if carried != now:
        yield f"the partial gradients of rank {rank} carry the scale {carried}, its gradient scaler has {now}"


def _same_parameters(shards: Mapping[int, ShardSeen]) -> Iterator[str]:
    """Every rank has sums of the same parameters, each like its parameter in type and shape."""
    kinds = {name: (t.dtype, t.shape) for shard in shards.values() for name, t in shard.tensors.items()
             if name.startswith("model/")}  # fmt: skip
    names = {rank: {name for name in shard.tensors if name.startswith(_GRADIENT)} for rank, shard in shards.items()}
    for rank, own in sorted(names.items()):
        if lacking := sorted(set().union(*names.values()) - own):
            yield f"the shard of rank {rank} lacks {listed(lacking[:3])}, which another rank has"
        if not own:
            yield f"the shard of rank {rank} has no partial gradients"
        for name in sorted(own):
            kind = kinds.get(f"model/{name.removeprefix(_GRADIENT)}")
            seen = shards[rank].tensors[name]
            if kind is not None and kind != (seen.dtype, seen.shape):
                yield f"{name} of rank {rank} is {seen.dtype}{list(seen.shape)}, its parameter {kind[0]}{list(kind[1])}"


def _consumed(evidence: Evidence, publish: Publish, rank: int) -> I64 | None:
    """Sample ids of the unfinished update, in the order of consumption, by the ledger; None if part of it is lost."""
    ids: list[I64] = []
    expected = publish.moment
    for older in ancestry(evidence.store.log.entries, publish):
        seen = evidence.store.files.get(f"ledger/{older.name}-r{rank:04d}.arrow")
        if seen is None or seen.segment is None or any(d.path == seen.path for d in damages(evidence, older)):
            return None
        segment = seen.segment
        if (segment.meta.step, segment.meta.microbatch) != expected:
            return None  # invariant 3 says what is wrong there
        held = segment.part(0, segment.rows)
        rows = np.flatnonzero(held.step == publish.step)
        rows = rows[np.lexsort((held.position[rows], held.microbatch[rows]))]
        ids.append(held.sample_id[rows])
        expected = segment.meta.start
        if expected <= (publish.step, 0):
            return np.concatenate(ids[::-1])
    return None


def _accumulation(shard: ShardSeen) -> Mapping[str, Any]:
    return _json(shard, "accumulation")


def _json(shard: ShardSeen, part: str) -> Mapping[str, Any]:
    """The part's JSON object, empty if there is none."""
    try:
        value = json.loads(shard.metadata.get(f"part.{part}") or "null")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    """A number as state texts have it, {"~": "f", "v": float.hex()}; None for anything else."""
    try:
        return float.fromhex(value["v"]) if isinstance(value, dict) and value.get("~") == "f" else None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
