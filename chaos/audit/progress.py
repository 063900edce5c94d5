"""The progress part beside what the ranks recorded step by step, as a part of invariant 4: counts and losses.

Whatever it holds can be derived from the steps before it, along the lineage. A step without a record ends what is
known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chaos.audit.alike import Held, held, json_object
from chaos.audit.evidence import I64, Evidence
from chaos.audit.logbook import attempts, started_from
from chaos.audit.steps import NO_ATTEMPT, Finder, Steps
from chaos.audit.witnesses import steps

_TAIL = 256  # losses that the progress keeps


@dataclass(frozen=True)
class SoFar:
    """What one rank had recorded up to a step. tail: its last losses, oldest first."""

    skipped: int
    tail: list[str]


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Unbroken steps of one rank in one attempt, behind those of an earlier attempt. own: their indices."""

    before: _Stretch | None
    start: int
    own: I64
    skipped_before: int

    def knows(self, step: int) -> bool:
        return self.start <= step <= self.start + len(self.own)

    def skipped(self, skipped: npt.NDArray[np.bool_], step: int) -> int:
        """Skipped updates up to `step`. skipped: of all events."""
        return self.skipped_before + int(np.count_nonzero(skipped[self.own[: step - self.start]]))

    def tail(self, done: Steps, step: int) -> list[str]:
        losses: list[str] = []
        each: _Stretch | None = self
        while each is not None and len(losses) < _TAIL:
            own = each.own[: step - each.start][len(losses) - _TAIL :]
            losses = [*done.texts("loss", own), *losses]
            step = each.start
            each = each.before
        return losses


def faults(evidence: Evidence) -> Iterator[str]:
    """What in progress and record contradicts the record."""
    done = steps(evidence)
    known, skipped = _known(evidence, done), done.skipped
    for each in held(evidence):
        for rank, shard in sorted(each.shards.items()):
            progress = json_object(shard.metadata.get("part.progress"))
            stretch = known.get((each.publish.attempt, rank))
            step = each.publish.step
            so_far = None
            if stretch is not None and stretch.knows(step):
                so_far = SoFar(stretch.skipped(skipped, step), stretch.tail(done, step))
            for text in (*_counts(each, progress), *(() if so_far is None else _losses(each, progress, so_far))):
                yield f"{each.name}: the progress of rank {rank} has {text}"
    if evidence.begun is None:
        return
    batch = evidence.begun.global_batch
    for at in np.flatnonzero(done.samples_seen != done.step * batch).tolist():
        event = done[at]
        yield (
            f"rank {event.what.rank} of attempt {event.attempt} recorded {event.what.samples_seen} samples after step "
            f"{event.what.step}, which are {event.what.step * batch}"
        )


def _known(evidence: Evidence, done: Steps) -> Mapping[tuple[int, int], _Stretch]:
    """By attempt and rank, as far as the steps since the run's start have a record."""
    numbers, skipped = np.where(done.attempt == NO_ATTEMPT, 0, done.attempt), done.skipped
    found: dict[tuple[int, int], _Stretch] = {}
    for attempt in sorted(attempts(evidence.store.log.entries)):
        origin = started_from(evidence.store.log.entries, attempt)
        start = 0 if origin is None else origin.step
        for rank in np.unique(done.rank).tolist():
            before = None if origin is None else found.get((origin.attempt, rank))
            if origin is None or (before is not None and before.knows(start)):
                own = Finder(done, np.flatnonzero((numbers == attempt) & (done.rank == rank))).after(start)
                earlier = 0 if before is None else before.skipped(skipped, start)
                found[attempt, rank] = _Stretch(before, start, own, earlier)
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
    recorded = so_far.tail
    tail = progress.get("loss_tail")
    if isinstance(tail, list) and len(tail) == len(recorded) and tail != recorded:
        wrong = next(i for i in range(len(tail)) if tail[i] != recorded[i])
        step = each.manifest.step - len(tail) + wrong + 1
        yield f"the loss {tail[wrong]} for step {step}, the record {recorded[wrong]}"
