"""Invariant 6, fenced: after the fence of attempt k+1 nothing of attempt k enters the log."""

from __future__ import annotations

from chaos.audit.events import Chosen, Fenced, Finished, Published, Training
from chaos.audit.evidence import Choose, Evidence, Fence, Publish
from chaos.audit.findings import Case, Finding
from chaos.audit.logbook import unusable
from chaos.audit.witnesses import events

ID, NAME = 6, "fenced"


def check(evidence: Evidence) -> Finding:
    """Invalid: an entry of a fenced attempt, one before its own fence or choice, or two owners of an attempt."""
    case = Case()
    if broken := unusable(evidence):
        case.unsure.append(broken)
        return case.finding()
    fences: list[Fence] = []
    chosen: set[int] = {0}  # attempt 0 starts from nothing and need not say so
    for entry in evidence.store.log.entries:
        kind = type(entry).__name__.lower()
        if isinstance(entry, Fence):
            if entry.attempt != len(fences):
                case.wrong.append(
                    f"entry {entry.seq} fences attempt {entry.attempt}, the next one is {len(fences)}"
                )
            fences.append(entry)
            continue
        latest = fences[-1] if fences else None
        if latest is None or entry.attempt > latest.attempt:
            case.wrong.append(
                f"entry {entry.seq} ({kind}) is of attempt {entry.attempt}, which no fence began"
            )
        elif entry.attempt < latest.attempt:
            what = f" of {entry.name}" if isinstance(entry, Publish) else ""
            case.wrong.append(
                f"entry {entry.seq} is a {kind}{what} by attempt {entry.attempt} after the fence of attempt "
                f"{latest.attempt} (entry {latest.seq})"
            )
        elif isinstance(entry, Choose):
            chosen.add(entry.attempt)
        elif entry.attempt not in chosen:
            case.wrong.append(f"entry {entry.seq} is a {kind} by attempt {entry.attempt} before it chose")
    case.used = len(fences) > 1
    _judge_published(evidence, case)
    _judge_owners(evidence, {fence.attempt: fence for fence in fences}, case)
    return case.finding("there was one attempt, so nothing was fenced")


def _judge_published(evidence: Evidence, case: Case) -> None:
    """What committers say they published must be what the log has there."""
    held = {entry.seq: entry for entry in evidence.store.log.entries}
    for event in events(evidence, Published):
        said, entry = event.what, held.get(event.what.seq)
        named = (said.name, said.digest, said.step)
        if isinstance(entry, Publish) and (entry.name, entry.digest, entry.step) != named:
            case.wrong.append(
                f"{event.file} recorded {said.name} as published by entry {said.seq}, which has {entry.name}"
            )


def _judge_owners(evidence: Evidence, fences: dict[int, Fence], case: Case) -> None:
    """An attempt is led by the supervisor whose fence began it, and by no other."""
    for kind in (Fenced, Chosen, Training, Finished):
        for event in events(evidence, kind):
            fence = None if event.attempt is None else fences.get(event.attempt)
            opened = evidence.history.files[event.file].opened
            if fence is None or opened is None:
                continue
            leader = fence.owner
            if (opened.pid, opened.start_ticks, opened.host) != (leader.pid, leader.start_ticks, leader.host):
                case.wrong.append(
                    f"supervisor {opened.pid} went on with attempt {fence.attempt} "
                    f"({kind.__name__.lower()}), which the "
                    f"fence of supervisor {leader.pid} (entry {fence.seq}) began"
                )
