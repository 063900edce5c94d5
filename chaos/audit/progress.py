"""The progress part beside what the ranks recorded step by step, as a part of invariant 4: counts and losses.

Whatever it holds can be derived from the steps before it, along the lineage. A step without a record ends what is
known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chaos.audit.alike import Held, held, json_object
from chaos.audit.events import StepDone
from chaos.audit.evidence import Evidence
from chaos.audit.logbook import attempts, started_from
from chaos.audit.witnesses import events

_TAIL = 256  # losses that the progress keeps


@dataclass(frozen=True)
class SoFar:
    """What one rank had recorded up to a step."""

    before: SoFar | None = None
    loss: str = ""
    skipped: int = 0

    def after(self, done: StepDone) -> SoFar:
        return SoFar(self, done.loss, self.skipped + done.skipped)

    def tail(self, length: int) -> list[str]:
        """The last losses, oldest first."""
        losses: list[str] = []
        each: SoFar | None = self
        while each is not None and each.before is not None and len(losses) < length:
            losses.append(each.loss)
            each = each.before
        return losses[::-1]


_Place = tuple[int, int, int]  # attempt, rank, step


def faults(evidence: Evidence) -> Iterator[str]:
    """What in progress and record contradicts the record."""
    known = _known(evidence)
    for each in held(evidence):
        for rank, shard in sorted(each.shards.items()):
            progress = json_object(shard.metadata.get("part.progress"))
            so_far = known.get((each.publish.attempt, rank, each.publish.step))
            for text in (*_counts(each, progress), *(() if so_far is None else _losses(each, progress, so_far))):
                yield f"{each.name}: the progress of rank {rank} has {text}"
    batch = None if evidence.begun is None else evidence.begun.global_batch
    for event in events(evidence, StepDone):
        done = event.what
        if batch is not None and done.samples_seen != done.step * batch:
            yield (
                f"rank {done.rank} of attempt {event.attempt} recorded {done.samples_seen} samples after step "
                f"{done.step}, which are {done.step * batch}"
            )


def _known(evidence: Evidence) -> Mapping[_Place, SoFar]:
    """By attempt, rank and step, as far as the steps since the run's start have a record."""
    done: dict[tuple[int, int], dict[int, StepDone]] = {}
    for event in events(evidence, StepDone):
        done.setdefault((event.attempt or 0, event.what.rank), {})[event.what.step] = event.what
    found: dict[_Place, SoFar] = {}
    ranks = {rank for _, rank in done}
    for attempt in sorted(attempts(evidence.store.log.entries)):
        origin = started_from(evidence.store.log.entries, attempt)
        for rank in ranks:
            step = 0 if origin is None else origin.step
            so_far = SoFar() if origin is None else found.get((origin.attempt, rank, origin.step))
            if so_far is not None:
                found[attempt, rank, step] = so_far  # of a checkpoint inside the first step
            while so_far is not None and step + 1 in done.get((attempt, rank), ()):
                step += 1
                so_far = found[attempt, rank, step] = so_far.after(done[attempt, rank][step])
    return found


def _counts(each: Held, progress: Mapping[str, Any]) -> Iterator[str]:
    for key, value in (("samples_seen", each.manifest.cursor), ("loss_count", each.manifest.step)):
        if progress.get(key) != value:
            yield f"{key} {progress.get(key)}, it must be {value}"
    tail = progress.get("loss_tail")
    length = min(each.manifest.step, _TAIL)
    if not isinstance(tail, list) or len(tail) != length:
        yield f"a tail of {len(tail) if isinstance(tail, list) else 'no'} losses, it must be {length}"


def _losses(each: Held, progress: Mapping[str, Any], so_far: SoFar) -> Iterator[str]:
    if progress.get("skipped") != so_far.skipped:
        yield f"{progress.get('skipped')} skipped updates, the record {so_far.skipped}"
    recorded = so_far.tail(_TAIL)
    tail = progress.get("loss_tail")
    if isinstance(tail, list) and len(tail) == len(recorded) and tail != recorded:
        wrong = next(i for i in range(len(tail)) if tail[i] != recorded[i])
        step = each.manifest.step - len(tail) + wrong + 1
        yield f"the loss {tail[wrong]} for step {step}, the record {recorded[wrong]}"
