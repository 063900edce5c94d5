"""The order in which ranks trained, as a part of invariant 3: from the restored step on each update once, in turn.

The samples of updates that no published ledger covers are held against the plan by the digest that the rank recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from chaos.audit.events import Event, Restored, StepDone
from chaos.audit.evidence import Evidence, Segment
from chaos.audit.facts import RunBegun
from chaos.audit.findings import listed
from chaos.audit.formats import bulk_digest
from chaos.audit.plan import Plan
from chaos.audit.witnesses import events, restored_by_attempt

_Who = tuple[int, int]  # attempt, rank
_PIECE = 1 << 16  # positions that are looked up at once


def disorder(evidence: Evidence) -> Iterator[str]:
    """Updates that were left out, repeated or out of turn; ranks in two processes; processes of two ranks."""
    done = _by_rank(evidence)
    restored: dict[_Who, list[Event[Restored]]] = {}
    for attempt, told in restored_by_attempt(evidence).items():
        for event in told:
            restored.setdefault((attempt, event.what.rank), []).append(event)
    for who, told in sorted(restored.items()):
        if len(told) > 1:
            yield f"rank {who[1]} of attempt {who[0]} restored its state {len(told)} times"
    for who, steps in sorted(done.items()):
        first = restored[who][0].what.step if who in restored else steps[0].what.step - 1
        yield from _sequence(who, first, steps)
    yield from _processes(evidence)


def _by_rank(evidence: Evidence) -> dict[_Who, list[Event[StepDone]]]:
    found: dict[_Who, list[Event[StepDone]]] = {}
    for event in events(evidence, StepDone):
        if event.attempt is not None:
            found.setdefault((event.attempt, event.what.rank), []).append(event)
    return found


def _sequence(who: _Who, restored: int, steps: Sequence[Event[StepDone]]) -> Iterator[str]:
    attempt, rank = who
    files = sorted({event.file for event in steps})
    if len(files) > 1:
        yield f"rank {rank} of attempt {attempt} trained in {len(files)} processes: {listed(files)}"
        return
    for expected, event in enumerate(steps, restored + 1):
        if event.what.step != expected:
            after = f"after step {expected - 1}" if expected > restored + 1 else f"after restoring step {restored}"
            yield f"rank {rank} of attempt {attempt} trained step {event.what.step} {after}, where {expected} was next"
            return


def _processes(evidence: Evidence) -> Iterator[str]:
    """A process serves one attempt after the other, and one rank in each."""
    for file in evidence.history.files.values():
        served: dict[int, int] = {}
        latest = -1
        for event in file.events:
            if not isinstance(event.what, (Restored, StepDone)) or event.attempt is None:
                continue
            rank = served.setdefault(event.attempt, event.what.rank)
            if rank != event.what.rank:
                yield f"{file.name} trained as rank {rank} and as rank {event.what.rank} of attempt {event.attempt}"
                break
            if event.attempt < latest:
                yield f"{file.name} trained on in attempt {event.attempt} after it had begun attempt {latest}"
                break
            latest = event.attempt


def strange_samples(evidence: Evidence, begun: RunBegun, plan: Plan, segments: Sequence[Segment]) -> Iterator[str]:
    """Updates without a published ledger that consumed other samples than the plan says; the first of each rank."""
    if begun.ranks < 1 or begun.global_batch % begun.ranks:
        return
    share = begun.global_batch // begun.ranks
    covered = {(s.meta.attempt, s.meta.rank): set[int]() for s in segments}
    for segment in segments:
        meta = segment.meta
        for part in segment.parts():
            changes = np.flatnonzero(part.step[1:] != part.step[:-1]) + 1
            found = part.step[[0, *changes.tolist()]].tolist()
            covered[meta.attempt, meta.rank].update(step for step in found if step < meta.step)
    for (attempt, rank), steps in sorted(_by_rank(evidence).items()):
        open_ = [e.what for e in steps if 0 < e.what.step <= begun.steps
                 and e.what.step - 1 not in covered.get((attempt, rank), ())]  # fmt: skip
        wrong = _first_wrong(open_, plan, rank, share, begun.global_batch) if 0 <= rank < begun.ranks else None
        if wrong is not None:
            yield (
                f"rank {rank} of attempt {attempt} recorded other samples for step {wrong.step - 1} than the plan says"
            )


def _first_wrong(steps: Sequence[StepDone], plan: Plan, rank: int, share: int, batch: int) -> StepDone | None:
    """A rank's share of a batch is one run of positions, consumed in order."""
    at_once = max(1, _PIECE // share)
    for begin in range(0, len(steps), at_once):
        piece = steps[begin : begin + at_once]
        first = np.array([(done.step - 1) * batch + rank * share for done in piece], np.int64)
        ids = plan.sample_ids((first[:, None] + np.arange(share)).reshape(-1)).reshape(len(piece), share)
        for done, own in zip(piece, ids, strict=True):
            if done.ids != bulk_digest(np.ascontiguousarray(own, "<i8").tobytes()):
                return done
    return None
