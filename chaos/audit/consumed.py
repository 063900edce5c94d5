"""The sample ids of the ledger beside those that each rank recorded update by update (a part of invariant 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from chaos.audit.evidence import I64, Evidence, Moment, Segment, SegmentMeta
from chaos.audit.formats import bulk_digest
from chaos.audit.steps import Finder, Steps
from chaos.audit.witnesses import steps

_TOLD = 256


def _whole_steps(segments: Sequence[Segment]) -> Iterator[tuple[SegmentMeta, int, I64]]:
    """(place of the last of its segments, update, its sample ids) of the updates that are finished and all there.

    segments: in the order of the lineage. The rows of an update in which a checkpoint lies are in several.
    """
    unfinished: dict[int, tuple[Moment, I64]] = {}  # by rank: where its last segment ended, ids of that update
    for segment in segments:
        meta, before = segment.meta, unfinished.pop(segment.meta.rank, None)
        for step, ids in _ids_by_step(segment):
            if step == meta.first_step and meta.first_microbatch:
                if before is None or before[0] != meta.start:
                    continue  # the rest of it is lost or was never written: told elsewhere
                ids = np.concatenate([before[1], ids])
            if meta.microbatch and step == meta.step:
                unfinished[meta.rank] = ((meta.step, meta.microbatch), ids)
            else:
                yield meta, step, ids


def _ids_by_step(segment: Segment) -> Iterator[tuple[int, I64]]:
    """(update, its sample ids in the order of consumption), ascending."""
    if not _in_order(segment):
        order = np.lexsort((segment.position, segment.microbatch, segment.step))
        yield from _split(segment.step[order], segment.sample_id[order])
        return
    held: tuple[int, list[I64]] | None = None  # the update that a part of the segment ended in
    for part in segment.parts():
        for step, ids in _split(part.step, part.sample_id):
            if held is not None and held[0] == step:
                held[1].append(ids)
                continue
            if held is not None:
                yield held[0], _joined(held[1])
            held = step, [ids]
    if held is not None:
        yield held[0], _joined(held[1])


def _joined(pieces: list[I64]) -> I64:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _in_order(segment: Segment) -> bool:
    """Whether the rows, which are in order of position, are in order of consumption too."""
    last = (-1, -1)
    for part in segment.parts():
        step, microbatch = part.step, part.microbatch
        if (int(step[0]), int(microbatch[0])) < last or np.any(step[1:] < step[:-1]):
            return False
        if np.any((microbatch[1:] < microbatch[:-1]) & (step[1:] == step[:-1])):
            return False
        last = (int(step[-1]), int(microbatch[-1]))
    return True


def _split(steps: I64, ids: I64) -> Iterator[tuple[int, I64]]:
    """steps: ascending, one at least. One piece of ids for each of them."""
    starts = [0, *(np.flatnonzero(steps[1:] != steps[:-1]) + 1).tolist()]
    for begin, end in zip(starts, [*starts[1:], len(ids)], strict=True):
        yield int(steps[begin]), ids[begin:end]


def ids_differ(evidence: Evidence, segments: Sequence[Segment]) -> Iterator[str]:
    """The ids that a rank recorded at each step must be those of its ledger rows."""
    told, recorded = _Told(steps(evidence)), _recorded(evidence)
    for meta, step, ids in _whole_steps(segments):
        found = recorded.get((meta.attempt, meta.rank))
        place = None if found is None else found.index(step + 1)
        digest = bulk_digest(np.ascontiguousarray(ids, "<i8").data)
        if place is not None and told.ids(place) != digest:
            yield (
                f"rank {meta.rank} of attempt {meta.attempt} recorded other samples for step {step} than "
                f"its ledger has (first sample id there {int(ids[0])})"
            )


class _Told:
    """The digests of sample ids that ranks recorded, some hundred at a time: they are asked for in turn."""

    def __init__(self, done: Steps) -> None:
        self._done = done
        self._first = 0
        self._texts: list[str] = []

    def ids(self, index: int) -> str:
        if not 0 <= index - self._first < len(self._texts):
            indices = np.arange(index, min(index + _TOLD, len(self._done)))
            self._first, self._texts = index, self._done.texts("ids", indices)
        return self._texts[index - self._first]


def ids_missing(evidence: Evidence, segments: Sequence[Segment]) -> Iterator[str]:
    """A published update must also be in the history of its rank."""
    recorded = _recorded(evidence)
    for segment in segments:
        meta = segment.meta
        finished = meta.last_step if meta.microbatch else meta.last_step + 1
        found = recorded.get((meta.attempt, meta.rank))
        there = 0 if found is None else len(found.after(meta.first_step))
        if there < finished - meta.first_step:
            step = meta.first_step + 1 + there
            yield f"the history of rank {meta.rank} in attempt {meta.attempt} lacks step {step}"


def _recorded(evidence: Evidence) -> dict[tuple[int | None, int], Finder]:
    """(attempt, rank) → what it recorded, by updates done."""
    done = steps(evidence)
    return {who: Finder(done, own) for who, own in done.by_rank.items()}
