"""Matching faults with what was seen of them (invariant 10): by pid, start time and signal, never by order or luck."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from chaos.audit.disturbances import disturbed
from chaos.audit.events import Detected, Ended, ExitConfirmed, Exited, GaveUp, Killing, ProcessNamed, Resumed
from chaos.audit.evidence import Evidence
from chaos.audit.facts import Fault, Receipt
from chaos.audit.logbook import handed_on
from chaos.audit.witnesses import boot, events

SIGKILL, SIGTERM = 9, 15
Identity: TypeAlias = tuple[int | None, int | None]
_WRITES = {"rank": "worker", "standby": "worker", "committer": "committer", "supervisor": "supervisor"}
_HANG = frozenset({"stopped", "stalled", "missed_deadline"})


@dataclass(frozen=True)
class Observed:
    """What others saw of a fault. how: of the detection, or who saw it."""

    pid: int | None
    how: str
    signal: int | None = None
    code: int | None = None


def identity(receipt: Receipt) -> Identity:
    return receipt.target.pid, receipt.target.start_ticks


def receipts_of(evidence: Evidence, fault: Fault) -> tuple[Receipt, ...]:
    return tuple(receipt for receipt in evidence.history.receipts if receipt.fault == fault.id)


def mismatch(evidence: Evidence, fault: Fault, receipt: Receipt) -> str:
    """How the receipt is not of what was planned; empty if it is."""
    run = evidence.begun.run if evidence.begun is not None else receipt.run
    planned: dict[str, object] = {"run": run, "kind": fault.kind, "role": fault.role, "point": fault.point}
    planned |= {name: getattr(fault, name) for name in ("grace_s", "slow", "outage")}
    if fault.rank is not None:
        planned["rank"] = fault.rank
    if fault.point is not None:
        planned["hit"] = fault.hit
    if fault.role != "standby":  # it serves no attempt yet
        planned["attempt"] = fault.attempt
    for key, value in planned.items():
        if getattr(receipt, key) != value:
            return f"was planned with {key} {value}, its receipt has {getattr(receipt, key)}"
    held = receipt.gate
    if fault.gate is not None and (held is None or not held.held or held.gate != fault.gate):
        return f"was planned behind a gate at {fault.gate.point}, its receipt does not say that it was held"
    return _of_another_process(evidence, receipt)


def _of_another_process(evidence: Evidence, receipt: Receipt) -> str:
    """How the receipt does not fit the history of the process that it names; empty if it does."""
    role, target, head = _WRITES.get(receipt.role), receipt.target, receipt.history
    if role is None:
        return ""
    if head is None:
        return "has a receipt that does not say how far the struck process had recorded"
    own = f"{role}-{target.host}-{target.pid}-{target.start_ticks}.jsonl"
    if head.file != own:
        return f"struck process {target.pid}, but its receipt was written beside history/{head.file}"
    if own in evidence.history.files and boot(evidence, own) != receipt.boot:
        return f"has a receipt of another boot than history/{own}"
    return ""


def observe(evidence: Evidence, receipt: Receipt) -> Observed | None:
    """What was seen of the struck process, or of the damaged file; None if nothing fits."""
    if not receipt.lethal:
        how = disturbed(evidence, receipt)
        return None if how is None else Observed(None if receipt.path else receipt.target.pid, how)
    if receipt.role == "data":
        return Observed(receipt.target.pid, "receipt only")
    if receipt.role == "supervisor":
        return _supervisor(evidence, receipt)
    if receipt.kind == "exception":
        return _raised(evidence, receipt)
    ended = next((e for e in endings(evidence, identity(receipt)) if _by_fault(evidence, receipt, e)), None)
    if ended is None or _killed_unseen(evidence, identity(receipt)):
        return None
    detected = list(_detections(evidence, receipt))
    if receipt.kind == "hang":
        hows = [detection.how for detection in detected if detection.how in _HANG]
        return Observed(ended.pid, hows[0], ended.signal, ended.code) if hows else None
    if detected:
        return Observed(ended.pid, detected[0].how, ended.signal, ended.code)
    # Nobody waits for a standby, and a supervisor that is gone misses nobody.
    alone = receipt.role == "standby" or handed_on(evidence.store.log.entries, receipt.attempt)
    return Observed(ended.pid, "exited", ended.signal, ended.code) if alone else None


def _killed_unseen(evidence: Evidence, process: Identity) -> bool:
    """Whether a supervisor killed the process before anybody had found it lost: then the fault did not end it."""
    seen = {(e.file, e.n) for e in events(evidence, Detected) if (e.what.pid, e.what.start_ticks) == process}
    kills = [e for e in events(evidence, Killing) if (e.what.pid, e.what.start_ticks) == process]
    return any(all(file == kill.file and n > kill.n for file, n in seen) for kill in kills)


def _by_fault(evidence: Evidence, receipt: Receipt, ended: Ended) -> bool:
    """Whether the process ended as the fault ends one. After a notice it ends by that very signal, once it has saved;
    it is killed when its grace is over, and not before.
    """
    if receipt.kind != "sigterm" or ended.signal != SIGKILL:
        return ended.signal == (SIGTERM if receipt.kind == "sigterm" else SIGKILL)
    over_ns = receipt.t_ns + int((receipt.grace_s or 0.0) * 1e9)
    return any(
        event.what == ended and boot(evidence, event.file) == receipt.boot and event.t_ns >= over_ns
        for kind in (Exited, ExitConfirmed)
        for event in events(evidence, kind)
    )


def _supervisor(evidence: Evidence, receipt: Receipt) -> Observed | None:
    for event in events(evidence, Resumed):
        for previous in event.what.previous:
            if (previous.pid, previous.start_ticks) == identity(receipt):
                return Observed(previous.pid, "resumed")
    for given in events(evidence, GaveUp):
        opened = evidence.history.files[given.file].opened
        mine = opened is not None and (opened.pid, opened.start_ticks) == identity(receipt)
        if mine and _names(given.what.reason, receipt.fault):
            return Observed(receipt.target.pid, "gave up")
    return None


def _raised(evidence: Evidence, receipt: Receipt) -> Observed | None:
    for detected in _detections(evidence, receipt):
        if detected.how == "raised" and _names(detected.detail, receipt.fault):
            return Observed(detected.pid, "raised")
    return None


def _detections(evidence: Evidence, receipt: Receipt) -> Iterator[Detected]:
    for event in events(evidence, Detected):
        if (event.what.pid, event.what.start_ticks) == identity(receipt):
            yield event.what


def _names(text: str, fault: str) -> bool:
    """Whether the text has the fault's id as a word: f1 is not in f10."""
    return re.search(rf"(?<![\w-]){re.escape(fault)}(?![\w-])", text) is not None


