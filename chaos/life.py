"""One life of a supervisor: its history from the first event to the last, and the training in between.

Serves invariant 10: what was planned is recorded before anything can happen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from chaos.cluster import owns_ray, ray_address, ray_cluster, stdout_on_stderr
from chaos.controller import Controller
from chaos.errors import ChaosError
from chaos.experiment import Experiment
from chaos.faults import InjectedFault
from chaos.forkclient import FORKSERVER_ENV
from chaos.forkserver import ForkServer
from chaos.hints import resume_command
from chaos.interrupts import Interrupts
from chaos.launcher import py_executable
from chaos.resuming import out_of_reach
from chaos.runfolder import HISTORY, heads
from chaos.schema import RunSettings
from chaos.striker import Striker
from storage.errors import Fenced, StorageError
from storage.history import History
from trainers.errors import TrainingError
from trainers.events import AttemptStarted, Event, Log
from trainers.spec import TrainingSpec

if TYPE_CHECKING:
    from trainers.pool import Pool

Notify: TypeAlias = Callable[[Event], None]
_HELPERS = 2  # CPUs beside ranks and standbys: Ray Data's tasks


def cpus_of(run: RunSettings) -> int:
    """CPUs that a life takes of Ray: its workers', and some for Ray Data's tasks."""
    return run.ranks + run.standbys + _HELPERS


class Place:
    """Where lives are led, one after another: a fork server, Ray and a pool of processes, started by the first one.

    reuse: a life takes up processes of the one before. Each is built anew from the run's seed as after any restart,
    but what a workload keeps outside of it, in its modules, is then shared; so a user's own twins are trained without.
    """

    def __init__(self, interrupts: Interrupts, reuse: bool = False, spares: int = 0, more_cpus: int = 0) -> None:
        """spares: workers that are kept warm beside those of a life, if they are taken up again at all.

        more_cpus: of a Ray that is started here, for what others run on it.
        """
        self.interrupts, self.reuse, self._spares, self._more_cpus = interrupts, reuse, spares, more_cpus
        self._stack = ExitStack()
        self.striker: Callable[..., Striker] = Striker  # makes the kill points of each life
        self._environment: dict[str, str] | None = None
        self._pools: dict[bool, Pool] = {}

    def enter(self, cpus: int, fork_workers: bool) -> dict[str, str]:
        """Starts what is not there yet; the variables that workers need. Raises RayUnreachable."""
        if self._environment is None:
            environment = _fork_server(fork_workers, self._stack)
            room = cpus + self._spares + self._more_cpus
            self._stack.enter_context(ray_cluster(room, self.interrupts, environment))
            self._environment = environment
        return self._environment if fork_workers else {FORKSERVER_ENV: ""}

    @property
    def environment(self) -> dict[str, str]:
        """Where its Ray and its fork server are, for processes that join them. Only once something was started."""
        assert self._environment is not None, "nothing was started here yet"
        return {**self._environment, "RAY_ADDRESS": ray_address()}

    def start_afresh(self) -> None:
        """From now on every life has processes of its own."""
        self.reuse = False
        self.release()

    def release(self) -> None:
        """Ends the processes that are kept."""
        for pool in self._pools.values():
            pool.close()

    @contextmanager
    def lent(self, interrupts: Interrupts) -> Iterator[Place]:
        """To one command, which has its own interrupts."""
        mine, self.interrupts = self.interrupts, interrupts
        try:
            yield self
        finally:
            self.interrupts = mine

    @contextmanager
    def pool(self, cpus: int, fork_workers: bool, reuse: bool) -> Iterator[Pool]:
        """Where a life takes its processes from: the place's own pool, or one that ends with the life."""
        environment = self.enter(cpus, fork_workers)
        from trainers.pool import Pool  # imports Ray

        if reuse and fork_workers not in self._pools:
            self._pools[fork_workers] = kept = Pool(py_executable(), environment, self._spares)
            self._stack.callback(kept.close)
        pool = self._pools[fork_workers] if reuse else Pool(py_executable(), environment)
        try:
            yield pool
        finally:
            if not reuse:
                with self.interrupts.held_off():
                    pool.close()

    def __enter__(self) -> Place:
        self._stack.enter_context(stdout_on_stderr())
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stack.__exit__(*exc)


