"""What the checkpoints of one run have in common, as a part of invariant 4: a part that one of them lacks is lost.

Names, types and shapes of tensors are the same in all of them, only the optimizer makes its state as it goes. What
counts along, a scheduler its steps, an optimizer its updates, advances with the step from one checkpoint to the next;
where it began is the workload's own affair, and so is whether a parameter is frozen for a while.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from chaos.audit.evidence import Evidence, Manifest, Publish, ShardSeen
from chaos.audit.formats import part_digest
from chaos.audit.logbook import Growth, publications
from chaos.audit.verified import damages, manifest_of

_EQUAL = ("scheduler", "scaler", "progress")  # on all ranks
_OPTIONAL = ("scheduler", "scaler")  # null in all checkpoints or in none
_NEVER_NULL = ("optimizer", "progress", "rng.python", "rng.numpy")
_LOCAL = ("buffer/", "rng/")
_NULL = part_digest("scheduler", {}, "null")


@dataclass(frozen=True)
class Held:
    """A published checkpoint. shards: those that are there and whole, by rank."""

    publish: Publish
    manifest: Manifest
    shards: Mapping[int, ShardSeen]

    @property
    def name(self) -> str:
        return self.publish.name

    @property
    def updates(self) -> int | None:
        """As the progress has them."""
        found = json_object(next(iter(self.shards.values())).metadata.get("part.progress")).get("updates")
        return found if isinstance(found, int) else None

    @property
    def counts(self) -> dict[str, float]:
        """Counters of updates that optimizers such as Adam keep, tensor by tensor."""
        return {
            name: tensor.value
            for shard in self.shards.values()
            for name, tensor in shard.tensors.items()
            if name.startswith("optimizer/") and name.endswith("/step") and tensor.value is not None
        }


def json_object(text: str | None) -> Mapping[str, Any]:
    """The JSON object, empty if it is none."""
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def held(evidence: Evidence) -> list[Held]:
    """The published checkpoints whose manifest is there, oldest first."""
    found = []
    for publish in publications(evidence.store.log.entries):
        manifest = manifest_of(evidence, publish)
        if manifest is None:
            continue
        broken = {damage.path for damage in damages(evidence, publish)}
        seen = ((file.rank, evidence.store.files.get(file.path)) for file in manifest.files if file.path not in broken)
        shards = {rank: each.shard for rank, each in seen if each is not None and each.shard is not None}
        found.append(Held(publish, manifest, shards))
    return found


def differences(evidence: Evidence) -> Iterator[str]:
    """What one checkpoint has otherwise than another, each as a sentence that names it."""
    checkpoints = held(evidence)
    for each in checkpoints:
        yield from (f"{each.name}: {text}" for text in _parts(each, checkpoints[0]))
        yield from (f"{each.name}: {text}" for text in _names(each, checkpoints[0]))
    yield from _kinds(checkpoints)
    yield from _schedules(checkpoints)
    by_name = {each.name: each for each in checkpoints}
    log = Growth()
    for entry in evidence.store.log.entries:
        log.add(entry)
    for each in checkpoints:
        line = (by_name[older.name] for older in log.before(each.publish) if older.name in by_name)
        nearest = next(line, None)
        if nearest is not None:
            yield from (f"{each.name}: {text}" for text in _forgotten(each, nearest))
        if nearest is not None and _whole(each):
            whole = next(filter(_whole, chain([nearest], line)), None)
            yield from (f"{each.name}: {text}" for text in (() if whole is None else _counted(each, whole)))


def _whole(each: Held) -> bool:
    return len(each.shards) == each.manifest.world


def _parts(each: Held, first: Held) -> Iterator[str]:
    for part in _EQUAL:
        if len({record.parts.get(part) for record in each.manifest.ranks}) > 1:
            yield f"part {part} is not the same on all ranks"
    for part in _OPTIONAL:
        null = [record.parts.get(part) == _NULL for record in (*each.manifest.ranks, *first.manifest.ranks)]
        if any(null) and not all(null):
            yield f"part {part} is empty here or in {first.name}, and not in both"
    for rank, shard in sorted(each.shards.items()):
        for part in _NEVER_NULL:
            if shard.metadata.get(f"part.{part}") == "null":
                yield f"part {part} of rank {rank} is empty"


def _names(each: Held, first: Held) -> Iterator[str]:
    """Tensors that are there from the start: all but the optimizer's, and what belongs to an unfinished step."""
    shared, others = ({n for n in c.manifest.tensors if not n.startswith("optimizer/")} for c in (each, first))
    if not any(name.startswith("model/") for name in shared):
        yield "it holds no tensor of the model"
    for name in sorted(shared ^ others)[:3]:
        yield f"tensor {name} is only in {'this one' if name in shared else first.name}, not in both"
    before = {record.rank: record.tensors for record in first.manifest.ranks}
    for record in each.manifest.ranks:
        both = (record.tensors, before.get(record.rank, {}))
        own, other = ({name for name in names if name.startswith(_LOCAL)} for names in both)
        if "rng/torch" not in own:
            yield f"it holds no state of torch's generator of rank {record.rank}"
        for name in sorted(own ^ other)[:3] if record.rank in before else ():
            where = "this one" if name in own else first.name
            yield f"tensor {name} of rank {record.rank} is only in {where}, not in both"


