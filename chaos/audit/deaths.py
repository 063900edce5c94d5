"""Matching faults with what was seen of them (invariant 10): by pid, start time and signal, never by order or luck."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.audit.events import Detected, Ended, ExitConfirmed, Exited, GaveUp, Killing, ProcessNamed, Resumed
from chaos.audit.evidence import Evidence
from chaos.audit.facts import Fault, Receipt
from chaos.audit.witnesses import events

SIGKILL = 9
_Id = tuple[int | None, int | None]
_HANG = frozenset({"stopped", "stalled", "missed_deadline"})


@dataclass(frozen=True)
class Observed:
    """What others saw of a fault. how: of the detection, or who saw it."""

    pid: int | None
    how: str
    signal: int | None = None
    code: int | None = None


def identity(receipt: Receipt) -> _Id:
    return receipt.target.pid, receipt.target.start_ticks


def receipts_of(evidence: Evidence, fault: Fault) -> tuple[Receipt, ...]:
    return tuple(receipt for receipt in evidence.history.receipts if receipt.fault == fault.id)


def mismatch(evidence: Evidence, fault: Fault, receipt: Receipt) -> str:
    """How the receipt is not of what was planned; empty if it is."""
    run = evidence.begun.run if evidence.begun is not None else receipt.run
    planned: dict[str, object] = {"run": run, "kind": fault.kind, "role": fault.role, "point": fault.point}
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
    return ""


def observe(evidence: Evidence, receipt: Receipt) -> Observed | None:
    """What was seen of the struck process, or of the damaged file; None if nothing fits."""
    if receipt.kind == "damage":
        return _damage(evidence, receipt)
    if receipt.role == "data":
        return Observed(receipt.target.pid, "receipt only")
    if receipt.role == "supervisor":
        return _supervisor(evidence, receipt)
    if receipt.kind == "exception":
        return _raised(evidence, receipt)
    ended = next((e for e in endings(evidence, identity(receipt)) if e.signal == SIGKILL), None)
    if ended is None:
        return None
    detected = list(_detections(evidence, receipt))
    if receipt.kind == "hang":
        hows = [detection.how for detection in detected if detection.how in _HANG]
        return Observed(ended.pid, hows[0], ended.signal, ended.code) if hows else None
    how = detected[0].how if detected else "exited"
    return Observed(ended.pid, how, ended.signal, ended.code)


def _damage(evidence: Evidence, receipt: Receipt) -> Observed | None:
    path = (receipt.path or "").removeprefix("store/")
    seen = evidence.store.files.get(path)
    if seen is not None and seen.digest == receipt.after:
        return Observed(None, "damaged")
    gone = receipt.path is not None and path not in evidence.store.present
    return Observed(None, "removed since") if gone else None


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


def endings(evidence: Evidence, process: _Id) -> Iterator[Ended]:
    """How the process ended, as its launcher saw it or the supervisor confirmed."""
    for kind in (Exited, ExitConfirmed):
        for event in events(evidence, kind):
            if (event.what.pid, event.what.start_ticks) == process:
                yield event.what


def explained(evidence: Evidence) -> set[_Id]:
    """Processes that were meant to end: struck with a receipt, killed by a recovery or clean-up, or left behind by
    a supervisor that was struck itself or that another one found gone."""
    meant = {identity(receipt) for receipt in evidence.history.receipts}
    meant |= {(event.what.pid, event.what.start_ticks) for event in events(evidence, Killing)}
    lost = orphaning(evidence)
    for event in events(evidence, ProcessNamed):
        if event.file in lost:
            meant.add((event.what.pid, event.what.start_ticks))
    return meant


def orphaning(evidence: Evidence) -> set[str]:
    """Histories of supervisors whose end took their processes along."""
    struck = {identity(receipt) for receipt in evidence.history.receipts if receipt.role == "supervisor"}
    lost = {previous.file for event in events(evidence, Resumed) for previous in event.what.previous}
    for name, file in evidence.history.files.items():
        if file.opened is not None and (file.opened.pid, file.opened.start_ticks) in struck:
            lost.add(name)
    return lost


def unexplained(evidence: Evidence) -> Iterator[str]:
    """Deaths of processes of the run that no receipt and no kill by the supervisor accounts for."""
    meant = explained(evidence)
    named = {(event.what.pid, event.what.start_ticks): event.what for event in events(evidence, ProcessNamed)}
    for process, who in named.items():
        for ended in endings(evidence, process):
            if (ended.signal is not None or ended.code) and process not in meant:
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