class Life:
    """Trains one run until its target or the supervisor's end."""

    def __init__(
        self, experiment: Experiment, spec: TrainingSpec, place: Place, notify: Notify, record: bool = False,
        reuse: bool = False,
    ) -> None:  # fmt: skip
        self._experiment, self._spec, self._watcher, self._record = experiment, spec, notify, record
        self._place, self._interrupts, self._reuse = place, place.interrupts, reuse
        self._attempt: int | None = None

    @property
    def began(self) -> bool:
        """Whether an attempt was started."""
        return self._attempt is not None

    def lead(self, event: str, facts: Mapping[str, Any]) -> str | None:
        """Records `event`, trains, closes the history. None when the target was reached, else why it was not.

        Raises what was Fenced: then another supervisor has the run, and there is nothing to judge.
        """
        history = History.open(self._spec.folder / HISTORY, "supervisor", self._spec.run)
        history.record(event, **facts)
        failure = self._train(history)
        with self._interrupts.held_off():
            return self._close(history) or failure

    def _train(self, history: History) -> str | None:
        try:
            with ExitStack() as stack:
                self._supervise(history, stack)
            return None
        except KeyboardInterrupt:
            number = self._interrupts.signal
            name = "an interrupt" if number is None else number.name
            history.record("gave_up", reason=f"interrupted by {name}")
            lost = out_of_reach(self._experiment.faults, self._spec.folder, self._attempt)
            hint = f"interrupted by {name}; go on with: {resume_command(self._spec.folder)}"
            return "\n".join([hint, *lost])
        except (TrainingError, StorageError, ChaosError, InjectedFault) as error:
            if _was_fenced(error):
                history.close()
                raise
            if isinstance(error, InjectedFault):  # struck in the supervisor itself; the rest it has recorded
                history.record("gave_up", reason=str(error))
            return str(error)

    def _supervise(self, history: History, stack: ExitStack) -> None:
        spec, faults = self._spec, self._experiment.faults
        cpus, fork_workers = cpus_of(self._experiment.run), self._experiment.run.fork_workers
        pool = stack.enter_context(self._place.pool(cpus, fork_workers, self._reuse))
        from trainers.supervisor import Supervisor  # imports torch

        deadline_s = self._experiment.gate_deadline_s
        striker = self._place.striker(spec.run, spec.folder, faults, self._record, deadline_s)
        controller = Controller(
            spec.run, spec.folder, faults, deadline_s, log=lambda text: self._notify(Log(text))
        )

        def notify(event: Event) -> None:
            controller.notify(event)
            self._notify(event)

        supervisor = Supervisor(
            spec, points=striker, notify=notify, history=history, pool=pool, reuse=self._reuse
        )
        stack.callback(self._end, supervisor.close, striker)
        stack.enter_context(controller)
        supervisor.run()

    def _notify(self, event: Event) -> None:
        if isinstance(event, AttemptStarted):
            self._attempt = event.attempt
        self._watcher(event)

    def _end(self, close: Callable[[], None], striker: Striker) -> None:
        with self._interrupts.held_off():
            close()
            striker.flush()

    def _close(self, history: History) -> str | None:
        """Ends the supervisor's history with the heads of all others, so that a later cut shows."""
        try:
            history.close(heads=[head.as_dict() for head in heads(self._spec.folder, without=history.name)])
        except StorageError as error:
            return str(error)
        return None


def _fork_server(wanted: bool, stack: ExitStack) -> dict[str, str]:
    """Variables that tell launchers where the fork server is, which imports while Ray starts; empty for nowhere.

    One is started only along with a Ray of this command's own: its workers end with it, and on any other cluster they
    must outlive a supervisor that is killed. Whoever owns that cluster may name a server that lasts as long.
    """
    given = os.environ.get(FORKSERVER_ENV, "")
    if not wanted or given:
        return {FORKSERVER_ENV: given if wanted else ""}
    if owns_ray():
        return stack.enter_context(ForkServer()).environment
    return {FORKSERVER_ENV: ""}


def _was_fenced(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Fenced):
            return True
        error = error.__cause__
    return False
