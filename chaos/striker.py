"""The kill-point function that kills: given downward as `reached`, it strikes its own process where planned.

Order of a strike: the gate (if any) is held, the receipt is durable, the process strikes itself. Without a
held gate or without a new receipt nothing is struck.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from chaos.damage import Wound, inflict, prepare
from chaos.faults import Fault, FaultKind, Passage, Slow
from chaos.gates import hold_gate, release_gate, wait_held
from chaos.hook import set_current
from chaos.outage import FlakyObjects, Weather
from chaos.points import Role
from chaos.receipts import has_receipt, receipt_for, write_receipt
from chaos.stray import place, prepare_stray
from chaos.strikes import strike
from storage.objects import Objects
from storage.process import current_process

if TYPE_CHECKING:
    from storage.history import History


class _Plan(NamedTuple):
    """What a striker knows wherever it travels."""

    run: str
    folder: Path
    faults: tuple[Fault, ...]
    record: bool
    gate_deadline_s: float


@dataclass(frozen=True, slots=True)
class _Watch:
    """At hit `hit` of a point: hold the fault's gate, or strike. last: the last one that a straggler is late at."""

    hit: int
    fault: Fault
    holds: bool
    last: int


class Striker:
    """One process's kill points. Picklable: what travels is the plan, what it has counted stays behind.

    Disarmed (no fault for this process in this attempt, nothing recorded) a call costs one attribute look-up.
    """

    __slots__ = ("_armed", "_plan", "_weather")

    def __init__(
        self,
        run: str,
        folder: Path,
        faults: tuple[Fault, ...],
        record: bool = False,
        gate_deadline_s: float = 20.0,
    ) -> None:
        self._plan = _Plan(run, folder, faults, record, gate_deadline_s)
        self._armed: _Armed | None = None
        self._weather = Weather()

    def __getstate__(self) -> _Plan:
        return self._plan

    def __setstate__(self, plan: tuple[object, ...]) -> None:
        self._plan = _Plan(*plan)  # type: ignore[arg-type]
        self._armed = None
        self._weather = Weather()

    def enter(self, attempt: int, role: str, rank: int | None, history: History | None) -> None:
        """This process works for `attempt` from now on: counts from zero and arms what is planned for it."""
        watches = _watches(self._plan, attempt, Role(role), rank)
        if watches or self._plan.record:
            self._armed = _Armed(self._plan, attempt, Role(role), rank, history, watches, self._weather)
        else:
            self._armed = None
        set_current(self)

    def __call__(self, point: str) -> None:
        """Execution is at `point`. May not return, may raise InjectedFault or GateError."""
        armed = self._armed
        if armed is not None:
            armed.passed(point)

    def at(self, point: str, hit: int) -> None:
        """Execution is at passage `hit` of `point`, counted by the caller: tasks have no memory."""
        armed = self._armed
        if armed is not None:
            armed.passed_at(point, hit)

    def bound(self) -> Callable[[str], None]:
        """`reached` for a thread that may outlive its attempt: it counts and strikes in this attempt only.

        After the next `enter` it does nothing, so that an abandoned saver's passages are nobody's hits.
        """
        armed = self._armed

        def reached(point: str) -> None:
            if armed is not None and armed is self._armed:
                armed.passed(point)

        return reached

    def store(self, objects: Objects) -> Objects:
        """The store, which fails for as long as an outage says; none was planned: the store itself."""
        planned = any(fault.outage is not None for fault in self._plan.faults)
        return FlakyObjects(objects, self._weather) if planned else objects

    def flush(self) -> None:
        """Writes the passages counted since `enter`, if they are recorded, to the history."""
        armed = self._armed
        if armed is not None and self._plan.record:
            armed.write_counts()


def release_struck_gates(folder: Path, faults: tuple[Fault, ...]) -> None:
    """Releases every gate whose fault has a receipt."""
    for fault in faults:
        if fault.gate is not None and has_receipt(folder, fault.id):
            release_gate(folder, fault.id)


def _watches(plan: _Plan, attempt: int, role: Role, rank: int | None) -> dict[str, tuple[_Watch, ...]]:
    """What is watched in a process of this role and rank, by point. A fault with a receipt is over."""
    found: dict[str, tuple[_Watch, ...]] = {}
    for fault in plan.faults:
        # A standby serves no attempt yet, and its faults name attempt 0.
        if fault.attempt != attempt and role is not Role.STANDBY:
            continue
        if has_receipt(plan.folder, fault.id):
            continue
        if fault.passage is not None and _serves(fault.role, fault.rank, role, rank):
            more = fault.slow.passages - 1 if fault.slow is not None else 0
            watch = _Watch(fault.passage.hit, fault, False, fault.passage.hit + more)
            found[fault.passage.point] = (*found.get(fault.passage.point, ()), watch)
        gate = fault.gate
        if gate is not None and _serves(gate.role, gate.rank, role, rank):
            found[gate.point] = (*found.get(gate.point, ()), _Watch(gate.hit, fault, True, gate.hit))
    return found


