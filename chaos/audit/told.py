"""What the history has to tell of the log, as a part of invariant 10: an entry that nobody recorded lost its witness.

A process may be killed between an entry and its record of it, so an entry needs one as soon as a later step shows that
its writer went on.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos.audit.events import Chosen, Fenced, Finished, Formed, Joined, Loaded, Published
from chaos.audit.evidence import Evidence
from chaos.audit.logbook import Attempt, attempts
from chaos.audit.witnesses import events, restored_by_attempt, steps_by_attempt


def untold(evidence: Evidence) -> Iterator[str]:
    """Attempts and entries whose supervisor, committer or ranks left no record."""
    led = {
        (opened.pid, opened.start_ticks, opened.host)
        for file in evidence.history.files.values()
        if (opened := file.opened) is not None and opened.role == "supervisor"
    }
    finished = {event.attempt for event in events(evidence, Finished)}
    trained = steps_by_attempt(evidence).keys()
    for number, life in sorted(attempts(evidence.store.log.entries).items()):
        owner = life.fence.owner
        if (owner.pid, owner.start_ticks, owner.host) not in led:
            yield f"the history of supervisor {owner.pid}, which began attempt {number}, is missing"
            continue
        acted = number in finished | trained or bool(life.published or restored_by_attempt(evidence).get(number))
        yield from _supervisor(evidence, life, acted)
        yield from _committer(evidence, life, number in finished)
        yield from _ranks(evidence, life, bool(life.published) or number in finished)


def _seqs(evidence: Evidence, kind: type[Fenced] | type[Chosen] | type[Published]) -> set[int]:
    return {event.what.seq for event in events(evidence, kind)}


def _supervisor(evidence: Evidence, life: Attempt, acted: bool) -> Iterator[str]:
    if life.choose is not None and life.fence.seq not in _seqs(evidence, Fenced):
        yield f"no supervisor recorded the fence of attempt {life.number}, entry {life.fence.seq}"
    if life.choose is not None and acted and life.choose.seq not in _seqs(evidence, Chosen):
        yield f"no supervisor recorded what attempt {life.number} chose, entry {life.choose.seq}"


def _committer(evidence: Evidence, life: Attempt, finished: bool) -> Iterator[str]:
    """All but the last one of an attempt, and that one too where the run has finished."""
    told = _seqs(evidence, Published)
    for publish in life.published if finished else life.published[:-1]:
        if publish.seq not in told:
            yield f"no committer recorded the publication of {publish.name}, entry {publish.seq}"


def _ranks(evidence: Evidence, life: Attempt, whole: bool) -> Iterator[str]:
    """whole: every rank must have restored its state."""
    begun, parent = evidence.begun, None if life.choose is None else life.choose.parent
    restored = {event.what.rank for event in restored_by_attempt(evidence).get(life.number, ())}
    ranks = range(begun.ranks if begun is not None else 0)
    for rank in [rank for rank in ranks if whole and rank not in restored][:1]:
        yield f"nothing says what rank {rank} of attempt {life.number} restored"
    if parent is None:
        return
    loaded = {
        event.what.rank
        for event in events(evidence, Loaded)
        if (event.attempt, event.what.name) == (life.number, parent.name)
    }
    for rank in sorted(restored - loaded)[:1]:
        yield f"nothing says that rank {rank} of attempt {life.number} verified {parent.name} before it restored it"


def other_groups(evidence: Evidence, ranks: int) -> Iterator[str]:
    """Groups that were formed of another number of ranks than the run has, or twice of the same rank."""
    for event in events(evidence, Formed):
        if event.what.world != ranks:
            yield f"attempt {event.attempt} formed a group of {event.what.world} ranks, the run has {ranks}"
    seen: dict[tuple[int | None, int], str] = {}
    for joined in events(evidence, Joined):
        rank = joined.what.rank
        other = seen.setdefault((joined.attempt, rank), joined.file)
        if other != joined.file:
            yield f"{other} and {joined.file} both joined attempt {joined.attempt} as rank {rank}"
        if not 0 <= rank < ranks:
            yield f"{joined.file} joined attempt {joined.attempt} as rank {rank} of {ranks}"
