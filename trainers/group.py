"""The processes of one run: ranks, standbys and committer, gang-scheduled (`pool.py`).

Ranks and standbys each hold a bundle, so a standby takes a dead rank's place at once and its replacement is started
in the freed bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.exceptions import RayError

from storage.history import History
from storage.process import is_alive, is_stopped
from trainers.events import DeathObserved, Event, RankPlaced
from trainers.points import KillPoints
from trainers.pool import Pool, Process, Trade
from trainers.processes import Exit, exit_of, kill_member
from trainers.reports import Member
from trainers.spec import TrainingSpec

_KILL_S = 5.0
_EXIT_RECORD_S = 1.0
_CLOSE_S = 1.0
_DISCHARGE_S = 20.0  # of a standby that is being started, or warms up


class Group:
    """Places, replaces and ends the run's processes. Every process that it took, it ends or gives back in `close`."""

    def __init__(
        self, spec: TrainingSpec, points: KillPoints, notify: Callable[[Event], None], history: History, pool: Pool
    ) -> None:
        self._spec, self._points, self._notify, self._history, self._pool = spec, points, notify, history, pool
        self._all: list[Process] = []
        self._left: list[Process] = []
        self._introduced: set[Process] = set()
        self._missing = 0
        self.ranks: dict[int, Process] = {}
        self.standbys: list[Process] = []
        self.committer: Process | None = None

    def start(self) -> None:
        """Every worker of the run, started or taken from the pool. Raises GaveUp if the cluster is too small."""
        spec = self._spec
        total = ray.cluster_resources()  # type: ignore[no-untyped-call]
        gpus = total.get("GPU", 0) >= spec.ranks
        spare = spec.standbys if not gpus or total.get("GPU", 0) >= spec.ranks + spec.standbys else 0
        bundle = {"CPU": 1.0, "GPU": 1.0} if gpus else {"CPU": 1.0}
        self._history.record("pool", namespace=self._pool.namespace)
        self._pool.reserve(bundle, spec.ranks + spare, spec.recovery_deadline_s)
        for rank in range(spec.ranks):
            self.ranks[rank] = self._worker()
            self.ranks[rank].rank = rank
        self.standbys = [self._worker() for _ in range(spare)]
        self.start_committer()
        for process in self.ranks.values():
            process.actor.load_libraries.remote()
        self.warm_standbys()

    def start_committer(self) -> Process:
        """Another committer process; the one before, if any, is dead or left behind the fence."""
        self.committer = self._pool.committer(self._spec, self._points)
        self._all.append(self.committer)
        return self.committer

    def warm_standbys(self) -> None:
        """Tells standbys that have not begun to warm up to do so."""
        for standby in self.standbys:
            if standby.warm is None:
                standby.warm = standby.actor.warm.remote()

    def _worker(self) -> Process:
        process = self._pool.worker(self._spec, self._points)
        self._all.append(process)
        return process

    def introduce(self, process: Process, role: str, rank: int | None, attempt: int) -> Member:
        """Waits for the process to be up and records who it is, once; notes its place in this attempt."""
        member = process.known(self._spec.recovery_deadline_s)
        own = member.process
        who: dict[str, Any] = {"pid": own.pid, "start_ticks": own.start_ticks, "host": own.host}
        if process not in self._introduced:
            self._introduced.add(process)
            self._history.record("process", attempt, role=role, rank=rank, history=member.history, **who)
        self._history.record("assigned", attempt, role=role, rank=rank, pid=own.pid)
        process.role, process.rank = role, rank
        self._notify(RankPlaced(attempt, role, rank, **who))
        return member

    def replace_process(self, lost: Process) -> None:
        """Puts the best standby into a lost rank's place; another one is started in the freed bundle by `refill`."""
        rank = next((rank for rank, process in self.ranks.items() if process is lost), None)
        if lost in self.standbys:
            self.standbys.remove(lost)
        if rank is None or lost.bundle is None:
            return
        self._pool.lost(lost)
        self._missing += 1
        if not self.standbys:
            self._start_standby()
        standby = self._best_standby()
        self.standbys.remove(standby)
        self.ranks[rank] = standby

    def refill(self) -> None:
        """Starts standbys in the free bundles. Called once training is back: starting one costs seconds of a core."""
        while self._missing:
            self._start_standby()
        self.warm_standbys()

    def _start_standby(self) -> None:
        self.standbys.append(self._worker())
        self._missing -= 1

    def _best_standby(self) -> Process:
        warming = [s.warm for s in self.standbys if s.warm is not None]
        ready = set(ray.wait(warming, num_returns=len(warming), timeout=0)[0]) if warming else set()
        for standby in self.standbys:
            if standby.warm in ready and standby.warm is not None and self._lives(standby):
                return standby
        return next((s for s in self.standbys if s.warm is not None and self._lives(s)), self.standbys[-1])

    def _lives(self, process: Process) -> bool:
        if process.hold in ray.wait([process.hold], timeout=0)[0]:
            return False
        member = process.member
        return member is None or not self._is_here(member) or is_alive(member.process)

    def is_stopped(self, process: Process) -> bool:
        """Whether the process is stopped by a signal, as far as that can be seen from here."""
        member = process.member
        return member is not None and self._is_here(member) and is_stopped(member.process)

    def _is_here(self, member: Member) -> bool:
        return member.process.host == self._history.process.host

    def end(self, process: Process, why: str, attempt: int | None) -> None:
        """Kills the process for certain and records how it ended."""
        member = process.member
        if member is None:
            ray.kill(process.actor, no_restart=True)
            return
        who = {"pid": member.process.pid, "start_ticks": member.process.start_ticks}
        if not self._is_here(member) or is_alive(member.process):
            self._history.record("killing", attempt, signal=9, why=why, **who)
        kill_member(member, _KILL_S)

    def leave(self, process: Process) -> None:
        """Treats the process as out of reach: it stays as it is until `close`."""
        self._left.append(process)

    def confirm_exit(self, process: Process, attempt: int) -> Exit:
        """Waits for the launcher's word on how the process ended, records it and tells the watchers."""
        if process.member is None:  # it never said who it is
            return Exit(None, None)
        member = process.member
        seen = exit_of(self._spec.folder / "history", member, _EXIT_RECORD_S)
        who = {"pid": member.process.pid, "start_ticks": member.process.start_ticks}
        self._history.record("exit_confirmed", attempt, signal=seen.signal, code=seen.code, **who)
        self._notify(DeathObserved(member.process.pid, member.process.start_ticks, seen.signal))
        return seen

    def close(self, trade: Trade | None = None) -> None:
        """Ends every process of the run. `trade`: those that are in good order are given back to the pool instead.

        Give it only if the run has finished, so that nothing of it goes on in them.
        """
        for process in self._left:
            self._end_here(process)  # what they hold, others may be waiting for
        leaving = [(p, p.actor.close.remote() if trade is None else p.actor.discharge.remote())
                   for p in self._living(0.0 if trade is None else _DISCHARGE_S)]  # fmt: skip
        for process, ref in leaving:
            try:
                fit = ray.get(ref, timeout=_CLOSE_S if trade is None else _DISCHARGE_S)
            except RayError:  # dead, stopped or hung: its history ends where it ends
                continue
            if trade is not None and fit:
                self._all.remove(process)
                self._pool.give_back(process, trade)
        for process in self._all:
            self._end_here(process)
            self._pool.lost(process)
        self._all, self._left = [], []
        if trade is not None:
            self._pool.replenish(self._spec, trade)

    def _end_here(self, process: Process) -> None:
        if process.member is None:
            ray.kill(process.actor, no_restart=True)
        elif not self._is_here(process.member) or is_alive(process.member.process):
            self.end(process, "the run is over", None)

    def _living(self, patience_s: float) -> Iterator[Process]:
        for process in self._all:
            if process in self._left or self.is_stopped(process):
                continue
            if process not in self._introduced and ray.wait([process.starting], timeout=patience_s)[0]:
                try:
                    self.introduce(process, process.role, process.rank, -1)
                except RayError:
                    continue
            if process.member is not None and self._lives(process):
                yield process
