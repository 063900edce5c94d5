"""Invariant 10, no vacuous pass: every planned fault has one receipt and was seen, every death has a receipt, and
the history that all of this rests on is whole. Whatever is missing makes the verdict unknown.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import numpy as np

from chaos.audit.deaths import explained, mismatch, observe, orphaning, receipts_of, unexplained
from chaos.audit.disturbances import unasked
from chaos.audit.events import Closed, ExitConfirmed, Exited, Finished, GaveUp, ProcessNamed, Resumed, Spawned
from chaos.audit.evidence import Evidence, HistoryFile
from chaos.audit.facts import Fault, Head
from chaos.audit.failures import unaccounted
from chaos.audit.findings import Case, Finding
from chaos.audit.logbook import publications
from chaos.audit.selfsame import contradictions, lost_facts
from chaos.audit.steps import NO_ATTEMPT
from chaos.audit.told import untold
from chaos.audit.verified import manifest_of
from chaos.audit.witnesses import events

ID, NAME = 10, "no vacuous pass"


def check(evidence: Evidence) -> Finding:
    """Invalid: evidence that contradicts itself. Unknown: evidence that is missing or cut, a fault that did not fire or
    was not seen, a death unaccounted for.
    """
    case = Case(used=bool(evidence.faults))
    case.unsure += evidence_gaps(evidence)
    for fault in evidence.faults:
        receipts = receipts_of(evidence, fault)
        if len(receipts) != 1:
            case.unsure.append(f"fault {fault} {_not_fired(fault, len(receipts))}")
            continue
        (receipt,) = receipts
        if wrong := mismatch(evidence, fault, receipt):
            case.unsure.append(f"fault {fault} {wrong}")
        elif observe(evidence, receipt) is None:
            seen = "nothing that was recorded shows it"
            if receipt.lethal:
                seen = f"nobody saw process {receipt.target.pid} end as it says"
            case.unsure.append(f"fault {fault} has a receipt, but {seen}")
    planned = {fault.id for fault in evidence.faults}
    for receipt in evidence.history.receipts:
        if evidence.begun is not None and receipt.fault not in planned:
            case.unsure.append(f"there is a receipt of {receipt.fault}, which was not planned")
    case.wrong += contradictions(evidence)
    case.unsure += unexplained(evidence)
    case.unsure += unaccounted(evidence)
    case.unsure += unasked(evidence)
    return case.finding("no fault was planned")


def _not_fired(fault: Fault, receipts: int) -> str:
    if receipts:
        return f"has {receipts} receipts: it was to strike once"
    own = (fault.point or "").startswith("user.")
    hint = "; `killpoint points --record EXPERIMENT` shows which points a run passes, and how often" if own else ""
    return f"did not fire: it has no receipt{hint}"


def evidence_gaps(evidence: Evidence) -> Iterator[str]:
    """Everything that shows that part of the history was lost, cut or changed."""
    history = evidence.history
    if not history.files:
        yield "there is no history"
        return
    yield from _unfinished(evidence)
    for problem in history.problems:
        yield str(problem)
    for file in history.files.values():
        if file.problem is not None:
            yield f"history/{file.name} {file.problem}"
        elif evidence.begun is not None and file.opened is not None and file.opened.run != evidence.begun.run:
            yield f"history/{file.name} is of run {file.opened.run}, not of {evidence.begun.run}"
    if evidence.begun is None:
        yield "no history says what the run was (the supervisor's first file is missing or cut)"
    for event in events(evidence, ProcessNamed):
        if event.what.history not in history.files:
            yield (
                f"history/{event.what.history} is missing: process {event.what.pid} ({event.what.role}) "
                "wrote it"
            )
    yield from _cut_heads(evidence)
    yield from _counted(_without_end(evidence))
    yield from untold(evidence)
    yield from lost_facts(evidence)


def _cut_heads(evidence: Evidence) -> Iterator[str]:
    """Every head that was carried elsewhere must be a line of the file that it names."""
    for where, head in _heads(evidence):
        file = evidence.history.files.get(head.file)
        if file is None:
            yield f"history/{head.file} is missing: {where} names it"
        elif head.n >= len(file.chains):
            yield (
                f"history/{head.file} was cut: {where} has seen line {head.n + 1}, it ends at line "
                f"{len(file.chains)}"
            )
        elif head.n < 0 or file.chains[head.n] != head.chain:
            yield f"history/{head.file} is another one than {where} has seen: line {head.n + 1} differs"


def _heads(evidence: Evidence) -> Iterator[tuple[str, Head]]:
    for receipt in evidence.history.receipts:
        if receipt.history is not None:
            yield f"the receipt of {receipt.fault}", receipt.history
    for publish in publications(evidence.store.log.entries):
        manifest = manifest_of(evidence, publish)
        for record in manifest.ranks if manifest is not None else ():
            yield f"the manifest of {publish.name}", record.history
    for event in events(evidence, Closed):
        for head in event.what.heads:
            yield f"the end of {event.file}", head
    for resumed in events(evidence, Resumed):
        for previous in resumed.what.previous:
            if previous.head is not None:
                yield f"the supervisor that resumed ({resumed.file})", previous.head


def _without_end(evidence: Evidence) -> Iterator[str]:
    """A history ends in `closed`, or its process is known to have been ended."""
    meant, lost = explained(evidence), orphaning(evidence)
    took_part = {event.what.history for event in events(evidence, ProcessNamed)}
    children = {(event.what.pid, event.what.start_ticks) for event in events(evidence, ProcessNamed)}
    for file in evidence.history.files.values():
        opened = file.opened
        if file.closed or file.problem is not None or opened is None or file.name in lost:
            continue
        if opened.role == "launcher":
            spawned = _spawned(file)
            if spawned in children and spawned not in meant:
                yield f"history/{file.name} has no end: the launcher of process {spawned[0]} was cut off"
        elif (opened.pid, opened.start_ticks) not in meant | _exited(evidence):
            led = any(event.attempt is not None for event in file.events) or np.any(file.steps.attempt != NO_ATTEMPT)
            acted = file.name in took_part or led
            if acted or opened.role == "supervisor":
                yield f"history/{file.name} has no end, and nothing says that process {opened.pid} was ended"


def _spawned(file: HistoryFile) -> tuple[int, int | None]:
    found = [event.what for event in file.events if isinstance(event.what, Spawned)]
    return (found[0].pid, found[0].start_ticks) if found else (-1, None)


def _exited(evidence: Evidence) -> set[tuple[int, int]]:
    ended = [*events(evidence, Exited), *events(evidence, ExitConfirmed)]
    return {(event.what.pid, event.what.start_ticks) for event in ended}


def _counted(sentences: Iterator[str]) -> Iterator[str]:
    """The first one and how many more: after a supervisor's end each of its processes leaves one."""
    found = list(sentences)
    if found:
        yield found[0] + (f" (and {len(found) - 1} more like it)" if len(found) > 1 else "")


def _unfinished(evidence: Evidence) -> Iterator[str]:
    """A run that did not reach its target is no proof that it would have."""
    if evidence.begun is None or any(events(evidence, Finished)):
        return
    reasons = [event.what.reason for event in events(evidence, GaveUp)]
    reason = reasons[-1] if reasons else "its supervisor is gone, or still at work"
    goes_on = not reasons or reason.startswith("interrupted")
    hint = f"; go on with: killpoint run --resume {shlex.quote(evidence.folder)}" if goes_on else ""
    yield f"the run did not reach step {evidence.begun.steps}: {reason}{hint}"
