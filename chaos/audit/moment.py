"""Invariant 4, one moment: all parts of a checkpoint belong to one step of one attempt, and were restored as such.

Tensor and part digests are computed anew from the shards. Of a retired checkpoint only the manifest is left; what
was damaged is for invariant 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chaos.audit import progress
from chaos.audit.alike import differences, json_object
from chaos.audit.events import Event, Restored
from chaos.audit.evidence import Evidence, FileSeen, Manifest, Publish, RankNamed, SegmentMeta, ShardSeen
from chaos.audit.findings import Case, Finding, listed
from chaos.audit.formats import BEST, RANK_PARTS, TEXT_PARTS, is_shared, part_digest
from chaos.audit.logbook import attempts, publications, unusable
from chaos.audit.partial import partial_faults, partial_unknown
from chaos.audit.record import Bests, judge_record, running_best
from chaos.audit.remembered import changed_since
from chaos.audit.verified import damages, manifest_of
from chaos.audit.witnesses import restored_by_attempt, steps

ID, NAME = 4, "one moment"


def check(evidence: Evidence) -> Finding:
    """Invalid: parts of two moments, a part that is missing or not what its digest says, another live state."""
    case = Case()
    if broken := unusable(evidence):
        case.unsure.append(broken)
        return case.finding()
    bests = running_best(evidence)
    for publish in publications(evidence.store.log.entries):
        manifest = manifest_of(evidence, publish)
        if manifest is None:
            case.unsure.append(f"the manifest of {publish.name} is lost, see invariant 1")
            continue
        case.used = True
        for text in _inconsistencies(evidence, publish, manifest, bests):
            case.wrong.append(f"{publish.name}: {text}")
        case.unsure += [f"{publish.name}: {text}" for text in partial_unknown(evidence, manifest)]
    _judge_restores(evidence, case)
    judge_record(evidence, case)
    case.wrong += differences(evidence)
    case.wrong += progress.faults(evidence)
    case.wrong += changed_since(evidence)
    return case.finding("nothing was published")


def _inconsistencies(
    evidence: Evidence, publish: Publish, manifest: Manifest, bests: Bests
) -> Iterator[str]:
    yield from _cursor(evidence, manifest)
    broken = {damage.path for damage in damages(evidence, publish)}
    seen = {file.path: evidence.store.files[file.path] for file in manifest.files
            if file.path in evidence.store.files and file.path not in broken}  # fmt: skip
    shards: dict[int, ShardSeen] = {}
    for file in manifest.files:
        found: FileSeen | None = seen.get(file.path)
        if found is None:
            continue
        if found.segment is not None:
            yield from _segment(manifest, file.rank, found.segment.meta)
        if found.shard is not None:
            shards[file.rank] = found.shard
            yield from _metadata(manifest, file.rank, found.shard.metadata)
    if len(shards) == manifest.world:
        yield from _shared(manifest, shards)
    for record in manifest.ranks:
        yield from _manifest_parts(record)
        if record.rank in shards:
            yield from _rank(manifest, record, shards[record.rank])
            yield from _best(manifest, record.rank, shards[record.rank], bests)
    if manifest.microbatch:
        yield from partial_faults(evidence, publish, manifest, shards)


def _cursor(evidence: Evidence, manifest: Manifest) -> Iterator[str]:
    begun = evidence.begun
    if begun is not None and manifest.cursor != manifest.step * begun.global_batch:
        yield f"cursor {manifest.cursor} does not belong to step {manifest.step} (batch {begun.global_batch})"
    if begun is not None and manifest.world != begun.ranks:
        yield f"is of {manifest.world} ranks, the run has {begun.ranks}"
    if part_digest("model", manifest.tensors, None) != manifest.parts["model"]:
        yield "the digest of part model is not that of its tensors"


def _segment(manifest: Manifest, rank: int, meta: SegmentMeta) -> Iterator[str]:
    expected = {"run": manifest.run, "attempt": manifest.attempt, "step": manifest.step,
                "microbatch": manifest.microbatch, "rank": rank}  # fmt: skip
    for key, value in expected.items():
        if getattr(meta, key) != value:
            yield (
                f"the ledger segment of rank {rank} is of {key} {getattr(meta, key)}, the manifest of {value}"
            )


def _metadata(manifest: Manifest, rank: int, metadata: Mapping[str, str]) -> Iterator[str]:
    expected = {
        "format": "killpoint.shard/1", "run": manifest.run, "attempt": str(manifest.attempt),
        "step": str(manifest.step), "microbatch": str(manifest.microbatch) if manifest.microbatch else None,
        "rank": str(rank), "world": str(manifest.world), "cursor": str(manifest.cursor),
    }  # fmt: skip
    for key, value in expected.items():
        if metadata.get(key) != value:
            yield f"the shard of rank {rank} is of {key} {metadata.get(key)}, the manifest of {value}"


def _shared(manifest: Manifest, shards: Mapping[int, ShardSeen]) -> Iterator[str]:
    """The replicated tensors: each in one shard, each what the manifest says."""
    homes: dict[str, list[int]] = {}
    for rank, shard in shards.items():
        for name in shard.tensors:
            if is_shared(name):
                homes.setdefault(name, []).append(rank)
    for name in sorted(homes.keys() | manifest.tensors.keys()):
        ranks = homes.get(name, [])
        if len(ranks) != 1:
            where = f"the shards of ranks {listed(ranks)}" if ranks else "no shard"
            yield f"tensor {name} is in {where}, it must be in one"
        elif shards[ranks[0]].tensors[name].digest != manifest.tensors.get(name):
            yield f"tensor {name} in the shard of rank {ranks[0]} is not the one in the manifest"
    found = {name: shards[ranks[0]].tensors[name].digest for name, ranks in homes.items()}
    texts = {shard.metadata.get("part.optimizer") for shard in shards.values()} - {None}
    if len(texts) != 1:
        yield f"the shards hold {len(texts)} different optimizer settings"
    for part in manifest.parts:
        if part_digest(part, found, shards[0].metadata.get(f"part.{part}")) != manifest.parts[part]:
            yield f"part {part}, computed from the shards, is not the one in the manifest"


def _progress(shard: ShardSeen) -> Mapping[str, Any]:
    """The progress part, empty if it cannot be read."""
    return json_object(shard.metadata.get("part.progress"))


def _manifest_parts(record: RankNamed) -> Iterator[str]:
    """Parts that consist of tensors only can be computed from the manifest alone."""
    for part in ("buffers", "rng.torch", "best.buffers", "gradients"):
        if part in record.parts and part_digest(part, record.tensors, None) != record.parts[part]:
            yield f"the digest of part {part} of rank {record.rank} is not that of its tensors"


def _rank(manifest: Manifest, record: RankNamed, shard: ShardSeen) -> Iterator[str]:
    """What only this rank has."""
    local = {name: tensor.digest for name, tensor in shard.tensors.items() if not is_shared(name)}
    for name in sorted(local.keys() | record.tensors.keys()):
        if local.get(name) != record.tensors.get(name):
            yield f"tensor {name} of rank {record.rank} is not the one in the manifest"
    for part in sorted(RANK_PARTS | record.parts.keys()):
        text = shard.metadata.get(f"part.{part}")
        if part in TEXT_PARTS and text is None:
            yield f"the shard of rank {record.rank} has no part {part}"
        elif part_digest(part, local, text) != record.parts[part]:
            yield f"part {part} of rank {record.rank} is not the one in the manifest"
    yield from _counters(manifest, record.rank, shard)


def _counters(manifest: Manifest, rank: int, shard: ShardSeen) -> Iterator[str]:
    told = _progress(shard)
    for key, value in (("step", manifest.step), ("cursor", manifest.cursor)):
        if told.get(key) != value:
            yield f"the progress of rank {rank} is at {key} {told.get(key)}, the manifest at {value}"
    updates, skipped = told.get("updates"), told.get("skipped")
    if not isinstance(updates, int) or not isinstance(skipped, int) or updates + skipped != manifest.step:
        yield (
            f"the progress of rank {rank} has {updates} updates and {skipped} skipped ones, not "
            f"{manifest.step}"
        )


def _best(manifest: Manifest, rank: int, shard: ShardSeen, bests: Bests) -> Iterator[str]:
    """The best metric is the lowest loss of the lineage up to here, and the best model's is the same."""
    progress = _progress(shard)
    named = progress.get("best_metric"), progress.get("best_step")
    known = bests.get((manifest.attempt, manifest.step))
    if known is not None and named != (known.metric, known.step):
        yield (
            f"the best metric of rank {rank} is {named[0]} of step {named[1]}, but the lowest loss up to here "
            f"is {known.metric} of step {known.step}"
        )
    text = json_object(shard.metadata.get(f"part.{BEST}"))
    if BEST in manifest.parts and (text.get("metric"), text.get("step")) != named:
        yield f"the best model of rank {rank} belongs to step {text.get('step')}, its best metric to {named[1]}"


