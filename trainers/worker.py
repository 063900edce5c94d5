"""The Ray actor around a rank: remote methods, liveness, and an end for orphans. Imports torch only inside the actor.

Three groups of threads: the default one trains, `control` answers while it trains, `hold` never answers, so that its
failing tells the supervisor of this process's death within milliseconds.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from storage.errors import StorageError
from storage.history import History, history_name
from storage.process import ProcessId, current_process, start_ticks
from trainers.blame import blamed
from trainers.errors import Interrupted, StateError, TrainingError
from trainers.notice import notice_of_this_process
from trainers.points import KillPoints, PointRaised
from trainers.reports import WAITS_FOR_INPUT, WARMS_UP, Heartbeat, Member, Outcome, SaveReport, Vote
from trainers.spec import Assignment, Candidate, Survey, TrainingSpec
from trainers.witness import released, watched

if TYPE_CHECKING:
    from trainers.rank import Rank

_ORPHAN_S = 60.0
_IDLE_S = 600.0  # of a process that serves no run: nobody asks after it
_ORPHAN_CHECK_S = 5.0
GROUPS = {"control": 4, "hold": 1}
_OWN = (TrainingError, StorageError, PointRaised, RayError)  # everything else that training raises is the workload's


@dataclass(frozen=True)
class Duty:
    """The run that a process serves."""

    spec: TrainingSpec
    points: KillPoints
    history: History


def member_of(history: History) -> Member:
    """This process as others must know it, and the launcher that will see how it ends."""
    witness, process = int(os.environ.get("KILLPOINT_LAUNCHER", os.getppid())), current_process()
    launcher = history_name("launcher", ProcessId(process.host, witness, start_ticks(witness) or 0))
    return Member(process, history.name, ray.get_runtime_context().get_node_id(), launcher)


class Worker:
    """A process that serves no run until `enlist`, and is a standby until `prepare` gives it a rank."""

    def __init__(self) -> None:
        self._duty: Duty | None = None
        self._rank_or_none: Rank | None = None
        self._making = threading.Lock()
        self._warm = self._warming = False
        self._last_heard = time.monotonic()
        self._notice = notice_of_this_process()  # Ray makes actors in the main thread
        threading.Thread(target=self._end_when_orphaned, name="orphan", daemon=True).start()

    def enlist(self, spec: TrainingSpec, points: KillPoints) -> Member:
        """Serves this run from now on."""
        self._last_heard = time.monotonic()
        watched(spec.folder / "history", spec.run)
        history = History.open(spec.folder / "history", "worker", spec.run)
        self._duty = Duty(spec, points, history)
        points.enter(-1, "standby", None, history)
        return member_of(history)

    def discharge(self) -> bool:
        """Serves no run any more. False if something of it may still go on in this process: it cannot serve another."""
        rank, duty = self._rank_or_none, self._here()
        fit = rank is None or rank.rest()
        self._rank_or_none = self._duty = None
        end_duty(duty.points, duty.history)
        self._last_heard = time.monotonic()
        return fit

    def _here(self) -> Duty:
        if self._duty is None:
            raise StateError("this process serves no run: enlist() comes first")
        return self._duty

    @property
    def _rank(self) -> Rank:
        with self._making:  # two threads may ask first: a second rank would take the place of one that has a store open
            if self._rank_or_none is None:
                from trainers.rank import Rank

                duty = self._here()
                self._rank_or_none = Rank(duty.spec, duty.history, duty.points, self._notice)
            return self._rank_or_none

    @ray.method(concurrency_group="hold")
    def hold(self) -> None:
        threading.Event().wait()

    @ray.method(concurrency_group="control")
    def ping(self, clock: int) -> Heartbeat:
        self._last_heard = time.monotonic()
        duty, rank = self._duty, self._rank_or_none
        if duty is None:  # asked while it still served a run
            return Heartbeat(0, "idle", 0, None, clock)
        history = duty.history
        history.witness(clock)
        if rank is None or self._warming:
            return Heartbeat(0, WARMS_UP if self._warming else "idle", 0, None, history.clock)
        phase = WAITS_FOR_INPUT if rank.waits_for_input else rank.phase
        return Heartbeat(rank.ticks, phase, rank.step, rank.loss, history.clock, rank.take_findings())

    @ray.method(concurrency_group="control")
    def interrupt(self, attempt: int) -> None:
        if self._rank_or_none is not None:
            self._rank_or_none.interrupt(attempt)

    @ray.method(concurrency_group="control")
    def open_store(self, attempt: int) -> tuple[str, int]:
        return self._rank.open_store(attempt)

    def load_libraries(self) -> None:
        """Imports torch, Ray Data and what they load late; called at once, so that all workers do it side by side."""
        from trainers.warming import load_libraries

        load_libraries()

    def survey(self) -> Survey:
        return self._rank.survey()

    def warm_up(self, spec: TrainingSpec) -> None:
        """As `warm`, before this process serves any run."""
        from trainers.warming import settle, warm

        self.load_libraries()
        warm(spec, settle(spec))
        self._warm = True

    def warm(self) -> None:
        """What is slow the first time, once in this process's life."""
        self._warming, started = True, time.monotonic()
        try:
            self._rank.warm(again=self._warm)
        finally:
            self._warming = False
        self._warm = True
        self._here().history.record("warmed", duration_s=time.monotonic() - started)

    def prepare(self, assignment: Assignment, candidate: Candidate | None) -> Vote:
        return self._rank.prepare(assignment, candidate)

    def load(self, candidate: Candidate | None) -> Vote:
        return self._rank.load(candidate)

    def train(self, clock: int, committer: Any) -> Outcome:
        rank = self._rank
        with blamed(rank.code_files, lambda: rank.step, _OWN):
            outcome = rank.train(clock, _reporter(committer))
        self._warm = True
        return outcome

    @ray.method(concurrency_group="control")
    def close(self) -> None:
        """Ends the history; the process is killed afterwards."""
        duty = self._here()
        duty.points.flush()
        duty.history.close()

    def _end_when_orphaned(self) -> None:
        while time.monotonic() - self._last_heard < (_ORPHAN_S if self._duty is not None else _IDLE_S):
            time.sleep(_ORPHAN_CHECK_S)
        if self._duty is not None:
            self._duty.history.record("orphaned", silent_s=_ORPHAN_S)
            self._duty.history.close()
        os._exit(0)


def end_duty(points: KillPoints, history: History) -> None:
    """Of a process that lives on: its part in the run is over, and the launcher no longer watches it for the run."""
    points.flush()
    history.close()
    released()


def _reporter(committer: Any) -> Any:
    def report(message: SaveReport) -> None:
        try:
            ray.get(committer.report.remote(message))
        except RayTaskError as error:
            raise error.cause from error
        except RayActorError as error:
            raise Interrupted("the committer is gone") from error

    return report
