"""The processes of a run on Ray: ranks, standbys and committer, gang-scheduled in one placement group.

Ranks and standbys each hold a bundle, so a standby takes a dead rank's place at once and its replacement is started
in the freed bundle. All actors are detached: they outlive a supervisor that is killed, and whoever resumes the run
ends them first. Ray Data's tasks use CPUs outside the placement group.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from storage.history import Head, History
from storage.process import is_alive, is_stopped
from trainers.committer import Committer
from trainers.errors import GaveUp
from trainers.events import DeathObserved, Event, RankPlaced
from trainers.points import KillPoints
from trainers.processes import Exit, exit_of, kill_member
from trainers.reports import CommitterSetup, Member
from trainers.spec import TrainingSpec
from trainers.worker import GROUPS, Worker

_KILL_S = 5.0
_EXIT_RECORD_S = 1.0


@dataclass(eq=False)
class Process:
    """One actor. `member` and `hold` are known once it has started; `warm` is pending while a standby warms up."""

    actor: Any
    bundle: int | None
    role: str
    rank: int | None = None
    member: Member | None = None
    hold: Any = None
    starting: Any = None
    warm: Any = None

    def known(self) -> Member:
        """Waits until the process has started. Raises RayError if it never does."""
        if self.member is None:
            self.member = ray.get(self.starting)
        return self.member


class Group:
    """Starts, places, replaces and ends the run's processes. Every process that it started, it ends in `close`."""

    def __init__(
        self, spec: TrainingSpec, points: KillPoints, notify: Callable[[Event], None], history: History,
        py_executable: str | None, environment: Mapping[str, str] | None = None,
    ) -> None:
        self._spec, self._points, self._notify, self._history = spec, points, notify, history
        self.namespace = f"killpoint-{spec.run}"
        self._owner = f"{history.process.pid}-{history.process.start_ticks}"
        variables = {"KILLPOINT_HISTORY": str(spec.folder / "history"), "KILLPOINT_RUN": spec.run,
                     "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
                     **(environment or {})}
        self._environment: dict[str, Any] = {"env_vars": variables}
        if py_executable is not None:
            self._environment["py_executable"] = py_executable
        self._placement: Any = None
        self._started = 0
        self._all: list[Process] = []
        self._left: list[Process] = []
        self._free: list[int] = []
        self.ranks: dict[int, Process] = {}
        self.standbys: list[Process] = []
        self.committer: Process | None = None

    def start(self) -> None:
        """Reserves the bundles and starts every worker. Raises GaveUp if the cluster is too small."""
        spec = self._spec
        total = ray.cluster_resources()  # type: ignore[no-untyped-call]
        gpus = total.get("GPU", 0) >= spec.ranks
        spare = spec.standbys if not gpus or total.get("GPU", 0) >= spec.ranks + spec.standbys else 0
        self._bundle = {"CPU": 1.0, "GPU": 1.0} if gpus else {"CPU": 1.0}
        count = spec.ranks + spare
        self._placement = placement_group(
            [self._bundle] * count, strategy="PACK", lifetime="detached", name=f"{self.namespace}-{self._owner}"
        )
        if not self._placement.wait(spec.recovery_deadline_s):
            raise GaveUp(
                f"the Ray cluster cannot place {count} workers of {self._bundle} at once (it has "
                f"{total.get('CPU', 0):g} CPUs, some perhaps in use): free some, or lower ranks or standbys"
            )
        for rank in range(spec.ranks):
            self.ranks[rank] = self._worker(rank)
            self.ranks[rank].rank = rank
        self.standbys = [self._worker(spec.ranks + number) for number in range(spare)]
        self.start_committer()
        for process in self.ranks.values():
            process.actor.load_libraries.remote()
        self.warm_standbys()

    def start_committer(self) -> Process:
        """A new committer process; the one before, if any, is dead or left behind the fence."""
        spec = self._spec
        setup = CommitterSetup(spec.run, str(spec.folder), spec.ranks, spec.global_batch, spec.keep)
        options = {"max_concurrency": 2 * spec.ranks + 8}
        self.committer = self._create(ray.remote(Committer), (setup, self._points), None, "committer", options)
        return self.committer

    def warm_standbys(self) -> None:
        """Tells standbys that have not begun to warm up to do so."""
        for standby in self.standbys:
            if standby.warm is None:
                standby.warm = standby.actor.warm.remote()

    def _worker(self, bundle: int) -> Process:
        strategy = PlacementGroupSchedulingStrategy(self._placement, placement_group_bundle_index=bundle)
        options = {"scheduling_strategy": strategy, "num_gpus": self._bundle.get("GPU", 0)}
        kind = ray.remote(concurrency_groups=GROUPS)(Worker)  # type: ignore[call-overload]
        return self._create(kind, (self._spec, self._points), bundle, "standby", options)

    def _create(
        self, kind: Any, args: tuple[Any, ...], bundle: int | None, role: str, options: dict[str, Any]
    ) -> Process:
        self._started += 1
        actor: Any = kind.options(
            name=f"{role}-{self._owner}-{self._started}", namespace=self.namespace, lifetime="detached", max_restarts=0,
            num_cpus=0 if bundle is None else 1, runtime_env=self._environment, **options,
        ).remote(*args)
        process = Process(actor, bundle, role)
        process.starting, process.hold = actor.member.remote(), actor.hold.remote()
        self._all.append(process)
        return process

    def introduce(self, process: Process, role: str, rank: int | None, attempt: int) -> Member:
        """Waits for the process to be up and records who it is, once; notes its place in this attempt."""
        first = process.member is None
        member = process.known()
        own = member.process
        who: dict[str, Any] = {"pid": own.pid, "start_ticks": own.start_ticks, "host": own.host}
        if first:
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
        self._free.append(lost.bundle)
        if not self.standbys:
            self.standbys.append(self._worker(self._free.pop()))
        standby = self._best_standby()
        self.standbys.remove(standby)
        self.ranks[rank] = standby

    def refill(self) -> None:
        """Starts standbys in the free bundles. Called once training is back: starting one costs seconds of a core."""
        while self._free:
            self.standbys.append(self._worker(self._free.pop()))
        self.warm_standbys()

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
        member = process.known()
        seen = exit_of(self._spec.folder / "history", member, _EXIT_RECORD_S)
        who = {"pid": member.process.pid, "start_ticks": member.process.start_ticks}
        self._history.record("exit_confirmed", attempt, signal=seen.signal, code=seen.code, **who)
        self._notify(DeathObserved(member.process.pid, member.process.start_ticks, seen.signal))
        return seen

    def close(self) -> list[Head]:
        """Ends every process that was started, gives the bundles back. Returns the heads of the ended histories."""
        closing = [(p, p.actor.close.remote()) for p in self._living()]
        heads: list[Head] = []
        for _process, ref in closing:
            try:
                heads.append(ray.get(ref, timeout=1.0))
            except RayError:  # dead, stopped or hung: its history ends where it ends
                continue
        for process in self._all:
            if process.member is None:
                ray.kill(process.actor, no_restart=True)
            elif not self._is_here(process.member) or is_alive(process.member.process):
                self.end(process, "the run is over", None)
        if self._placement is not None:
            remove_placement_group(self._placement)
        self._all, self._placement = [], None
        return heads

    def _living(self) -> Iterator[Process]:
        for process in self._all:
            if process in self._left or self.is_stopped(process):
                continue
            if process.member is None and ray.wait([process.starting], timeout=0)[0]:
                try:
                    self.introduce(process, process.role, process.rank, -1)
                except RayError:
                    continue
            if process.member is not None and self._lives(process):
                yield process