def endings(evidence: Evidence, process: Identity) -> Iterator[Ended]:
    """How the process ended, as its launcher saw it or the supervisor confirmed."""
    for kind in (Exited, ExitConfirmed):
        for event in events(evidence, kind):
            if (event.what.pid, event.what.start_ticks) == process:
                yield event.what


def _struck(evidence: Evidence) -> set[Identity]:
    """Processes that a fault ended, by its receipt."""
    return {identity(receipt) for receipt in evidence.history.receipts if receipt.lethal}


def explained(evidence: Evidence) -> set[Identity]:
    """Processes whose end is known: struck with a receipt, killed by a recovery or clean-up, or left behind by
    a supervisor that was struck itself or that another one found gone."""
    meant = _struck(evidence)
    meant |= {(event.what.pid, event.what.start_ticks) for event in events(evidence, Killing)}
    lost = orphaning(evidence)
    for event in events(evidence, ProcessNamed):
        if event.file in lost:
            meant.add((event.what.pid, event.what.start_ticks))
    return meant


def orphaning(evidence: Evidence) -> set[str]:
    """Histories of supervisors whose end took their processes along."""
    receipts = [receipt for receipt in evidence.history.receipts if receipt.lethal]
    struck = {identity(receipt) for receipt in receipts if receipt.role == "supervisor"}
    lost = {previous.file for event in events(evidence, Resumed) for previous in event.what.previous}
    for name, file in evidence.history.files.items():
        if file.opened is not None and (file.opened.pid, file.opened.start_ticks) in struck:
            lost.add(name)
    return lost


def unexplained(evidence: Evidence) -> Iterator[str]:
    """Deaths of processes of the run that no receipt and no kill by the supervisor accounts for.

    A kill within an attempt accounts for an end by its own signal only: it also follows upon a death.
    """
    meant = explained(evidence)
    struck = _struck(evidence)
    kills: dict[Identity, set[tuple[int | None, int]]] = {}
    for event in events(evidence, Killing):
        kills.setdefault((event.what.pid, event.what.start_ticks), set()).add((event.attempt, event.what.signal))
    named = {(event.what.pid, event.what.start_ticks): event.what for event in events(evidence, ProcessNamed)}
    for process, who in named.items():
        for ended in endings(evidence, process):
            ways = kills.get(process, set()) if process not in struck else set()
            otherwise = ways and all(attempt is not None and ended.signal != number for attempt, number in ways)
            if (ended.signal is not None or ended.code) and (process not in meant or otherwise):
                how = (
                    f"by signal {ended.signal}"
                    if ended.signal is not None
                    else f"with exit code {ended.code}"
                )
                role = who.role if who.rank is None else f"{who.role} {who.rank}"
                yield (
                    f"process {who.pid} ({role}) died {how}, and no receipt or recorded kill accounts for it"
                )
                break
