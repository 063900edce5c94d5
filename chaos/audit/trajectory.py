"""Invariant 5, same trajectory: every update of every attempt, abandoned ones too, is the twin's, bit for bit.

Compared are, per update and rank: consumed ids, rates, loss, gradient norm, a digest of each part of the state; per
restart the state before the first update; per checkpoint every part. A tolerance that the user states loosens loss,
rate and norm; digests are then not compared. A number that is not finite fails in any case, and so does anything that
is there on one side only. A twin that cannot be trusted, or two that differ, prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import TypeVar

import numpy as np

from chaos.audit.events import Closed, Event, Restored, StepDone
from chaos.audit.evidence import Evidence, Fence, Manifest, Moment, TwinSeen
from chaos.audit.facts import RunBegun
from chaos.audit.findings import Case, Finding, listed
from chaos.audit.logbook import publications
from chaos.audit.steps import Finder, Steps
from chaos.audit.verified import manifest_of
from chaos.audit.witnesses import events, steps

W = TypeVar("W")
ID, NAME = 5, "same trajectory"
_BY_UPDATES = frozenset({"model", "optimizer", "scheduler", "scaler", "progress", "best", "best.buffers"})
_SAME = ("seed", "ranks", "microbatches", "global_batch", "steps", "training_digest", "platform")


class _Records:
    """Updates by rank and number."""

    def __init__(self, done: Steps) -> None:
        self._done = done
        ranks = np.unique(done.rank).tolist()
        self._ranks = {rank: Finder(done, np.flatnonzero(done.rank == rank)) for rank in ranks}

    def get(self, place: tuple[int, int]) -> StepDone | None:
        """place: rank, step."""
        found = self._ranks.get(place[0])
        index = None if found is None else found.index(place[1])
        return None if index is None else self._done[index].what

    def first_unknown(self, done: Steps) -> tuple[int, int] | None:
        """Of the updates that are not here, (step, rank) of the first."""
        unknown: list[tuple[int, int]] = []
        for rank in np.unique(done.rank).tolist():
            lost = np.unique(done.step[done.rank == rank])
            lost = lost[~np.isin(lost, self._ranks[rank].steps)] if rank in self._ranks else lost
            unknown += [(int(lost[0]), rank)] if lost.size else []
        return min(unknown, default=None)


@dataclass(frozen=True)
class _Twin:
    """What the twin did: by (rank, step), by rank at its start, by moment of its checkpoints."""

    steps: _Records
    starts: Mapping[int, Restored]
    manifests: Mapping[Moment, Manifest]


def check(evidence: Evidence) -> Finding:
    """Invalid names the first update of each attempt that is not the twin's, and what differs in it."""
    case, begun = Case(), evidence.begun
    if begun is None:
        case.unsure.append("the history does not say what was run")
        return case.finding()
    if not evidence.twins:
        if begun.twin:
            how = f"killpoint run --resume {quote(evidence.folder)}"
            case.unsure.append(f"the twin is missing: train it with `{how}`, or run with `twin: false`")
        return case.finding("the run was not to be compared with a twin")
    case.used = True
    for twin in evidence.twins:
        case.unsure += [f"{twin.place}: {problem}" for problem in _problems(evidence, begun, twin)]
    if case.unsure:
        return case.finding()
    first = _read(evidence.twins[0])
    if len(evidence.twins) > 1:
        differing = list(_differences(_events(evidence.twins[1], StepDone), first, begun.tolerance))
        if differing:
            case.unsure.append(f"the workload is not deterministic: a second twin, {differing[0]}")
            return case.finding()
    case.wrong += _run_differences(evidence, first, begun.tolerance)
    case.unsure += _untold(evidence, first)
    return case.finding()


def _problems(evidence: Evidence, begun: RunBegun, twin: TwinSeen) -> Iterator[str]:
    """Why this is no uninterrupted run of the same training on the same platform."""
    yield from (str(problem) for problem in (*twin.log.problems, *twin.history.problems))
    yield from (f"history/{file.name} {file.problem}" for file in twin.history.files.values() if file.problem)
    if twin.begun is None:
        yield "its history does not say what was run"
        return
    other = [name for name in _SAME if getattr(begun, name) != getattr(twin.begun, name)]
    if other:
        yield f"it is of another {listed(other)}"
    if twin.begun.faults or twin.history.receipts:
        yield "faults were planned in it"
    if sum(isinstance(entry, Fence) for entry in twin.log.entries) != 1:
        yield "it was interrupted"
    yield from _cut(twin)
    yield from _other_fingerprints(evidence, twin)


def _cut(twin: TwinSeen) -> Iterator[str]:
    """Whether every history still has the lines that its supervisor saw at the end."""
    heads = [head for event in _events(twin, Closed) for head in event.what.heads]
    if not heads:
        yield "its supervisor never closed its history"
    for head in heads:
        file = twin.history.files.get(head.file)
        if file is None or head.n >= len(file.chains) or file.chains[head.n] != head.chain:
            yield f"history/{head.file} is not what its supervisor saw"


def _other_fingerprints(evidence: Evidence, twin: TwinSeen) -> Iterator[str]:
    published = [manifest_of(evidence, publish) for publish in publications(evidence.store.log.entries)]
    ours = {manifest.fingerprints for manifest in published if manifest is not None}
    theirs = {manifest.fingerprints for manifest in _manifests(twin).values()}
    if not theirs or (ours and ours != theirs):
        yield "its checkpoints are of another dataset, plan, configuration or code"


