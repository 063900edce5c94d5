"""Two traces → where each attempt of B first parts from A, in which parts, by how much. Pure: no files, no clock.

Every attempt counts, abandoned ones too, and what it restored counts before its first step (invariant 5). Of what was
restored inside of a step only those parts are held against A that the last update made; the rest shows in the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from chaos.diff.differences import Difference, held_differences, merged, record_differences
from chaos.diff.parts import BY_UPDATES, EFFECTS, Role, place, role_of
from chaos.diff.reference import Held, Reference, last_step
from chaos.diff.trace import Start, StepRecord, Trace

T = TypeVar("T", StepRecord, Start)


@dataclass(frozen=True)
class Divergence:
    """Where one attempt first differs. side: `B`, or `A` for a later attempt of A itself.

    restored: it differs in what was restored after `step` updates; otherwise in the record of update `step`.
    differences: in the order in which a step uses the parts. inherited: the attempt from whose checkpoint it has this.
    earliest_update: the first update that it can change, None if A never used the part again. changed_update: the
    first one that is seen to be another, None if none is; changes: what differs in it.
    """

    side: str
    attempt: int
    step: int
    restored: bool
    differences: tuple[Difference, ...]
    inherited: int | None
    earliest_update: int | None
    changed_update: int | None
    changes: tuple[Difference, ...] = ()

    @property
    def parts(self) -> frozenset[str]:
        return frozenset(difference.part for difference in self.differences)


@dataclass(frozen=True)
class Counted:
    """What was held against each other: number of records and of starts, the steps, the parts of the states."""

    records: int
    starts: int
    steps: tuple[int, int] | None
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """structure: ranks, batch, rows, length. not_compared: prose, for what only one of both has."""

    structure: tuple[Difference, ...]
    divergences: tuple[Divergence, ...]
    counted: Counted
    not_compared: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return bool(self.structure or self.divergences)

    @property
    def first(self) -> Divergence | None:
        """The first difference as things happened: attempt by attempt, B before A's own."""
        return next(iter(self.divergences), None)


def compare(a: Trace, b: Trace) -> Comparison:
    """Raises TraceError for a number that is none."""
    reference = Reference.of(a)
    found = (*_attempts(reference, b, "B"), *_attempts(reference, a, "A"))
    divergences = tuple(sorted(found, key=lambda d: (d.side != "B", d.attempt)))
    return Comparison(_structure(a, b), divergences, _count(reference, b), tuple(_not_compared(reference, b)))


def _structure(a: Trace, b: Trace) -> tuple[Difference, ...]:
    pairs = [("ranks", a.ranks, b.ranks), ("global batch", a.global_batch, b.global_batch), ("rows", a.rows, b.rows)]
    found = [Difference(name, (), f"A has {x}, B {y}") for name, x, y in pairs if x != y]
    ends = last_step(a), last_step(b)
    if ends[0] != ends[1]:
        found.append(Difference("length", (), f"A ends at step {ends[0]}{_of_target(a)}, B at step {ends[1]}"
                                f"{_of_target(b)}", float(abs(ends[0] - ends[1]))))
    return tuple(found)


def _of_target(trace: Trace) -> str:
    return "" if trace.target_step in (None, last_step(trace)) else f" of {trace.target_step}"


def _attempts(reference: Reference, trace: Trace, side: str) -> Iterator[Divergence]:
    """One divergence for each attempt that differs. Of A itself the first attempt is the reference."""
    origins: dict[int, tuple[int, int]] = {}  # attempt → step of its first difference, attempt in which that arose
    records, starts = by_attempt(trace.records), by_attempt(trace.starts)
    numbers = sorted(records.keys() | starts.keys())
    for attempt in numbers if side == "B" else numbers[1:]:
        differing = _differing(reference, starts.get(attempt, ()), records.get(attempt, ()))
        if not differing:
            continue
        step, restored = min(differing, key=lambda moment: (moment[0], not moment[1]))
        parent = parent_attempt(trace, attempt)
        before = origins.get(parent) if parent is not None else None
        inherited = before[1] if restored and before is not None and before[0] <= step else None
        origins[attempt] = (step, attempt if inherited is None else inherited)
        differences = differing[step, restored]
        changed = min((at for (at, of_start), d in differing.items() if not of_start and _is_effect(d)), default=None)
        earliest = _earliest(reference, step, restored, differences, changed)
        changes = () if changed is None else differing[changed, False]
        yield Divergence(side, attempt, step, restored, differences, inherited, earliest, changed, changes)


