"""The Ray actor around a rank: remote methods, liveness, and an end for orphans. Imports torch only inside the actor.

Three groups of threads: the default one trains, `control` answers while it trains, `hold` never answers, so that its
failing tells the supervisor of this process's death within milliseconds.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from storage.errors import StorageError
from storage.history import Head, History, history_name
from storage.process import ProcessId, current_process, start_ticks
from trainers.blame import blamed
from trainers.errors import Interrupted, TrainingError
from trainers.points import KillPoints, PointRaised
from trainers.reports import WAITS_FOR_INPUT, Heartbeat, Member, Outcome, SaveReport, Vote
from trainers.spec import Assignment, Candidate, Survey, TrainingSpec

if TYPE_CHECKING:
    from trainers.rank import Rank

_ORPHAN_S = 60.0
_ORPHAN_CHECK_S = 5.0
GROUPS = {"control": 4, "hold": 1}
_OWN = (TrainingError, StorageError, PointRaised, RayError)  # everything else that training raises is the workload's


def member_of(history: History) -> Member:
    """This process as others must know it, and the launcher that will see how it ends."""
    witness, process = int(os.environ.get("KILLPOINT_LAUNCHER", os.getppid())), current_process()
    launcher = history_name("launcher", ProcessId(process.host, witness, start_ticks(witness) or 0))
    return Member(process, history.name, ray.get_runtime_context().get_node_id(), launcher)


class Worker:
    """A process that is a standby until `prepare` gives it a rank."""

    def __init__(self, spec: TrainingSpec, points: KillPoints) -> None:
        self._spec, self._points = spec, points
        self._history = History.open(spec.folder / "history", "worker", spec.run)
        points.enter(-1, "standby", None, self._history)
        self._rank_or_none: Rank | None = None
        self._last_heard = time.monotonic()
        threading.Thread(target=self._end_when_orphaned, name="orphan", daemon=True).start()

    @property
    def _rank(self) -> Rank:
        if self._rank_or_none is None:
            from trainers.rank import Rank

            self._rank_or_none = Rank(self._spec, self._history, self._points)
        return self._rank_or_none

    @ray.method(concurrency_group="control")
    def member(self) -> Member:
        return member_of(self._history)

    @ray.method(concurrency_group="hold")
    def hold(self) -> None:
        threading.Event().wait()

    @ray.method(concurrency_group="control")
    def ping(self, clock: int) -> Heartbeat:
        self._last_heard = time.monotonic()
        self._history.witness(clock)
        rank = self._rank_or_none
        if rank is None:
            return Heartbeat(0, "idle", 0, None, self._history.clock)
        phase = WAITS_FOR_INPUT if rank.waits_for_input else rank.phase
        return Heartbeat(rank.ticks, phase, rank.step, rank.loss, self._history.clock, rank.take_findings())

    @ray.method(concurrency_group="control")
    def interrupt(self, attempt: int) -> None:
        if self._rank_or_none is not None:
            self._rank_or_none.interrupt(attempt)

    @ray.method(concurrency_group="control")
    def open_store(self) -> tuple[str, int]:
        return self._rank.open_store()

    def load_libraries(self) -> None:
        """Imports torch, Ray Data and what they load late; called at once, so that all workers do it side by side."""
        self._rank.load_libraries()

    def survey(self) -> Survey:
        return self._rank.survey()

    def warm(self) -> None:
        self._rank.warm()

    def prepare(self, assignment: Assignment, candidate: Candidate | None) -> Vote:
        return self._rank.prepare(assignment, candidate)

    def load(self, candidate: Candidate | None) -> Vote:
        return self._rank.load(candidate)

    def train(self, clock: int, committer: Any) -> Outcome:
        rank = self._rank
        with blamed(rank.code_files, lambda: rank.step, _OWN):
            return rank.train(clock, _reporter(committer))

    @ray.method(concurrency_group="control")
    def close(self) -> Head:
        """Ends the history; the process is killed afterwards."""
        self._points.flush()
        return self._history.close()

    def _end_when_orphaned(self) -> None:
        while time.monotonic() - self._last_heard < _ORPHAN_S:
            time.sleep(_ORPHAN_CHECK_S)
        self._history.record("orphaned", silent_s=_ORPHAN_S)
        self._history.close()
        os._exit(0)


def _reporter(committer: Any) -> Any:
    def report(message: SaveReport) -> None:
        try:
            ray.get(committer.report.remote(message))
        except RayTaskError as error:
            raise error.cause from error
        except RayActorError as error:
            raise Interrupted("the committer is gone") from error

    return report