def _kinds(checkpoints: list[Held]) -> Iterator[str]:
    """Type and shape of a tensor never change; `accumulation/` grows within a step."""
    known: dict[str, tuple[str, tuple[int, ...], str]] = {}
    for each in checkpoints:
        for shard in each.shards.values():
            for name, tensor in sorted(shard.tensors.items()):
                dtype, shape, where = known.setdefault(name, (tensor.dtype, tensor.shape, each.name))
                if (dtype, shape) != (tensor.dtype, tensor.shape) and not name.startswith("accumulation/"):
                    yield (
                        f"{each.name}: tensor {name} is {tensor.dtype}{list(tensor.shape)}, in {where} it is "
                        f"{dtype}{list(shape)}"
                    )


def _schedules(checkpoints: list[Held]) -> Iterator[str]:
    """A scheduler takes one step with every step of the run, from wherever it began."""
    first: tuple[int, int, str] | None = None
    for each in checkpoints:
        for rank, shard in sorted(each.shards.items()):
            last = json_object(shard.metadata.get("part.scheduler")).get("last_epoch")
            if not isinstance(last, int):
                continue
            step = each.publish.step
            first = first or (last, step, each.name)
            if last - first[0] != step - first[1]:
                yield (
                    f"{each.name}: the scheduler of rank {rank} has seen {last} steps at step {step}, in {first[2]} "
                    f"{first[0]} at step {first[1]}"
                )


def _forgotten(each: Held, before: Held) -> Iterator[str]:
    """The optimizer makes its state at a parameter's first update, and keeps it."""
    gone = {name for name in before.manifest.tensors if name.startswith("optimizer/")} - each.manifest.tensors.keys()
    for name in sorted(gone)[:3]:
        yield f"tensor {name} is gone, {before.name} had it"


def _counted(each: Held, before: Held) -> Iterator[str]:
    """At most one update a step, and one at least where the parameter changed."""
    now, then = each.updates, before.updates
    if now is None or then is None:
        return
    earlier = before.counts
    for name, value in sorted(each.counts.items()):
        more = value - earlier.get(name, 0.0)
        parameter = f"model/{name.removeprefix('optimizer/').removesuffix('/step')}"
        changed = each.manifest.tensors.get(parameter) != before.manifest.tensors.get(parameter)
        if not 0 <= more <= now - then:
            yield f"{name} counts {value:g} updates, {more:g} more than in {before.name}, {now - then} updates before"
        elif not more and changed:
            yield f"{name} counts {value:g} updates, as in {before.name}, but {parameter} was updated since"