def _events(twin: TwinSeen, kind: type[W]) -> Sequence[Event[W]]:
    return twin.history.by_kind.get(kind, ())


def _manifests(twin: TwinSeen) -> dict[Moment, Manifest]:
    """By moment. Publications of the one attempt that there is."""
    seen = {p.moment: (p, twin.manifests.get(p.name)) for p in publications(twin.log.entries)}
    return {s: m.manifest for s, (p, m) in seen.items() if m is not None and m.manifest and m.digest == p.digest}


def _read(twin: TwinSeen) -> _Twin:
    steps = _Records(Steps.of(_events(twin, StepDone)))
    starts = {event.what.rank: event.what for event in _events(twin, Restored)}
    return _Twin(steps, starts, _manifests(twin))


def _run_differences(evidence: Evidence, twin: _Twin, tolerance: float) -> Iterator[str]:
    """One sentence for each attempt that departs from the twin, at its first difference; then checkpoints."""
    restored = {event.attempt: event.what.step for event in events(evidence, Restored)}
    starts = (event for event in events(evidence, Restored) if not tolerance)
    found = [*_start_differences(starts, twin), *_differences(events(evidence, StepDone), twin, tolerance)]
    for attempt in sorted({difference.attempt for difference in found}):
        first = min((d for d in found if d.attempt == attempt), key=lambda d: (d.step, d.rank))
        yield f"{first}; attempt {attempt} began at step {restored.get(attempt, '?')}"
    if not tolerance:
        yield from _checkpoint_differences(evidence, twin)


@dataclass(frozen=True)
class _Difference:
    attempt: int
    step: int
    rank: int
    what: tuple[str, ...]

    def __str__(self) -> str:
        return f"attempt {self.attempt}, step {self.step}, rank {self.rank}: not the twin's {listed(self.what)}"


def _differences(records: Iterable[Event[StepDone]], twin: _Twin, tolerance: float) -> Iterator[_Difference]:
    for event in records:
        step, other = event.what, twin.steps.get((event.what.rank, event.what.step))
        if other is not None:
            what = (*_exact(step, other, tolerance), *_numbers(step, other, tolerance))
            if what:
                yield _Difference(event.attempt or 0, step.step, step.rank, what)


def _exact(step: StepDone, other: StepDone, tolerance: float) -> Iterator[str]:
    yield from (
        name.replace("ids", "samples").replace("_", " ")
        for name in ("ids", "samples_seen", "skipped")
        if getattr(step, name) != getattr(other, name)
    )
    if not tolerance:
        yield from _parts(step.state, other.state)


def _parts(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[str]:
    """Names of the parts that differ, or that only one side has."""
    return (name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name))


def _numbers(step: StepDone, other: StepDone, tolerance: float) -> Iterator[str]:
    pairs = [("loss", step.loss, other.loss), ("gradient norm", step.gradient_norm, other.gradient_norm)]
    if len(step.lr) != len(other.lr):
        yield "number of learning rates"
    pairs += [("learning rate", *rates) for rates in zip(step.lr, other.lr, strict=False)]
    for name, ours, theirs in pairs:
        if not _close(ours, theirs, tolerance):
            yield f"{name} ({_shown(ours)}, twin {_shown(theirs)})"
        elif not math.isfinite(float.fromhex(ours)) and not step.skipped:
            yield f"finite {name} ({_shown(ours)})"


def _close(ours: str, theirs: str, tolerance: float) -> bool:
    if ours == theirs:
        return True
    return abs(float.fromhex(ours) - float.fromhex(theirs)) <= tolerance if tolerance else False


def _shown(number: str) -> str:
    return f"{float.fromhex(number):.9g}"


def _start_differences(starts: Iterable[Event[Restored]], twin: _Twin) -> Iterator[_Difference]:
    """What a restart held before its first update, beside what the twin held after the same number of updates.

    Inside a step only what an update alone changes is the same; the rest is compared where checkpoints are.
    """
    for event in starts:
        start = event.what
        other = twin.steps.get((start.rank, start.step)) if start.step else twin.starts.get(start.rank)
        if other is not None:
            differing = (p for p in _parts(start.state, other.state) if not start.microbatch or p in _BY_UPDATES)
            what = tuple(f"{part} as restored" for part in differing)
            if what:
                yield _Difference(event.attempt or 0, start.step, start.rank, what)


def _checkpoint_differences(evidence: Evidence, twin: _Twin) -> Iterator[str]:
    for publish in publications(evidence.store.log.entries):
        ours, theirs = manifest_of(evidence, publish), twin.manifests.get(publish.moment)
        if ours is None or theirs is None:
            continue
        what = [*_parts(ours.parts, theirs.parts)]
        for mine, other in zip(ours.ranks, theirs.ranks, strict=False):
            what += [f"{part} of rank {mine.rank}" for part in _parts(mine.parts, other.parts)]
        if what:
            yield f"checkpoint {publish.name}: not the twin's {listed(what)}"


def _untold(evidence: Evidence, twin: _Twin) -> Iterator[str]:
    """Updates of which the twin has no record: nothing is known of them."""
    done = steps(evidence)
    lost = twin.steps.first_unknown(done)
    if lost is not None:
        yield f"the twin has no record of step {lost[0]} of rank {lost[1]}"
    if not done:
        yield "the run has no record of any step"