def by_attempt(items: Iterable[T]) -> dict[int, tuple[T, ...]]:
    """attempt → its items, in their order."""
    found: dict[int, list[T]] = defaultdict(list)
    for item in items:
        found[item.attempt].append(item)
    return {attempt: tuple(many) for attempt, many in found.items()}


def parent_attempt(trace: Trace, attempt: int) -> int | None:
    """The attempt whose state this one went on from: the latest one before it that had done that step."""
    step = next((start.step for start in trace.starts if start.attempt == attempt and start.step > 0), None)
    return None if step is None else max(
        (r.attempt for r in trace.records if r.attempt < attempt and r.step == step), default=None
    )


def _differing(
    reference: Reference, starts: Iterable[Start], records: Iterable[StepRecord]
) -> dict[tuple[int, bool], tuple[Difference, ...]]:
    """(step, whether restored) → what differs there on any rank; moments without a difference are left out."""
    found: dict[tuple[int, bool], list[Difference]] = defaultdict(list)
    for start in starts:
        held = reference.held.get((start.step, start.rank))
        if held is not None:
            differing = held_differences(held, Held(start.state, start.values), start.rank)
            found[start.step, True] += (d for d in differing if not start.microbatch or role_of(d.part) in BY_UPDATES)
            found[start.step, True] += _cursor_differs(reference, start)
    for record in records:
        other = reference.records.get((record.step, record.rank))
        if other is not None:
            found[record.step, False] += record_differences(other, record)
    return {moment: merged(many) for moment, many in found.items() if many}


def _cursor_differs(reference: Reference, start: Start) -> Iterator[Difference]:
    """Labs may count the position within the epoch: that is the same cursor."""
    expected = expected_cursor(reference, start)
    rows = reference.trace.rows
    same_in_epoch = rows is not None and start.cursor <= rows and (start.cursor - expected) % rows == 0
    if start.cursor != expected and not same_in_epoch:
        yield Difference(Role.CURSOR, (start.rank,), f"A {expected}, B {start.cursor}",
                         float(abs(start.cursor - expected)))


def expected_cursor(reference: Reference, start: Start) -> int:
    """Where A's cursor stands after as many updates."""
    same = reference.starts.get((start.step, start.rank))
    record = reference.records.get((start.step, start.rank))
    if same is not None:
        return same.cursor
    if record is not None and record.samples_seen is not None:
        return record.samples_seen
    return start.step * reference.trace.global_batch


def _is_effect(differences: Iterable[Difference]) -> bool:
    return any(role_of(difference.part) in EFFECTS for difference in differences)


def _earliest(
    reference: Reference, step: int, restored: bool, differences: tuple[Difference, ...], changed: int | None
) -> int | None:
    """A generator matters when it is next drawn from, a scheduler when it is next stepped, all else at once."""
    if not restored and _is_effect(differences):
        return step
    roles = {role_of(d.part) for d in differences}
    candidates = [changed]
    for difference in differences:
        role = role_of(difference.part)
        if role is Role.GENERATOR:
            draws = (reference.drawn_from(difference.part, rank, step) for rank in difference.ranks)
            candidates += [draw for draw in draws if draw is not None]
        elif role is Role.SCHEDULER:  # update step + 1 has its rate already: it lies in the optimizer
            candidates.append(step + (1 if Role.OPTIMIZER in roles else 2))
        else:
            candidates.append(step + 1)
    return min((update for update in candidates if update is not None), default=None)


def _count(reference: Reference, b: Trace) -> Counted:
    records = [r for r in b.records if (r.step, r.rank) in reference.records]
    starts = [s for s in b.starts if (s.step, s.rank) in reference.held]
    steps = (min(r.step for r in records), max(r.step for r in records)) if records else None
    parts = {part for states in ([r.state for r in records], [s.state for s in starts]) for state in states
             for part in state}
    return Counted(len(records), len(starts), steps, tuple(sorted(parts, key=place)))


def _not_compared(reference: Reference, b: Trace) -> Iterator[str]:
    other = Reference.of(b)
    for name, mine, theirs in (("A", reference, other), ("B", other, reference)):
        steps = sorted({step for step, _ in mine.records} - {step for step, _ in theirs.records})
        if steps:
            yield f"{_steps(steps)} {'is' if len(steps) == 1 else 'are'} in {name} only"
    for start in b.starts:
        if start.rank == 0 and (start.step, start.rank) not in reference.held:
            yield f"attempt {start.attempt} of B begins at step {start.step}, of which A has no state"


def _steps(steps: list[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]}–{steps[-1]}"
