"""Whatever failed needs a receipt (invariant 10): every attempt that was followed by another, every supervisor that
another one found gone, every process that crashed.

One receipt explains an attempt's end: what else was detected in it, peers that raised or missed their deadline, came
of the same death.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos.audit.deaths import Identity, identity
from chaos.audit.events import Detected, Event, Exited, Finished, GaveUp, ProcessNamed, Resumed
from chaos.audit.evidence import Evidence, HistoryFile
from chaos.audit.facts import Receipt
from chaos.audit.logbook import attempts, handed_on
from chaos.audit.witnesses import events, instant

_WITHOUT_FAULT = frozenset({1, 2, 9, 15})  # how Ray, or whoever ends a cluster, ends processes too
_CAUSED_BY_DATA = frozenset({"raised", "stalled"})


def unaccounted(evidence: Evidence) -> Iterator[str]:
    """Failures that no receipt accounts for, each as a sentence."""
    detected: dict[int, list[Event[Detected]]] = {}
    for event in events(evidence, Detected):
        detected.setdefault(-1 if event.attempt is None else event.attempt, []).append(event)
    for attempt, found in sorted(detected.items()):
        if not _taken_over(evidence, attempt) and not any(_explained(evidence, attempt, e.what) for e in found):
            first = found[0].what
            yield f"attempt {attempt} ended because {_told(first)}, and no receipt accounts for it"
    lives = attempts(evidence.store.log.entries)
    for attempt in sorted(lives):
        if attempt in detected or attempt + 1 not in lives or handed_on(evidence.store.log.entries, attempt):
            continue
        if not any(_struck_unseen(receipt, attempt) for receipt in evidence.history.receipts):
            yield f"attempt {attempt} ended, and neither a detection nor a receipt says why"
    yield from _supervisors(evidence)
    yield from _crashes(evidence)


def _taken_over(evidence: Evidence, attempt: int) -> bool:
    """Whether a supervisor that lived was fenced off: who takes a run over ends its processes first."""
    entries = evidence.store.log.entries
    if not handed_on(entries, attempt):
        return False
    owner = attempts(entries)[attempt].fence.owner
    gone = {(each.pid, each.start_ticks) for event in events(evidence, Resumed) for each in event.what.previous}
    return (owner.pid, owner.start_ticks) not in gone and _closed(evidence, (owner.pid, owner.start_ticks))


def _closed(evidence: Evidence, process: Identity) -> bool:
    """Whether the supervisor ended its history in order."""
    return any(
        file.closed and file.opened is not None and (file.opened.pid, file.opened.start_ticks) == process
        for file in evidence.history.files.values()
        if file.opened is not None and file.opened.role == "supervisor"
    )


def _explained(evidence: Evidence, attempt: int, what: Detected) -> bool:
    return any(_explains(receipt, attempt, what) for receipt in evidence.history.receipts)


def _explains(receipt: Receipt, attempt: int, what: Detected) -> bool:
    if not receipt.lethal:
        return False
    if what.pid is None:  # it never said who it is
        serves = (receipt.role, receipt.rank) == (what.role, what.rank) and receipt.attempt == attempt
        return serves or receipt.role == "standby"
    if receipt.role == "data":  # the rank that waited for the task shows it
        return receipt.attempt == attempt and what.how in _CAUSED_BY_DATA
    if receipt.kind == "exception" and receipt.attempt == attempt and what.how == "raised":
        return True  # it may come out where the struck one was called from
    return identity(receipt) == (what.pid, what.start_ticks)


def _struck_unseen(receipt: Receipt, attempt: int) -> bool:
    """Whether the receipt explains an attempt of which nobody was recorded as lost: one that had not come up yet."""
    return receipt.lethal and (receipt.attempt == attempt or receipt.role == "standby")


def _told(what: Detected) -> str:
    who = what.role if what.rank is None else f"{what.role} {what.rank}"
    detail = f" ({what.detail})" if what.detail else ""
    return f"{who} (process {what.pid}) was lost: {what.how}{detail}"


def _supervisors(evidence: Evidence) -> Iterator[str]:
    """A supervisor that ended in order, after an interrupt too, says so in its history; one that was struck has a
    receipt."""
    struck = {identity(receipt) for receipt in evidence.history.receipts if receipt.lethal}
    gone = {
        (previous.pid, previous.start_ticks): previous.file
        for event in events(evidence, Resumed)
        for previous in event.what.previous
    }
    for process, name in gone.items():
        if process not in struck and not _closed(evidence, process):
            yield f"supervisor {process[0]} (history/{name}) was found gone, and no receipt accounts for it"


def _crashes(evidence: Evidence) -> Iterator[str]:
    """Processes that nobody had named yet, standbys for the most part, and that a signal of their own ended."""
    struck = {identity(receipt) for receipt in evidence.history.receipts if receipt.lethal}
    named = {(event.what.pid, event.what.start_ticks) for event in events(evidence, ProcessNamed)}
    for event in events(evidence, Exited):
        what = event.what
        if what.signal is None or what.signal in _WITHOUT_FAULT or (what.pid, what.start_ticks) in struck | named:
            continue
        if _led(evidence, instant(evidence, event)):
            yield f"process {what.pid} died by signal {what.signal}, and no receipt accounts for it"


def _led(evidence: Evidence, at: tuple[str | None, int]) -> bool:
    """Whether a supervisor was at work then: at the end of one, Ray may end its processes in any way."""
    return any(
        file.opened is not None
        and (file.opened.role, file.opened.boot) == ("supervisor", at[0])
        and file.events[0].t_ns < at[1] <= _until(file)
        for file in evidence.history.files.values()
    )


def _until(file: HistoryFile) -> int:
    """When the supervisor said that all is over, or its last word."""
    over = (event.t_ns for event in file.events if isinstance(event.what, (Finished, GaveUp)))
    return next(over, file.events[-1].t_ns)