def _judge_restores(evidence: Evidence, case: Case) -> None:
    """Every rank digests its live state before its first step, and that equals the manifest."""
    restored = restored_by_attempt(evidence)
    places = {
        (event.attempt, event.what.rank): (event.file, event.n)
        for many in restored.values()
        for event in many
    }
    done = steps(evidence)
    firsts = {who: done[int(own[0])] for who, own in done.by_rank.items()}
    for (attempt, rank), step in sorted(firsts.items(), key=str):
        file, n = places.get((attempt, rank), (None, 0))
        if file != step.file or n > step.n:
            case.wrong.append(
                f"rank {rank} of attempt {attempt} trained before it digested what it had restored"
            )
    lives = attempts(evidence.store.log.entries)
    for attempt, told in sorted(restored.items()):
        choose = lives[attempt].choose if attempt in lives else None
        parent = None if choose is None or choose.parent is None else choose.parent.name
        _judge_live(evidence, attempt, parent, told, case)


def _judge_live(
    evidence: Evidence, attempt: int, name: str | None, told: list[Event[Restored]], case: Case
) -> None:
    for part in ("model", "optimizer", BEST):
        if len({event.what.parts.get(part) for event in told}) > 1:
            case.wrong.append(f"the ranks of attempt {attempt} began with different states of part {part}")
    seen = evidence.store.manifests.get(name) if name is not None else None
    if seen is None or seen.manifest is None:
        return
    expected = {record.rank: {**seen.manifest.parts, **record.parts} for record in seen.manifest.ranks}
    for event in told:
        live, saved = event.what.parts, expected.get(event.what.rank, {})
        wrong = sorted(part for part in live.keys() | saved.keys() if live.get(part) != saved.get(part))
        if wrong:
            case.wrong.append(
                f"rank {event.what.rank} of attempt {attempt} restored {name}, but its live {listed(wrong)} "
                f"{'is' if len(wrong) == 1 else 'are'} not the manifest's"
            )
