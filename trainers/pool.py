"""Processes on Ray that outlast one run: workers in a placement group, and committers.

Who ends a run in good order may serve the next one of the same workload, so that a run costs little more than the
processes that it loses. All actors are detached: they outlive a supervisor that is killed, and whoever resumes its run
ends them. Ray Data's tasks use CPUs outside the placement group.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from trainers.committer import Committer
from trainers.errors import GaveUp
from trainers.points import KillPoints
from trainers.processes import kill_member
from trainers.reports import CommitterSetup, Member
from trainers.spec import BUILT_IN, Survey, TrainingSpec, code_digest
from trainers.worker import GROUPS, Worker

_KILL_S = 5.0


@dataclass(frozen=True)
class Trade:
    """What a worker has imported and built: it can serve another run only if that is still what the run needs."""

    workload: str
    config: Mapping[str, Any]
    files: tuple[str, ...]
    code: str

    @classmethod
    def of(cls, spec: TrainingSpec, survey: Survey) -> Trade:
        return cls(spec.workload, spec.workload_config, survey.code_files, survey.fingerprints.code)

    def fits(self, spec: TrainingSpec) -> bool:
        """Whether the same workload is asked for, and its sources, and Killpoint's, are what they were.

        A user's own may keep in its modules what it made of a configuration; the built-in ones keep nothing.
        """
        if spec.workload != self.workload or (spec.workload not in BUILT_IN and spec.workload_config != self.config):
            return False
        try:
            return code_digest([Path(file) for file in self.files]) == self.code
        except OSError:
            return False


@dataclass(eq=False)
class Process:
    """One actor. `starting` is its answer to being enlisted; `member` and `hold` are known once it has started.

    warm: pending while a standby warms up. runs: those that it has served, each once: a run has one history of it.
    """

    actor: Any
    bundle: int | None
    role: str
    rank: int | None = None
    member: Member | None = None
    hold: Any = None
    starting: Any = None
    warm: Any = None
    trade: Trade | None = None
    runs: set[str] = field(default_factory=set)
    threads: int = 0
    last_known: Member | None = None

    def known(self, deadline_s: float | None = None) -> Member:
        """Waits until the process serves the run. Raises RayError if it does not, or not by the deadline."""
        if self.member is None:
            self.member = self.last_known = ray.get(self.starting, timeout=deadline_s)
        return self.member


class Pool:
    """Starts processes for one run at a time, and keeps those that are given back."""

    def __init__(
        self, py_executable: str | None = None, environment: Mapping[str, str] | None = None, spares: int = 0
    ) -> None:
        """py_executable: what Ray starts in place of the interpreter. environment: the processes' own variables.

        spares: how many workers are kept warm beside those of a run, for the runs that follow.
        """
        self._spares = spares
        self.namespace = f"killpoint-{secrets.token_hex(8)}"
        self._own = dict(environment or {})
        self._environment: dict[str, Any] = {} if py_executable is None else {"py_executable": py_executable}
        self._placement: Any = None
        self._bundle: dict[str, float] = {}
        self._free: list[int] = []
        self._idle: list[Process] = []
        self._count = self._started = 0

    def reserve(self, bundle: dict[str, float], count: int, deadline_s: float) -> None:
        """Room for `count` workers at once, and for the spares if it is made now. Raises GaveUp if the cluster is too
        small."""
        variables = {**self._own, "PYTHONPATH": _python_path()}
        settled = (self._bundle, self._environment.get("env_vars")) == (bundle, variables) and self._count >= count
        if settled and self._placement is not None and self._is_there():
            return
        self.close()
        self._environment["env_vars"] = variables
        count += self._spares
        self._bundle, self._count, self._free = bundle, count, list(range(count))
        self._placement = placement_group(
            [bundle] * count, strategy="PACK", lifetime="detached", name=f"{self.namespace}-workers"
        )
        if not self._placement.wait(deadline_s):
            total = ray.cluster_resources()  # type: ignore[no-untyped-call]
            raise GaveUp(
                f"the Ray cluster cannot place {count} workers of {bundle} at once (it has "
                f"{total.get('CPU', 0):g} CPUs, some perhaps in use): free some, or lower ranks or standbys"
            )

    def worker(self, spec: TrainingSpec, points: KillPoints) -> Process:
        """A worker that serves the run: an idle one that fits, else a new one, in the room of one that does not."""
        process = self._suited(spec, lambda each: each.bundle is not None)
        if process is None:
            self._make_room()
            process = self._new_worker(self._free.pop())
        return self._enlisted(process, "standby", spec.run, (spec, points))

    def committer(self, spec: TrainingSpec, points: KillPoints) -> Process:
        """A committer that serves the run."""
        threads = 2 * spec.ranks + 8
        process = self._suited(spec, lambda each: each.bundle is None and each.threads >= threads)
        if process is None:
            process = self._create(_committer_kind(), None, "committer", {"max_concurrency": threads})
            process.threads = threads
        setup = CommitterSetup(
            spec.run, str(spec.folder), spec.ranks, spec.global_batch, spec.keep, spec.unavailable_deadline_s
        )
        return self._enlisted(process, "committer", spec.run, (setup, points))

    def give_back(self, process: Process, trade: Trade) -> None:
        """The process has been discharged, and idles until the next run. What has done its warm-up stays warm."""
        process.trade, process.member, process.rank, process.warm = trade, None, None, None
        self._idle.append(process)

    def replenish(self, spec: TrainingSpec, trade: Trade) -> None:
        """Starts spares where there is room, which warm up for runs like this one while others go on."""
        while self._free and self._spares:
            process = self._new_worker(self._free.pop())
            process.actor.warm_up.remote(spec)
            process.trade = trade
            self._idle.append(process)

    def lost(self, process: Process) -> None:
        """The process is gone, or going: its room is free, and may soon be another one's."""
        if process.bundle is not None:
            self._free.append(process.bundle)
            process.bundle = None

    def close(self) -> None:
        """Ends every process that idles, and gives the room back. Idempotent."""
        for process in self._idle:
            self._end(process)
        self._idle = []
        if self._placement is not None:
            remove_placement_group(self._placement)
        self._placement, self._count, self._free = None, 0, []

    def _is_there(self) -> bool:
        """Whether nobody has taken the room away."""
        table = placement_group_table(self._placement)
        return bool(table.get("state") == "CREATED")

    def _suited(self, spec: TrainingSpec, wanted: Any) -> Process | None:
        for process in [each for each in self._idle if wanted(each)]:
            if process.trade is not None and process.trade.fits(spec) and spec.run not in process.runs:
                self._idle.remove(process)
                if not ray.wait([process.hold], timeout=0)[0]:
                    return process
                self.lost(process)
        return None

    def _make_room(self) -> None:
        if self._free:
            return
        unfit = next((each for each in self._idle if each.bundle is not None), None)
        assert unfit is not None, "more workers than were reserved"
        self._idle.remove(unfit)
        self._end(unfit)
        self.lost(unfit)

    def _end(self, process: Process) -> None:
        member = process.last_known
        if member is None or not kill_member(member, _KILL_S):
            ray.kill(process.actor, no_restart=True)

    def _new_worker(self, bundle: int) -> Process:
        strategy = PlacementGroupSchedulingStrategy(self._placement, placement_group_bundle_index=bundle)
        options = {"scheduling_strategy": strategy, "num_gpus": self._bundle.get("GPU", 0)}
        return self._create(_worker_kind(), bundle, "standby", options)

    def _create(self, kind: Any, bundle: int | None, role: str, options: dict[str, Any]) -> Process:
        self._started += 1
        actor: Any = kind.options(
            name=f"{role}-{self._started}", namespace=self.namespace, lifetime="detached", max_restarts=0,
            num_cpus=0 if bundle is None else 1, runtime_env=self._environment, **options,
        ).remote()
        return Process(actor, bundle, role, hold=actor.hold.remote())

    def _enlisted(self, process: Process, role: str, run: str, duty: Sequence[Any]) -> Process:
        process.role = role
        process.runs.add(run)
        process.starting = process.actor.enlist.remote(*duty)
        return process


@cache  # Ray keeps what it knows of every class that it is given, to the end of the session
def _worker_kind() -> Any:
    return ray.remote(concurrency_groups=GROUPS)(Worker)  # type: ignore[call-overload]


@cache
def _committer_kind() -> Any:
    return ray.remote(Committer)


def _python_path() -> str:
    return os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
