"""The order in which ranks trained, as a part of invariant 3: from the restored step on each update once, in turn.

The samples of updates that no published ledger covers are held against the plan by the digest that the rank recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from chaos.audit.events import Event, Restored
from chaos.audit.evidence import I64, Evidence, HistoryFile, Segment
from chaos.audit.facts import RunBegun
from chaos.audit.findings import listed
from chaos.audit.formats import bulk_digest
from chaos.audit.plan import Plan
from chaos.audit.steps import NO_ATTEMPT, Steps
from chaos.audit.witnesses import restored_by_attempt, steps

_Who = tuple[int, int]  # attempt, rank
_PIECE = 1 << 16  # positions that are looked up at once


def disorder(evidence: Evidence) -> Iterator[str]:
    """Updates that were left out, repeated or out of turn; ranks in two processes; processes of two ranks."""
    restored: dict[_Who, list[Event[Restored]]] = {}
    for attempt, told in restored_by_attempt(evidence).items():
        for event in told:
            restored.setdefault((attempt, event.what.rank), []).append(event)
    for who, told in sorted(restored.items()):
        if len(told) > 1:
            yield f"rank {who[1]} of attempt {who[0]} restored its state {len(told)} times"
    done = steps(evidence)
    for who, own in _by_rank(done):
        first = restored[who][0].what.step if who in restored else int(done.step[own[0]]) - 1
        yield from _sequence(who, first, done, own)
    yield from _processes(evidence)


def _by_rank(done: Steps) -> list[tuple[_Who, I64]]:
    """Indices of the events of each rank of each attempt."""
    return sorted(((attempt, rank), own) for (attempt, rank), own in done.by_rank.items() if attempt is not None)


def _sequence(who: _Who, restored: int, done: Steps, own: I64) -> Iterator[str]:
    attempt, rank = who
    files = done.files(own)
    if len(files) > 1:
        yield f"rank {rank} of attempt {attempt} trained in {len(files)} processes: {listed(files)}"
        return
    numbers = done.step[own]
    astray = np.flatnonzero(numbers != restored + 1 + np.arange(len(own)))
    if astray.size:
        expected = restored + 1 + int(astray[0])
        after = f"after step {expected - 1}" if expected > restored + 1 else f"after restoring step {restored}"
        found = int(numbers[astray[0]])
        yield f"rank {rank} of attempt {attempt} trained step {found} {after}, where {expected} was next"


def _processes(evidence: Evidence) -> Iterator[str]:
    """A process serves one attempt after the other, and one rank in each."""
    for file in evidence.history.files.values():
        served: dict[int, int] = {}
        latest = -1
        for _, attempt, trained in sorted([*_restores(file), *_stretches(file)]):
            rank = served.setdefault(attempt, trained)
            if rank != trained:
                yield f"{file.name} trained as rank {rank} and as rank {trained} of attempt {attempt}"
                break
            if attempt < latest:
                yield f"{file.name} trained on in attempt {attempt} after it had begun attempt {latest}"
                break
            latest = attempt


def _restores(file: HistoryFile) -> Iterator[tuple[int, int, int]]:
    """(n, attempt, rank) of every restore."""
    for event in file.events:
        if isinstance(event.what, Restored) and event.attempt is not None:
            yield event.n, event.attempt, event.what.rank


def _stretches(file: HistoryFile) -> Iterator[tuple[int, int, int]]:
    """(n, attempt, rank) of the steps between which either changes, first and last: those between say nothing more."""
    done = file.steps
    own = np.flatnonzero(done.attempt != NO_ATTEMPT)
    n, attempt, rank = done.n[own], done.attempt[own], done.rank[own]
    ends = np.flatnonzero((attempt[1:] != attempt[:-1]) | (rank[1:] != rank[:-1]))
    for i in sorted({0, *ends.tolist(), *(ends + 1).tolist(), len(own) - 1}) if own.size else []:
        yield int(n[i]), int(attempt[i]), int(rank[i])


def strange_samples(evidence: Evidence, begun: RunBegun, plan: Plan, segments: Sequence[Segment]) -> Iterator[str]:
    """Updates without a published ledger that consumed other samples than the plan says; the first of each rank."""
    if begun.ranks < 1 or begun.global_batch % begun.ranks:
        return
    share = begun.global_batch // begun.ranks
    covered: dict[_Who, list[I64]] = {}
    for segment in segments:
        meta = segment.meta
        for part in segment.parts():
            changes = np.flatnonzero(part.step[1:] != part.step[:-1]) + 1
            found = part.step[np.append(0, changes)]
            covered.setdefault((meta.attempt, meta.rank), []).append(found[found < meta.step])
    done = steps(evidence)
    for who, own in _by_rank(done):
        updates = done.step[own] - 1
        mine = np.concatenate(covered.get(who, [np.zeros(0, np.int64)]))
        open_ = own[(updates >= 0) & (updates < begun.steps) & ~np.isin(updates, mine)]
        attempt, rank = who
        wrong = _first_wrong(done, open_, plan, rank, share, begun.global_batch) if 0 <= rank < begun.ranks else None
        if wrong is not None:
            yield f"rank {rank} of attempt {attempt} recorded other samples for step {wrong} than the plan says"


def _first_wrong(done: Steps, own: I64, plan: Plan, rank: int, share: int, batch: int) -> int | None:
    """Number of the first update of these events. A rank's share of a batch is one run of positions, in order."""
    at_once = max(1, _PIECE // share)
    for begin in range(0, len(own), at_once):
        piece = own[begin : begin + at_once]
        updates = done.step[piece] - 1
        first = updates * batch + rank * share
        ids = plan.sample_ids((first[:, None] + np.arange(share)).reshape(-1)).reshape(len(piece), share)
        for update, told, planned in zip(updates.tolist(), done.texts("ids", piece), ids, strict=True):
            if told != bulk_digest(np.ascontiguousarray(planned, "<i8").data):
                return int(update)
    return None
