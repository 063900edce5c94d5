"""The controller: strikes at planned times and lets held gates go once the kill they waited for is a fact.

Runs in the supervisor's process and sees the run only through its events. Serves invariant 10: as at a kill
point, the receipt is durable before the strike, and the process struck is the one that it names.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from chaos.errors import GateError
from chaos.faults import Fault, FaultKind
from chaos.gates import release_gate, wait_held
from chaos.points import Role
from chaos.receipts import read_receipt, receipt_for, write_receipt
from chaos.striker import release_struck_gates
from chaos.strikes import SIGNALS
from storage.errors import StorageError
from storage.history import Head, read_history
from storage.process import ProcessId, current_process, is_alive, start_ticks
from trainers.events import (
    AttemptStarted,
    DeathDetected,
    DeathObserved,
    Event,
    Finished,
    RankPlaced,
    TrainingStarted,
)

_Who = tuple[str, int | None]


class Controller:
    """Give `notify` to the supervisor; use as a context manager around its life."""

    def __init__(
        self,
        run: str,
        folder: Path,
        faults: tuple[Fault, ...],
        gate_deadline_s: float,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._run, self._folder, self._log = run, folder, log
        self._timed = tuple(fault for fault in faults if fault.after_s is not None)
        self._gated = tuple(fault for fault in faults if fault.gate is not None)
        self._gate_deadline_s = gate_deadline_s
        itself = current_process()
        self._host = itself.host
        self._placed: dict[_Who, ProcessId] = {(Role.SUPERVISOR.value, None): itself}
        self._due: list[tuple[float, Fault]] = []
        self._closed = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._watch_clock, name="killpoint-controller", daemon=True)

    def __enter__(self) -> Controller:
        release_struck_gates(self._folder, self._gated)  # a predecessor may have died before it could
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Strikes nothing more. Idempotent."""
        with self._change:
            self._closed = True
            self._change.notify()
        if self._thread.is_alive():
            self._thread.join()

    def notify(self, event: Event) -> None:
        """The supervisor says that something happened. Quick, and from any thread."""
        match event:
            case AttemptStarted() | Finished():
                self._disarm()
            case RankPlaced():
                self._place(event)
            case TrainingStarted(attempt):
                self._arm(attempt)
            case DeathDetected():
                self._release(event.pid, event.start_ticks, gone=False)
            case DeathObserved():
                self._release(event.pid, event.start_ticks, gone=True)

    def _disarm(self) -> None:
        """What was planned for an earlier attempt can no longer happen in it."""
        with self._change:
            self._due = []
            self._change.notify()

    def _place(self, event: RankPlaced) -> None:
        process = ProcessId(event.host, event.pid, event.start_ticks)
        with self._change:  # a standby that takes a rank's place is none any more
            self._placed = {who: placed for who, placed in self._placed.items() if placed != process}
            self._placed[(event.role, event.rank)] = process

    def _arm(self, attempt: int) -> None:
        now = time.monotonic()
        with self._change:
            self._due = sorted(
                (
                    (now + fault.after_s, fault)
                    for fault in self._timed
                    if fault.after_s is not None and fault.attempt == attempt
                ),
                key=lambda item: item[0],
            )
            self._change.notify()

    def _watch_clock(self) -> None:
        while True:
            with self._change:
                while not self._closed and not self._is_due():
                    wait_s = self._due[0][0] - time.monotonic() if self._due else None
                    self._change.wait(wait_s)
                if self._closed:
                    return
                fault = self._due.pop(0)[1]
                target = self._target(fault)
            if target is None:
                self._log(f"fault {fault.id} ({fault}) did not strike: no such process")
            else:
                self._strike(fault, target[0], target[1])

    def _is_due(self) -> bool:
        return bool(self._due) and self._due[0][0] <= time.monotonic()

    def _target(self, fault: Fault) -> tuple[int | None, ProcessId] | None:
        for (role, rank), process in self._placed.items():
            if role == fault.role.value and fault.rank in (rank, None):
                return rank, process
        return None

    def _strike(self, fault: Fault, rank: int | None, target: ProcessId) -> None:
        if target.host != self._host:
            self._log(f"fault {fault.id} did not strike: process {target.pid} is on {target.host}")
            return
        try:
            descriptor = os.pidfd_open(target.pid)  # from here on the pid cannot become another process's
        except ProcessLookupError:
            self._log(f"fault {fault.id} did not strike: process {target.pid} is gone")
            return
        try:
            if start_ticks(target.pid) != target.start_ticks or not is_alive(target):
                self._log(f"fault {fault.id} did not strike: process {target.pid} is gone")
                return
            if fault.gate is not None:
                wait_held(self._folder, fault.id, self._gate_deadline_s)
            head = _head_of(self._folder, target)
            if write_receipt(self._folder, receipt_for(fault, self._run, rank, target, head)):
                signal.pidfd_send_signal(descriptor, SIGNALS[fault.kind])
                if fault.grace_s is not None:  # it lives on, and its saves have to
                    release_gate(self._folder, fault.id)
                    _end_after(fault.grace_s, os.dup(descriptor))
        except (GateError, ProcessLookupError) as error:
            self._log(f"fault {fault.id} did not strike: {error}")
        finally:
            os.close(descriptor)

    def _release(self, pid: int, ticks: int, *, gone: bool) -> None:
        """Releases what waited for this process to be struck. For a SIGKILL the process has to be gone."""
        for fault in self._gated:
            try:
                receipt = read_receipt(self._folder, fault.id)
            except StorageError as error:
                self._log(f"the gate of fault {fault.id} stays shut: {error}")
                continue
            if receipt is None or (receipt.target.pid, receipt.target.start_ticks) != (pid, ticks):
                continue
            if fault.kind is not FaultKind.SIGKILL or gone or not is_alive(receipt.target):
                release_gate(self._folder, fault.id)


def _end_after(grace_s: float, descriptor: int) -> None:
    """SIGKILL to what the pidfd names, if it is still there when its grace is over."""

    def end() -> None:
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return  # gone in time
        finally:
            os.close(descriptor)

    timer = threading.Timer(grace_s, end)
    timer.daemon = True
    timer.start()


def _head_of(folder: Path, target: ProcessId) -> Head | None:
    """How far the process has recorded, read from its history file; None if it has none."""
    found = sorted((folder / "history").glob(f"*-{target.host}-{target.pid}-{target.start_ticks}.jsonl"))
    for path in found:
        try:
            return read_history(path).head
        except (StorageError, OSError):
            continue
    return None