class _Harm(NamedTuple):
    """What will be done to the store: as the receipt has it, and how."""

    wound: Wound
    inflict: Callable[[], None]


def _harm(plan: _Plan, fault: Fault) -> _Harm | None:
    if fault.damage is not None:
        wound = prepare(plan.folder, plan.run, fault.damage)
        return None if wound is None else _Harm(wound, partial(inflict, plan.folder, wound))
    stray = prepare_stray(plan.folder, plan.run)
    return None if stray is None else _Harm(stray.wound, partial(place, plan.folder, stray))


def _serves(planned: Role, planned_rank: int | None, role: Role, rank: int | None) -> bool:
    if planned is not role:
        return False
    return planned_rank == rank or planned_rank is None


class _Armed:
    """Counts and watches of one process in one attempt. Its threads (training, saver) may call at once."""

    def __init__(
        self,
        plan: _Plan,
        attempt: int,
        role: Role,
        rank: int | None,
        history: History | None,
        watches: Mapping[str, tuple[_Watch, ...]],
        weather: Weather,
    ) -> None:
        self._weather = weather
        self._plan, self._attempt, self._role, self._rank = plan, attempt, role, rank
        self._history, self._watches = history, watches
        self._hits: dict[str, int] = {}
        self._slowing: set[str] = set()  # faults that have begun to make this process late
        self._lock = threading.Lock()

    def passed(self, point: str) -> None:
        """Counts one passage and does what is planned there."""
        watches = self._watches.get(point)
        if watches is None and not self._plan.record:
            return
        with self._lock:
            hit = self._hits.get(point, 0) + 1
            self._hits[point] = hit
        self._act(point, hit, watches or ())

    def passed_at(self, point: str, hit: int) -> None:
        """One passage whose number the caller knows."""
        with self._lock:
            self._hits[point] = max(self._hits.get(point, 0), hit)
        self._act(point, hit, self._watches.get(point, ()))

    def write_counts(self) -> None:
        """Records the counts. A process without a history (a task) records none."""
        if self._history is None:
            return
        with self._lock:
            counts = dict(sorted(self._hits.items()))
        self._history.record(
            "passages", attempt=self._attempt, role=self._role.value, rank=self._rank, counts=counts
        )

    def _act(self, point: str, hit: int, watches: tuple[_Watch, ...]) -> None:
        for watch in watches:
            if not watch.hit <= hit <= watch.last:
                continue
            if watch.holds:
                hold_gate(self._plan.folder, watch.fault.id, self._plan.gate_deadline_s)
            elif hit == watch.hit:
                self._strike(watch.fault, Passage(self._attempt, self._role, self._rank, point, hit))
            if watch.fault.slow is not None and watch.fault.id in self._slowing:
                self._delay(watch.fault, watch.fault.slow, done=hit == watch.last)

    def _delay(self, fault: Fault, slow: Slow, done: bool) -> None:
        time.sleep(slow.delay_s)
        if done and self._history is not None:
            self._history.record("slowed", self._attempt, fault=fault.id, passages=slow.passages)

    def _strike(self, fault: Fault, passage: Passage) -> None:
        if fault.gate is not None:
            wait_held(self._plan.folder, fault.id, self._plan.gate_deadline_s)
        harm = None
        if fault.kind in (FaultKind.DAMAGE, FaultKind.STRAY):
            harm = _harm(self._plan, fault)
            if harm is None:  # nothing is published: the fault has no receipt, and the verdict will say so
                return
        wound = None if harm is None else harm.wound
        head = None if self._history is None else self._history.head
        passages = dict(self._hits) if self._plan.record else None
        receipt = receipt_for(fault, self._plan.run, self._rank, current_process(), head, passages, wound)
        if not write_receipt(self._plan.folder, receipt):
            return
        if harm is not None:
            harm.inflict()
        elif fault.slow is not None:
            self._slowing.add(fault.id)
        elif fault.outage is not None:
            self._weather.turn(fault.outage)
        else:
            strike(fault, passage)
            release_gate(self._plan.folder, fault.id)  # after a notice this process lives on, and its saves have to
