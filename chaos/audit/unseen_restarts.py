"""What a run's restarts and saves were too simple to show: a part of what it could not have seen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from chaos.audit.events import Event, FencedOff, Published, SaveDue, SaveStaged
from chaos.audit.evidence import Evidence
from chaos.audit.formats import checkpoint_name
from chaos.audit.logbook import attempts, candidates
from chaos.audit.redo import restored_moment
from chaos.audit.witnesses import boot, events


def restarts(evidence: Evidence) -> Iterator[str]:
    """Of the choices that restarts had, and of what came after the fence."""
    entries = evidence.store.log.entries
    chosen = {number: life for number, life in attempts(entries).items() if number > 0 and life.choose is not None}
    if not chosen:
        return
    if not any(restored_moment(life) > (0, 0) for life in chosen.values()):
        yield "every restart began from nothing: that a checkpoint comes back was not seen"
    found = [candidates(entries, number) for number in chosen]
    if all(len(each) < 2 for each in found):
        yield "no restart had several candidates: that the newest of them is taken was not seen"
    elif all(len({len(str(publish.step)) for publish in each}) < 2 for each in found):
        yield (
            "at every restart the steps of all candidates had the same number of digits: newest by a sort of names is "
            "invisible here"
        )
    if not any(restored_moment(life)[1] for life in chosen.values()):
        yield "no restart began inside a step: partial gradients that are lost are invisible here"
    if not events(evidence, FencedOff):
        yield "no writer of a fenced attempt came back: that the fence holds was not seen"


def saves(evidence: Evidence) -> Iterator[str]:
    """Of saves that met each other."""
    if events(evidence, SaveDue) and not _met(evidence):
        yield "no save fell due while another was in flight: one that is skipped is invisible here"


def _met(evidence: Evidence) -> bool:
    published = {event.what.name: event for event in events(evidence, Published)}
    staged: dict[tuple[str, int | None], list[Event[SaveStaged]]] = {}
    for event in events(evidence, SaveStaged):
        staged.setdefault((event.file, event.attempt), []).append(event)
    for due in events(evidence, SaveDue):
        mine = staged.get((due.file, due.attempt), ())
        earlier = bisect_left(mine, due.n, key=lambda event: event.n)
        if earlier:
            last = mine[earlier - 1]
            name = checkpoint_name(last.what.step, last.attempt or 0, last.what.microbatch)
            there = published.get(name)
            if there is None or (boot(evidence, there.file) == boot(evidence, due.file) and due.t_ns < there.t_ns):
                return True
    return False


def tails(evidence: Evidence) -> Iterator[str]:
    """Of processes that were killed."""
    if any(receipt.kind == "sigkill" for receipt in evidence.history.receipts):
        yield "what a killed process recorded last, and nobody else had seen, may be lost with it"
