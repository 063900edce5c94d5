"""Receipts: durable proof that a fault fired, written before it strikes. Owns invariant 10, no vacuous pass.

A receipt is created exclusively, so that a fault strikes at most once however often its passage is reached
again, and it is on disk (file and directory) before the strike. It lies outside of what the fault may strike.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chaos.damage import Wound
from chaos.faults import Fault, Gate
from storage.errors import Damaged
from storage.history import Head
from storage.process import ProcessId, boot_id
from storage.sealed import seal, unseal

FORMAT = "killpoint.receipt/1"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What struck whom, where and when. `history` is how far the struck process had recorded."""

    fault: str
    run: str
    attempt: int
    role: str
    rank: int | None
    point: str | None
    hit: int | None
    kind: str
    target: ProcessId
    t_ns: int
    boot: str
    gate: Gate | None
    history: Head | None
    passages: Mapping[str, int] | None = None
    wound: Wound | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the fault: what only its kind has


def receipt_for(
    fault: Fault,
    run: str,
    rank: int | None,
    target: ProcessId,
    history: Head | None,
    passages: Mapping[str, int] | None = None,
    wound: Wound | None = None,
) -> Receipt:
    """The receipt for a fault that strikes now. `passages`: counts per point, where they are recorded.

    `wound`: of a damage; what the file will hold is not in the receipt.
    """
    return Receipt(
        fault.id,
        run,
        fault.attempt,
        fault.role.value,
        rank,
        fault.point,
        fault.hit,
        fault.kind.value,
        target,
        time.monotonic_ns(),
        boot_id(),
        fault.gate,
        history,
        passages,
        wound,
        {name: value for name, value in fault.settings().items() if name != "damage"},
    )


def receipt_path(folder: Path, fault: str) -> Path:
    """Where the receipt of `fault` lies in the run folder `folder`."""
    return folder / "history" / "receipts" / f"{fault}.json"


def has_receipt(folder: Path, fault: str) -> bool:
    """Whether the fault has fired."""
    return receipt_path(folder, fault).exists()


def write_receipt(folder: Path, receipt: Receipt) -> bool:
    """Makes the receipt durable. False if the fault has one already: it must not strike again."""
    path = receipt_path(folder, receipt.fault)
    data, _digest = seal(_body(receipt))
    draft = path.with_name(f".{receipt.fault}.{os.getpid()}.{threading.get_native_id()}.tmp")
    _write_durably(draft, data)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    _sync_folder(path.parent)
    return True


def read_receipts(folder: Path) -> tuple[Receipt, ...]:
    """Every receipt of the run, by fault id. Raises storage.errors.Damaged."""
    paths = sorted((folder / "history" / "receipts").glob("*.json"))
    return tuple(_read(path) for path in paths)


def read_receipt(folder: Path, fault: str) -> Receipt | None:
    """The receipt of one fault, None if it has none. Raises storage.errors.Damaged."""
    path = receipt_path(folder, fault)
    return _read(path) if path.exists() else None


def _body(receipt: Receipt) -> dict[str, Any]:
    gate = None if receipt.gate is None else {**receipt.gate.to_json(), "held": True}
    head = receipt.history
    body: dict[str, Any] = {
        "format": FORMAT,
        "fault": receipt.fault,
        "run": receipt.run,
        "attempt": receipt.attempt,
        "role": receipt.role,
        "rank": receipt.rank,
        "point": receipt.point,
        "hit": receipt.hit,
        "kind": receipt.kind,
        "t_ns": receipt.t_ns,
        "boot": receipt.boot,
        "gate": gate,
        "target": asdict(receipt.target),
        "history": None if head is None else head.as_dict(),
    }
    if receipt.passages is not None:
        body["passages"] = dict(receipt.passages)
    if receipt.wound is not None:
        body |= {name: getattr(receipt.wound, name) for name in ("path", "offset", "before", "after")}
    return body | dict(receipt.settings)


def _read(path: Path) -> Receipt:
    try:
        return _parse(unseal(path.read_bytes(), str(path))[0])
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(str(path), f"is not a receipt: {error!r}") from error


def _parse(body: Mapping[str, Any]) -> Receipt:
    target, head, gate = body["target"], body["history"], body["gate"]
    return Receipt(
        body["fault"],
        body["run"],
        body["attempt"],
        body["role"],
        body["rank"],
        body["point"],
        body["hit"],
        body["kind"],
        ProcessId(**target),
        body["t_ns"],
        body["boot"],
        None if gate is None else Gate.from_json(gate),
        None if head is None else Head(**head),
        body.get("passages"),
        Wound(body["path"], body["offset"], body["before"], body["after"], None) if "path" in body else None,
        {name: body[name] for name in ("grace_s", "slow", "outage") if name in body},
    )


def _write_durably(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
